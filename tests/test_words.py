import numpy as np

from simdist.errors import typed
from simdist.words import aligned, counted, listed, meant


def test_counts():
    assert counted(1, "rank") == "1 rank"
    assert counted(2000, "rank") == "2,000 ranks"
    assert counted(0, "loss") == "0 losses"
    assert counted(2, "mesh") == "2 meshes"


def test_ranks_are_listed():
    assert listed([3]) == "rank 3"
    assert listed([2, 0]) == "ranks 0, 2"
    assert listed(range(100)).endswith("11, … (100 in all)")


def test_types_have_an_article():
    values = {"a list": [], "an int": 1, "an ndarray": np.zeros(1), "a uint8": np.uint8(1), "None": None}
    assert [typed(value) for value in values.values()] == list(values)


def test_columns_are_aligned():
    table = [["", "measured", ""], ["a step", "1 s", "2 s"]]
    assert aligned(table, left=1) == ["        measured", "a step       1 s  2 s"]
    assert aligned([["a", "1"], ["b", "20"]]) == ["a   1", "b  20"]


def test_names_in_other_spellings():
    known = ["zb-v", "v-zb 2", "Q_4.1"]
    assert meant("zb-v", known) == meant("ZBV", known) == meant("zb_v", known) == "zb-v"
    assert meant("q41", known) == "Q_4.1"
    assert meant("V-ZB", known) is meant(None, known) is meant("", known) is meant(["zb-v"], known) is None
    assert meant("V-ZB", known, {"vzb": "zb-v", "ZBV": "v-zb 2"}) == "zb-v"
    assert meant("zbv", known, {"ZBV": "v-zb 2"}) == "zb-v"  # a known name comes first
