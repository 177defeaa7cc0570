import json

import pytest

from simdist.errors import ArgumentError, DataError
from simdist.nn import Shape, published, published_names
from simdist.nn.formulas import num_parameters
from simdist.parallel.pipeline import modelled_costs
from simdist.training import Config, merged
from simdist.training.models import build, num_layers, sample, shape


@pytest.mark.parametrize("name", ["gpt", "mlp"])
def test_every_model_is_built_from_a_config(name):
    assert build(Config(model=name)).parameters.size > 0


def test_the_sizes_are_those_of_the_config():
    small = Config(context_bytes=3, embedding_width=5, hidden_width=7, hidden_layers=2)
    expected = 256 * 5 + (15 * 7 + 7) + (7 * 7 + 7) + (7 * 256 + 256)
    assert build(small).parameters.size == expected


@pytest.mark.parametrize("logits", ["tied", "untied"])
def test_the_sizes_of_a_gpt_are_those_of_the_config(logits):
    found = build(Config(model="gpt", layers=3, width=12, heads=2, context_bytes=7, logits=logits))
    assert found.parameters.size == num_parameters(Shape(3, 12, 2, 7, tied=logits == "tied"))


@pytest.mark.parametrize(("device", "most", "fits"), [("cpu", 0, True), ("cpu", -1, False), ("phantom", -1, True)])
def test_the_largest_matrix_must_fit_this_machine_in_float64(monkeypatch, device, most, fits):
    config = Config(model="gpt", width=64, vocabulary=5000, device=device)
    monkeypatch.setattr("simdist.training.models.memory_bytes", lambda: 5000 * 64 * 8 + most)
    if fits:
        build(config)
    else:
        with pytest.raises(ArgumentError, match=r"has shape \(5000, 64\): needs 0.0 GB for its first weights"):
            build(config)


def test_a_gpt_must_be_possible():
    with pytest.raises(ArgumentError, match="width is 10 and heads is 4"):
        build(Config(model="gpt", width=10))


@pytest.mark.parametrize(
    "settings",
    [
        {"model": "gpt", "layers": 5, "recompute": "full"},
        {"model": "gpt", "layers": 3, "experts": 4, "logits": "untied"},
        {"model": "gpt", "layers": 4, "experts": 2, "dense_layers": 2, "dense_ffn_width": 50},
        {"model": "gpt", "layers": 6, "experts": 2, "expert_every": 3, "dense_ffn_width": 50},
        {"model": "gpt", "layers": 1},
        {"model": "gpt", "layers": 0},
        {"model": "mlp", "hidden_layers": 3},
    ],
    ids=str,
)
def test_a_sample_tells_what_each_layer_takes(settings):
    config = Config(**settings)
    few, like = sample(config)
    every = build(config)
    took, found = (modelled_costs(model, 2, config.context_bytes + 1) for model in (every, few))
    assert took == [found[layer] for layer in like]
    assert len(found) <= (4 if config.dense_ffn_width else 3) or config.model == "mlp"


@pytest.mark.parametrize("name", published_names())
def test_a_published_models_name_stands_for_its_sizes(name):
    config = Config(model=name)
    assert config.model == "gpt"
    assert shape(config) == published(name)


def test_so_does_a_file_with_them(tmp_path):
    path = tmp_path / "config.json"
    told = {"model_type": "gpt2", "n_layer": 3, "n_embd": 8, "n_head": 2, "n_positions": 9, "vocab_size": 300}
    path.write_text(json.dumps(told))
    config = Config(model=str(path), heads=4)
    assert (config.model, shape(config)) == ("gpt", Shape(3, 8, 4, 9, 300))
    assert merged({"model": "gpt2", "layers": 5, "tp": 2}, {"model": str(path)}) == {"model": str(path), "tp": 2}
    with pytest.raises(DataError, match=r"none\.json: No such file"):
        Config(model=str(tmp_path / "none.json"))


@pytest.mark.parametrize(
    "without",
    [{"experts": 0}, {"dense_layers": 0}, {"kv_latent_width": 0}, {"experts": 0, "kv_latent_width": 0}],
    ids=str,
)
def test_without_a_part_a_published_model_is_without_what_belongs_to_it(without):
    size = shape(Config(model="deepseek-v3", **without))
    for name, value in without.items():
        assert (getattr(size, name) or 0) == value
    assert size.layers == 61


def test_blocks_without_experts_keep_their_own_size_as_long_as_there_are_any():
    assert shape(Config(model="llama4-maverick", dense_layers=0)) == published("llama4-maverick")
    assert shape(Config(model="llama4-maverick", expert_every=1)).dense_ffn_width is None
    assert shape(Config(model="deepseek-v3", dense_layers=0, expert_every=2)).dense_ffn_width == 18_432


@pytest.mark.parametrize(
    "given",
    [
        {"model": "gpt", "layers": 3},
        {"model": "gpt", "layers": 0},
        {"model": "gpt", "layers": 4, "experts": 2, "expert_every": 2},
        {"model": "mlp", "hidden_layers": 2},
    ],
    ids=str,
)
def test_layers_are_counted_without_a_model(given):
    config = Config(**given)
    assert num_layers(config) == len(sample(config).like)
