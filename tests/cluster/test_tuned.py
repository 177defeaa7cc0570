import json
from pathlib import Path

import pytest

from simdist.cluster import Pick, Tuned, preset
from simdist.collectives.registry import choose
from simdist.comm.virtual.world import run_virtual
from simdist.errors import DataError

TABLE = Tuned({
    ("all_reduce", 2): (Pick(1024, "direct", "ring"), Pick(1 << 20, "direct", "direct")),
    ("all_reduce", 4): (Pick(1024, "tree", "tree"),),
    ("broadcast", 2): (Pick(64, "of a later version", "chain"),),
})  # fmt: skip


def test_the_nearest_size_counts():
    for num_bytes, found in [(0, 1024), (1, 1024), (30_000, 1024), (40_000, 1 << 20), (1 << 30, 1 << 20)]:
        assert TABLE.pick("all_reduce", 2, num_bytes).num_bytes == found


def test_nothing_for_what_was_not_measured():
    assert TABLE.pick("all_reduce", 3, 1024) is None
    assert TABLE.pick("reduce", 2, 1024) is None


def test_a_file_gives_back_what_was_written(tmp_path):
    TABLE.save(tmp_path / "deep" / "er" / "tuned.json")
    assert Tuned.load(tmp_path / "deep" / "er" / "tuned.json") == TABLE
    assert [path.name for path in (tmp_path / "deep" / "er").iterdir()] == ["tuned.json"]


def test_picks_are_by_size_however_they_were_written():
    told = json.loads(TABLE.as_text())
    told["picks"].reverse()
    assert Tuned.of_text(json.dumps(told)) == TABLE


def test_it_lies_in_the_users_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Tuned.path() == tmp_path / "simdist" / "tuned.json"
    assert Tuned.load(Tuned.path()) is None
    for value in ("", "not/absolute"):
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        assert Tuned.path().parts[-3:] == (".cache", "simdist", "tuned.json")


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", "[" * 100_000),
        *('{"format": "simdist tuned 2", "picks": []}', '{"format": "simdist tuned 1", "picks": [1]}'),
        '{"format": "simdist tuned 1", "picks": [{"num_bytes": Infinity, "shared": "", "own": ""}]}',
    ],
)
def test_what_is_no_table_is_refused(tmp_path, text):
    path = tmp_path / "tuned.json"
    path.write_text(text)
    with pytest.raises(DataError, match=r"tuned.json is no table of `simdist bench --tune`"):
        Tuned.load(path)


def test_bytes_that_are_no_text_are_refused(tmp_path):
    (tmp_path / "tuned.json").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="cannot be read"):
        Tuned.load(tmp_path / "tuned.json")
    assert json.loads(TABLE.as_text())["format"] == "simdist tuned 1"


def test_where_it_cannot_be_is_told(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="tuned.json cannot be written"):
        TABLE.save(tmp_path / "file" / "tuned.json")

    (tmp_path / "tuned.json").mkdir()
    with pytest.raises(DataError, match="tuned.json cannot be written"):
        TABLE.save(tmp_path / "tuned.json")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "tuned.json"]

    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(DataError, match="set XDG_CACHE_HOME or HOME"):
        Tuned.path()


def picked(comm, operation, num_bytes):
    shared, own = choose(operation, comm, num_bytes)
    return shared.name, own.name


def test_auto_goes_by_the_table_and_else_by_the_model():
    machine = preset("this-machine").with_(tuned=TABLE)
    for ranks, operation, num_bytes, found in [
        (2, "all_reduce", 1024, ("direct", "ring")),
        (2, "all_reduce", 1 << 22, ("direct", "direct")),
        (4, "all_reduce", 1 << 22, ("tree", "tree")),
        (3, "all_reduce", 1 << 22, ("direct", "direct")),
        (2, "broadcast", 64, ("direct", "direct")),  # the table names what this version does not know
    ]:
        assert set(run_virtual(picked, ranks, machine, (operation, num_bytes))[0]) == {found}
    nodes = machine.with_(devices_per_node=1)  # it was measured on one node
    assert run_virtual(picked, 2, nodes, ("all_reduce", 1024))[0][0] != ("direct", "ring")


@pytest.mark.parametrize(
    ("ranks", "operation", "num_bytes", "own"),
    [
        (2, "all_gather", (1 << 16) - 1, "direct"),
        (2, "all_gather", 1 << 16, "ring"),
        (3, "all_gather", 1 << 30, "direct"),
        (4, "all_to_all", 1 << 20, "pairwise"),
        (2, "all_reduce", (1 << 22) - 1, "direct"),
        (2, "all_reduce", 1 << 30, "ring"),
        (2, "reduce", 1 << 20, "linear"),
        (2, "reduce", 1 << 30, "direct"),
    ],
)
def test_without_a_table_arrays_in_own_memory_go_by_messages_where_staging_copies_too_much(
    ranks, operation, num_bytes, own
):
    machine = preset("this-machine").with_(tuned=None)
    assert set(run_virtual(picked, ranks, machine, (operation, num_bytes))[0]) == {("direct", own)}
