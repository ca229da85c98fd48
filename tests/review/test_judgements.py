"""Labels as CSV: out and in again is the same, whatever the cells hold, and a wrong file changes nothing."""

import csv
import io
from unittest.mock import ANY

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from esad.errors import DataFileError, InputError, OutputError
from esad.review.dataset import ReviewDataset
from esad.review.judgements import Opinion, parse_csv, write_csv
from esad.review.store import JudgementStore

NAMES = ["a,1", 'b"2', "c\n3", "=d()"]


def dataset(names=NAMES, id_name="serial"):
    return ReviewDataset(title="t", X=None, known=np.zeros(4, np.int8), names=names, id_name=id_name, cells=None)


def import_text(store, text, data):
    return store.import_lines(parse_csv(text, data, reviewer="me"), importer="me")


def opened(path):
    return JudgementStore(path, fingerprint="abc", n_rows=4)


@settings(max_examples=15)
@given(
    said=st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(["ann", "bob, c"]), st.sampled_from(["anomaly", "normal", "skip"]))
    ),
    note=st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    named=st.booleans(),
)
def test_out_and_in_again_is_the_same(said, note, named, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exchange")
    data = dataset() if named else dataset(None, "row")
    with opened(folder / "a.db") as first, opened(folder / "b.db") as second:
        for number, (row, who, verdict) in enumerate(said):
            first.judge(str(number), row, who, verdict)
        first.annotate("n", 1, "ann", note.replace("\r", " ").replace("\0", ""))
        text = write_csv(first.judgements, data)
        n_verdicts = sum(map(len, first.judgements.verdicts().values()))
        assert import_text(second, text, data).n_new == n_verdicts
        assert second.judgements.verdicts() == first.judgements.verdicts()
        notes = [{who: said.note for who, said in store.judgements.opinions(1).items()} for store in (first, second)]
        assert notes[0] == notes[1]
        n_entries = len(second)
        assert import_text(second, text, data) == (0, 0)  # once more: nothing new
        assert len(second) == n_entries


def test_a_short_file_of_other_people_will_do(tmp_path):
    with opened(tmp_path / "a.db") as store:
        assert import_text(store, "\ufefflabel,row\r\nAnomaly,2\r\n,1\r\n", dataset()).n_new == 1
        assert store.judgements.verdicts() == {2: {"me": "anomaly"}}
        rows = list(csv.reader(io.StringIO(write_csv(store.judgements, dataset()))))
        assert rows[0] == ["serial", "label", "reviewer", "note", "time", "imported_by"]
        assert rows[1][:4] == ["c\n3", "anomaly", "me", ""]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "needs the columns"),
        ("serial,verdict\n", "needs the columns"),
        ('serial,label\n"a,1",anomaly\nzzz,normal\n', "Line 3: there is no row 'zzz'"),
        ("row,label\n4,anomaly\n", "no row '4'"),
        ("row,label\n-1,anomaly\n", "no row '-1'"),
        ("row,label\n1,maybe\n", "anomaly, normal or skip"),
        ("row,label\n1\n", "1 cells"),
        ('row,label\n1,"anomaly\n', "CSV"),
        ("row,label,reviewer\n1,anomaly,a\x07b\n", "reviewer"),
    ],
)
def test_a_wrong_file_changes_nothing(tmp_path, text, words):
    with opened(tmp_path / "a.db") as store:
        with pytest.raises((DataFileError, InputError), match=words):
            import_text(store, text, dataset())
        assert len(store) == 0


@pytest.mark.parametrize(
    "note", ["=1+1", "+1 day", "-see scan", "@ann", "\t=1", "'=quoted", "''-twice", "plain", "-5", "'n"]
)
def test_notes_cannot_become_formulas_in_a_spreadsheet(tmp_path, note):
    with opened(tmp_path / "a.db") as first, opened(tmp_path / "b.db") as second:
        first.annotate("n", 1, "=ann()", note)
        text = write_csv(first.judgements, dataset())
        for cell in [cell for line in csv.reader(io.StringIO(text)) for cell in line]:
            assert not cell.startswith(("=", "+", "-", "@", "\t", "\r")) or cell == "-5"
        import_text(second, text, dataset())
        assert second.judgements.opinions(1)["=ann()"].note == note.strip()


@pytest.mark.parametrize("note", ["a;=1+1", "a\t=1", 'a "b"'])
def test_no_note_is_cut_in_two_by_another_separator(tmp_path, note):
    with opened(tmp_path / "a.db") as store:
        store.annotate("n", 1, "ann", note)
        assert '"{}"'.format(note.replace('"', '""')) in write_csv(store.judgements, dataset(None, "row"))


@pytest.mark.parametrize("head", ["row,row,label", "row,label,label", "serial,label,serial", "row,label,note,note"])
def test_a_column_that_is_there_twice_is_refused(head):
    with pytest.raises(DataFileError, match="one column"):
        parse_csv(f"{head}\n{','.join('1' * (head.count(',') + 1))}\n", dataset(), reviewer="me")


def test_an_import_names_who_brought_it(tmp_path):
    with opened(tmp_path / "a.db") as store:
        text = "row,label,reviewer,note\n1,anomaly,bob,\n2,normal,,so\n"
        assert import_text(store, text, dataset(None, "row")) == (2, 0)
        assert [store.judgements.opinions(row) for row in (1, 2)] == [
            {"bob": Opinion("anomaly", "", ANY, "me")},
            {"me": Opinion("normal", "so", ANY)},
        ]
        assert "1,anomaly,bob,," in write_csv(store.judgements, dataset(None, "row"))
    with opened(tmp_path / "a.db") as store:  # and it is there again
        assert store.judgements.opinions(1)["bob"].imported_by == "me"
        assert len(store) == 3


def test_a_verdict_and_its_note_have_their_own_importers(tmp_path):
    data = dataset(None, "row")
    with opened(tmp_path / "a.db") as store:
        import_text(store, "row,label,reviewer\n0,anomaly,ann\n", data)
        store.annotate("n", 0, "ann", "looks odd")
        store.judge("v", 1, "ann", "anomaly")
        import_text(store, "row,label,reviewer,note\n1,,ann,from a list\n2,,ann,a note alone\n", data)
        assert [store.judgements.opinions(row)["ann"] for row in range(3)] == [
            Opinion("anomaly", "looks odd", ANY, "me", ""),
            Opinion("anomaly", "from a list", ANY, "", "me"),
            Opinion(None, "a note alone", ANY, "me", "me"),
        ]


def test_an_import_leaves_what_a_reviewer_has_said_in_person(tmp_path):
    data = dataset(None, "row")
    with opened(tmp_path / "a.db") as store:
        store.judge("1", 0, "ann", "anomaly")
        store.annotate("2", 0, "ann", "mine")
        store.judge("3", 1, "me", "anomaly")
        import_text(store, "row,label,reviewer\n2,anomaly,ann\n", data)
        text = "row,label,reviewer,note\n0,normal,ann,his\n1,normal,me,\n2,normal,ann,\n3,normal,ann,\n3,skip,ann,\n"
        assert import_text(store, text, data) == (4, 1)
        assert store.judgements.opinions(0)["ann"] == Opinion("anomaly", "mine", ANY)
        assert store.judgements.verdicts() == {
            0: {"ann": "anomaly"},
            1: {"me": "normal"},  # whose import it is
            2: {"ann": "normal"},
            3: {"ann": "skip"},
        }


def test_a_note_that_its_reviewer_took_away_stays_away(tmp_path):
    data, text = dataset(None, "row"), "row,label,reviewer,note\n1,anomaly,ann,back again\n"
    with opened(tmp_path / "a.db") as store:
        store.annotate("1", 1, "ann", "mine")
        store.annotate("2", 1, "ann", "")
        assert import_text(store, text, data) == (1, 1)
        assert store.judgements.opinions(1)["ann"] == Opinion("anomaly", "", ANY, "me")
        store.import_lines(parse_csv(text, data, reviewer="ann"), importer="ann")  # who may
        assert store.judgements.opinions(1)["ann"].note == "back again"


def test_a_verdict_that_its_reviewer_undid_stays_undone(tmp_path):
    data, text = dataset(None, "row"), "row,label,reviewer,note\n0,anomaly,ann,\n1,normal,ann,with a note\n"
    with opened(tmp_path / "a.db") as store:
        store.judge("1", 0, "ann", "anomaly")
        store.undo("2", "ann")
        import_text(store, "row,label,reviewer\n1,normal,ann\n", data)
        store.undo("3", "ann")  # of what somebody else has imported, too
        assert import_text(store, text, data) == (0, 2)
        assert store.judgements.verdicts() == {}
        assert store.judgements.opinions(1)["ann"] == Opinion(None, "with a note", ANY, "me", "me")
    with opened(tmp_path / "a.db") as store:  # and when it is opened again
        assert import_text(store, text, data) == (0, 2)
        assert store.import_lines(parse_csv(text, data, reviewer="ann"), importer="ann") == (2, 0)  # who may
        assert store.judgements.verdicts() == {0: {"ann": "anomaly"}, 1: {"ann": "normal"}}


def test_an_import_is_whole_or_nothing(tmp_path):
    """Of a disk that fills up on the way, and of very many labels."""
    n_rows = 20_000
    data = ReviewDataset(title="t", X=None, known=np.zeros(n_rows, np.int8), names=None, id_name="row", cells=None)
    lines = parse_csv("row,label\n" + "".join(f"{row},normal\n" for row in range(n_rows)), data, reviewer="me")
    with JudgementStore(tmp_path / "a.db", fingerprint="abc", n_rows=n_rows) as store:
        store._database.execute("pragma max_page_count = 40")
        with pytest.raises(OutputError, match="full"):
            store.import_lines(lines, importer="me", tell=(told := []).append)
        assert (len(store), store.judgements.verdicts()) == (0, {})
        assert 0 < told[-1] < n_rows  # told is what was written
        store._database.execute("pragma max_page_count = 1000000")
        told = []
        assert store.import_lines(lines, importer="me", tell=told.append) == (n_rows, 0)
        assert told[-1] == n_rows
        assert len(store) == n_rows
