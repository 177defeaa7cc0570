import pytest

from simdist.errors import ArgumentError, DataError, UnknownNameError
from simdist.training import Config, read_toml


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"steps": 0}, "steps is 0; needs at least 1"),
        ({"global_batch_size": -5}, "global_batch_size is -5; needs at least 1"),
        ({"dropout": 1.0}, "dropout is 1.0; needs at least 0 and less than 1"),
        ({"momentum": 1.0}, "momentum is 1.0; needs at least 0 and less than 1"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
        ({"learning_rate": float("inf")}, "learning_rate is inf"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**63}, "seed is 9223372036854775808"),
    ],
)
def test_values_have_limits(setting, message):
    with pytest.raises(ArgumentError, match=message):
        Config(**setting)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"model": "mpl"}, "unknown model 'mpl'; did you mean 'mlp'"),
        ({"algorithm": "rign"}, "unknown all_reduce algorithm 'rign'; did you mean 'ring'"),
        ({"dtype": "float16"}, "unknown dtype 'float16'"),
        ({"logits": "tide"}, "unknown logits 'tide'; did you mean 'tied'"),
        ({"recompute": "all"}, "unknown recomputation 'all'"),
    ],
)
def test_names_must_be_known(setting, message):
    with pytest.raises(UnknownNameError, match=message):
        Config(**setting)


def test_toml_goes_there_and_back(tmp_path):
    config = Config(data='a "quoted" \\ name\n\x7fü', steps=7, learning_rate=1e-5, momentum=0.0, algorithm="ring")
    file = tmp_path / "config.toml"
    file.write_text(config.toml(), encoding="utf-8")
    assert Config(**read_toml(file)) == config


def test_toml_may_give_a_whole_number_where_any_will_do(tmp_path):
    (tmp_path / "c.toml").write_text("learning_rate = 1\nsteps = 3\n")
    assert read_toml(tmp_path / "c.toml") == {"learning_rate": 1.0, "steps": 3}


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("stpes = 3", UnknownNameError, r"c\.toml: 'stpes'; did you mean 'steps'"),
        ("steps = 2.5", ArgumentError, r"steps in .*c\.toml is 2\.5; needs a whole number"),
        ("steps = true", ArgumentError, "steps in .* is True"),
        ("data = 3", ArgumentError, "data in .* is 3; needs a string"),
        ("[steps]\nn = 3", ArgumentError, "steps in .* needs a whole number"),
        ("steps = ", ArgumentError, r"c\.toml is not TOML"),
    ],
)
def test_toml_errors(tmp_path, text, error, message):
    (tmp_path / "c.toml").write_text(text)
    with pytest.raises(error, match=message):
        read_toml(tmp_path / "c.toml")


def test_bytes_are_not_toml(tmp_path):
    (tmp_path / "c.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ArgumentError, match="is not TOML"):
        read_toml(tmp_path / "c.toml")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"none\.toml: No such file"):
        read_toml(tmp_path / "none.toml")
