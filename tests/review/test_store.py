"""The journal: nothing acknowledged is lost, nothing is entered twice, and what follows from it is what was said."""

import sqlite3
from contextlib import closing

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from esad.errors import DataFileError, InputError, OutputError
from esad.review.store import JudgementStore

N_ROWS = 6


def opened(path, **changes):
    return JudgementStore(path, **({"fingerprint": "abc", "n_rows": N_ROWS} | changes))


@pytest.fixture
def store(tmp_path):
    with opened(tmp_path / "labels.db") as found:
        yield found


steps = st.lists(
    st.tuples(
        st.sampled_from(["ann", "bob"]),
        st.sampled_from(["anomaly", "normal", "skip", "undo", "note"]),
        st.integers(0, N_ROWS - 1),
    ),
    max_size=25,
)


@given(steps=steps)
@settings(max_examples=15)
def test_the_state_is_that_of_a_plain_list_of_steps_also_after_reopening(steps, tmp_path_factory):
    path = tmp_path_factory.mktemp("store") / "labels.db"
    said: list[tuple[str, str, int]] = []
    notes: dict[tuple[int, str], str] = {}
    with opened(path) as store:
        for number, (who, what, row) in enumerate(steps):
            if what == "undo":
                mine = [index for index, one in enumerate(said) if one[0] == who]
                made = store.undo(f"r{number}", who)
                assert (made is None) == (not mine)
                if mine:
                    assert made.row == said[mine[-1]][2]
                    del said[mine[-1]]
            elif what == "note":
                store.annotate(f"r{number}", row, who, f"note {number}")
                notes[row, who] = f"note {number}"
            else:
                store.judge(f"r{number}", row, who, what)
                said.append((who, what, row))
        before = store.judgements.verdicts()
    expected = {row: {who: what for who, what, of in said if of == row} for row in range(N_ROWS)}
    expected = {row: found for row, found in expected.items() if found}
    assert before == expected
    with opened(path) as store:
        assert store.judgements.verdicts() == expected
        for row in range(N_ROWS):
            for who, opinion in store.judgements.opinions(row).items():
                assert opinion.verdict == expected.get(row, {}).get(who)
                assert opinion.note == notes.get((row, who), "")
        for row, label in enumerate(store.judgements.labels()):
            words = {what for what in expected.get(row, {}).values() if what != "skip"}
            assert label == {frozenset(): 0, frozenset({"anomaly"}): -1, frozenset({"normal"}): 1}.get(
                frozenset(words), 0
            )
        clash = [row for row, found in expected.items() if {"anomaly", "normal"} <= set(found.values())]
        assert store.judgements.disagreements() == clash


def test_a_request_sent_again_is_the_same_entry(store):
    first = store.judge("r", 2, "ann", "anomaly")
    assert store.judge("r", 2, "ann", "anomaly") == first
    undone = store.undo("u", "ann")
    assert store.undo("u", "ann") == undone
    assert len(store) == 2
    assert store.judgements.verdicts() == {}


def test_a_request_id_is_for_one_request_only(store):
    store.judge("r", 2, "ann", "anomaly")
    for call in (
        lambda: store.judge("r", 3, "ann", "anomaly"),
        lambda: store.judge("r", 2, "ann", "normal"),
        lambda: store.judge("r", 2, "bob", "anomaly"),
        lambda: store.undo("r", "ann"),
    ):
        with pytest.raises(InputError, match="used before"):
            call()
    assert len(store) == 1


def test_undo_brings_the_verdict_before_back(store):
    store.judge("1", 2, "ann", "anomaly")
    store.judge("2", 2, "ann", "normal")
    store.undo("3", "ann")
    assert store.judgements.verdicts() == {2: {"ann": "anomaly"}}


def test_reviewers_do_not_undo_each_other(store):
    store.judge("1", 2, "ann", "anomaly")
    store.judge("2", 3, "bob", "normal")
    assert store.undo("3", "ann").row == 2
    assert store.undo("4", "ann") is None
    assert store.judgements.verdicts() == {3: {"bob": "normal"}}


def test_labels_of_the_file_stand_until_somebody_speaks(store):
    known = np.array([-1, -1, 1, 0, 1, 0], dtype=np.int8)
    store.judge("1", 0, "ann", "normal")
    store.judge("2", 1, "ann", "skip")
    store.judge("3", 4, "ann", "normal")
    store.judge("4", 4, "bob", "anomaly")
    assert store.judgements.labels(known).tolist() == [1, -1, 1, 0, 0, 0]
    assert known.tolist() == [-1, -1, 1, 0, 1, 0]


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.judge("r", -1, "ann", "anomaly"),
        lambda store: store.judge("r", N_ROWS, "ann", "anomaly"),
        lambda store: store.judge("r", 0, "ann", "odd"),
        lambda store: store.judge("r", 0, "ann", "note"),
        lambda store: store.judge("", 0, "ann", "anomaly"),
        lambda store: store.judge("r" * 99, 0, "ann", "anomaly"),
        lambda store: store.judge("r", 0, "", "anomaly"),
        lambda store: store.judge("r", 0, "a\nb", "anomaly"),
        lambda store: store.annotate("r", 0, "ann", "x" * 2001),
    ],
)
def test_what_cannot_be_is_not_entered(store, call):
    with pytest.raises(InputError):
        call(store)
    assert len(store) == 0


def test_the_labels_of_a_model_are_kept(store):
    known = np.array([0, -1, 0, 1, 0, 0], dtype=np.int8)
    store.remember_fit("m", known)
    assert store.labels_of_fit("m").tolist() == known.tolist()
    assert store.labels_of_fit("other") is None


@pytest.mark.parametrize("changes", [{"fingerprint": "other"}, {"n_rows": 7}])
def test_a_store_of_other_data_is_refused(tmp_path, changes):
    with opened(tmp_path / "labels.db") as store:
        store.judge("r", 0, "ann", "anomaly")
    with pytest.raises(DataFileError, match="belong to other data"):
        opened(tmp_path / "labels.db", **changes)
    with opened(tmp_path / "labels.db") as store:
        assert len(store) == 1


def test_two_pages_over_one_store_are_refused(tmp_path):
    with opened(tmp_path / "labels.db"), pytest.raises(OutputError, match="in use"):
        opened(tmp_path / "labels.db")


def test_other_files_are_refused_and_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("not a database, but longer than a header of one hundred bytes" * 9)
    with pytest.raises(DataFileError, match="damaged or something else"):
        opened(tmp_path / "notes.txt")
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("create table mine (x)")
    other.close()
    before = (tmp_path / "other.db").read_bytes()
    with pytest.raises(DataFileError, match="something else"):
        opened(tmp_path / "other.db")
    assert (tmp_path / "other.db").read_bytes() == before
    with pytest.raises(OutputError, match="folder"):
        opened(tmp_path)
    with pytest.raises(OutputError, match="cannot be opened"):
        opened(tmp_path / "no" / "labels.db")


@pytest.mark.parametrize("begun", ["", "pragma journal_mode = wal"])
def test_a_store_whose_making_was_cut_off_is_made(tmp_path, begun):
    """By a kill or a full disk, before its first transaction was on the disk."""
    path = tmp_path / "labels.db"
    path.touch()
    with closing(sqlite3.connect(path)) as database:
        database.execute(begun)
    with opened(path) as store:
        store.judge("r", 0, "ann", "anomaly")
        assert "-" not in store.name


def test_a_damaged_store_is_refused(tmp_path):
    path = tmp_path / "labels.db"
    with opened(path) as store:
        for number in range(200):
            store.judge(f"r{number}", number % N_ROWS, "ann", "anomaly")
    data = bytearray(path.read_bytes())
    data[4096 : len(data)] = b"\xff" * (len(data) - 4096)
    path.write_bytes(data)
    with pytest.raises(DataFileError, match="damaged"):
        opened(path)


@pytest.mark.parametrize(
    "damage",
    [
        "update journal set reviewer = cast(x'ff' as text)",
        "pragma writable_schema = 1; update sqlite_schema set sql = cast(x'637265ff' as text) where name = 'fits'",
    ],
)
def test_text_that_cannot_be_decoded_is_damage(tmp_path, damage):
    path = tmp_path / "labels.db"
    with opened(path) as store:
        store.judge("r", 0, "ann", "anomaly")
    with closing(sqlite3.connect(path)) as database:
        database.executescript(damage)
        database.commit()
    with pytest.raises(DataFileError, match="damaged"):
        opened(path)


def test_a_newer_store_is_refused(tmp_path):
    path = tmp_path / "labels.db"
    opened(path).close()
    with sqlite3.connect(path) as database:
        database.execute("pragma user_version = 99")
    database.close()
    with pytest.raises(DataFileError, match="newer"):
        opened(path)


def test_a_file_of_the_first_format_is_taken_over(tmp_path):
    path = tmp_path / "old.db"
    with JudgementStore(path, fingerprint="abc", n_rows=4) as store:
        store.judge("r", 2, "ann", "anomaly")
    with closing(sqlite3.connect(path)) as database:
        database.execute("alter table journal drop column imported_by")
        database.execute("pragma user_version = 1")
        database.commit()
    with JudgementStore(path, fingerprint="abc", n_rows=4) as store:
        store.judge("s", 3, "bob", "normal")
        assert store.judgements.verdicts() == {2: {"ann": "anomaly"}, 3: {"bob": "normal"}}
