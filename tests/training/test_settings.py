import pytest

from simdist.errors import ArgumentError, DataError, UnknownNameError
from simdist.training import Config, merged, read_toml


def test_what_hangs_on_a_changed_setting_becomes_its_default():
    base = {"optimizer": "adamw", "learning_rate": 0.5, "beta1": 0.8, "steps": 7}
    assert merged(base, {"steps": 9}) == base | {"steps": 9}
    assert merged(base, {"optimizer": "adamw"}) == base
    assert merged(base, {"optimizer": "sgd"}) == {"optimizer": "sgd", "steps": 7}
    assert merged(base, {"optimizer": "sgd", "learning_rate": 2.0})["learning_rate"] == 2.0
    assert merged({"learning_rate": 0.5}, {"optimizer": "sgd"}) == {"learning_rate": 0.5, "optimizer": "sgd"}
    of_gpt = {name: value for name, value in vars(Config(model="gpt")).items() if value is not None}
    assert Config(**merged(of_gpt, {"model": "mlp"})) == Config()


@pytest.mark.parametrize(
    ("told", "over", "method"),
    [
        ({"algorithm": "ring"}, {"zero": 1}, "zero"),
        ({"zero": 2}, {"zero": 3}, "fsdp"),
        ({"zero": 2}, {"zero": 0}, "ddp"),
        ({"bucket_bytes": 64}, {"compress": "8-bit"}, "compressed"),
        ({"zero": 1}, {"pp": 2, "micro_batches": 2}, "pipeline"),
        ({"pp": 2, "micro_batches": 2}, {"zero": 1}, "pipeline"),
        ({"method": "async"}, {"zero": 1}, "zero"),
        ({"method": "dp"}, {"steps": 9}, "dp"),
    ],
)
def test_a_run_that_goes_on_has_the_method_that_a_new_setting_brings(told, over, method):
    before = {name: value for name, value in vars(Config(**told)).items() if value is not None}
    assert Config(**merged(before, over)).method == method


def test_another_size_of_a_gpt_changes_its_sizes_only():
    run = {"steps": 7, "global_batch_size": 5, "tp": 2, "flash_attention": True}
    for base in ({"model": "gpt", "layers": 3}, {"model": "llama3-8b", "layers": 3}, {"model": "gpt2"}):
        assert merged(run | base, {"model": "qwen3-8b"}) == run | {"model": "qwen3-8b"}
    assert merged(run | {"model": "gpt2", "layers": 3}, {"heads": 6}) == run | {
        "model": "gpt2",
        "layers": 3,
        "heads": 6,
    }
    assert merged(run | {"model": "gpt2"}, {"model": "mlp"}) == {"steps": 7, "model": "mlp"}
    before = {name: value for name, value in vars(Config(model="llama3-8b", steps=7)).items() if value is not None}
    assert Config(**merged(before, {"model": "llama3-8b"})) == Config(model="llama3-8b", steps=7)
    assert Config(**merged(before, {"model": "gpt2"})) == Config(model="gpt2", steps=7)
    assert Config(**merged({"model": "llama3-8b", "layers": 2}, {})).layers == 2


def test_another_spelling_changes_nothing():
    base = {"model": "gpt", "layers": 3, "optimizer": "adamw", "learning_rate": 0.5, "schedule": "1f1b"}
    assert merged(base, {"model": "GPT", "optimizer": "AdamW", "schedule": "DAPPLE"}) == base
    assert merged({"optimizer": "AdamW", "beta1": 0.8}, {"optimizer": "adamw"}) == {"optimizer": "adamw", "beta1": 0.8}


@pytest.mark.parametrize("model", ["gpt", "mlp"])
def test_toml_goes_there_and_back_for(tmp_path, model):
    file = tmp_path / "config.toml"
    file.write_text(Config(model=model).toml())
    assert Config(**read_toml(file)) == Config(model=model)


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
        ("stpes = 3", UnknownNameError, r"c\.toml: 'stpes'; did you mean 'steps'\?$"),  # of many, the one
        ("qqq = 3", UnknownNameError, r"c\.toml: 'qqq'\. There are: algorithm, .*, zero$"),
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


def test_other_names_of_settings_will_do(tmp_path):
    path = tmp_path / "config.toml"
    path.write_text('lr = 1\nbatch = 6\nlr-schedule = "linear"\n')
    assert read_toml(path) == {"learning_rate": 1.0, "global_batch_size": 6, "rate_schedule": "linear"}
    path.write_text("lr = 1\nlearning_rate = 2\n")
    with pytest.raises(ArgumentError, match=r"learning_rate is in .*config\.toml by two names"):
        read_toml(path)


@pytest.mark.parametrize("key", ["ranks", "world", "out"])
def test_what_goes_on_the_command_line(tmp_path, key):
    (tmp_path / "config.toml").write_text(f"{key} = 4\n")
    with pytest.raises(ArgumentError, match=rf"{key} in .* goes on the command line, --{key}"):
        read_toml(tmp_path / "config.toml")
