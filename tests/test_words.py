from simdist.words import counted, listed


def test_counts():
    assert counted(1, "rank") == "1 rank"
    assert counted(2000, "rank") == "2,000 ranks"
    assert counted(0, "loss") == "0 losses"
    assert counted(2, "mesh") == "2 meshes"


def test_ranks_are_listed():
    assert listed([3]) == "rank 3"
    assert listed([2, 0]) == "ranks 0, 2"
    assert listed(range(100)).endswith("11, … (100 in all)")
