"""Scoring a file: the same rows whatever the blocks, the worst among them, and nothing half written."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from esad import Autoencoder, IsolationForest, TrainingData, score_file
from esad.advice.labels import advise_on_labels
from esad.detectors.model_file import load
from esad.detectors.opening import Block, Source
from esad.detectors.scored_file import AlarmRule, Worst, calibrate_on_file, score_source
from esad.errors import DataFileError, InputError, OutputError
from esad.io.files import read_table
from esad.report.explained import explain_file


@pytest.fixture(scope="module")
def forest():
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(400, 3)), columns=list("abc"))
    return IsolationForest(random_state=0).fit(X, calibration_ratio=0.5)


@pytest.fixture(scope="module")
def rows():
    return pd.DataFrame(np.random.default_rng(1).normal(size=(100, 3)), columns=list("abc"))


def source_of(rows, n_rows):
    def read():
        for first in range(0, len(rows), n_rows):
            some = pa.Table.from_pandas(rows[first : first + n_rows], preserve_index=False)
            yield Block(some, None, None, some.num_rows)

    return Source(read)


@pytest.mark.parametrize("wanted", [{}, {"alpha": 0.1}, {"fdr": 0.5}])
def test_blocks_of_any_length_give_the_same(forest, rows, tmp_path, wanted):
    rule, found = AlarmRule.of(forest, **wanted), []
    for n_rows in (100, 7):
        out = tmp_path / f"{n_rows}.csv"
        found.append(score_source(forest, source_of(rows, n_rows), rule, out, top=9))
    whole, cut = found
    assert whole.out.read_bytes() == cut.out.read_bytes()
    assert whole.to_json() | {"out": None} == cut.to_json() | {"out": None}
    assert whole.worst.X.to_pylist() == cut.worst.X.to_pylist()
    assert whole.worst.rows.tolist() == np.argsort(-forest.anomaly_score(rows), kind="stable")[:9].tolist()


def test_the_worst_keeps_earlier_rows_of_equal_score():
    worst, scores = Worst(3), np.array([1.0, 5.0, 1.0, 5.0])
    for _ in range(2):
        worst.add(Block(pa.table({"a": scores}), None, None, 4), scores)
    assert (worst.rows.tolist(), worst.ids, worst.scores.tolist()) == ([1, 3, 5], [1, 3, 5], [5.0] * 3)
    assert worst.to_json(AlarmRule(2.0, None), "row")[0] == {"row": 1, "score": 5.0, "anomaly": True}


def test_a_folder_of_tables_is_scored_as_one_and_its_files_are_not_overwritten(forest, rows, tmp_path):
    for number in range(2):
        rows[50 * number : 50 * number + 50].to_csv(tmp_path / f"{number}.csv", index=False)
    found = score_file(forest, tmp_path, top=3)
    assert found.n_rows == 100
    assert found.worst.rows.tolist() == np.argsort(-forest.anomaly_score(rows), kind="stable")[:3].tolist()
    with pytest.raises(OutputError, match="it is a file being read"):
        score_file(forest, tmp_path, tmp_path / "1.csv")


def test_the_columns_of_a_file_are_checked_and_odd_ones_told(forest, rows, tmp_path):
    file = tmp_path / "rows.csv"
    rows.assign(more=1).to_csv(file, index=False)
    with pytest.warns(UserWarning, match="columns that were not in training are ignored: 'more'"):
        assert score_file(forest, file).n_rows == 100
    with pytest.raises(DataFileError, match=r"\(`id_column`\)"):
        score_file(forest, file, id_column="nmae")
    with pytest.raises(OutputError, match="a file being read"):
        score_file(forest, file, file, on_remark=lambda remark: None)
    with pytest.raises(InputError, match="Give `alpha` or `fdr`, not both"):
        score_file(forest, file, alpha=0.1, fdr=0.1)


def test_a_refusal_at_the_end_leaves_no_scores(forest, rows, tmp_path):
    def refuse():
        raise DataFileError("changed")

    with pytest.raises(DataFileError, match="changed"):
        score_source(forest, source_of(rows, 50), AlarmRule.of(forest), tmp_path / "s.csv", before_end=refuse)
    assert not list(tmp_path.iterdir())


def test_numbers_are_read_as_they_were_written_in_training(tmp_path):
    lines = [f"{row % 50 + 1}.234,50;{row % 7}" for row in range(200)]
    training, later = tmp_path / "training.csv", tmp_path / "later.csv"
    training.write_text("\n".join(["amount;count", *lines]))
    model = TrainingData.from_file(training).fit(IsolationForest(random_state=0))
    later.write_text("amount;count\n50.000;2\n")
    score_file(model, later, tmp_path / "scores.csv")
    wanted = model.anomaly_score(pd.DataFrame({"amount": [50_000.0], "count": [2]}))
    assert pd.read_csv(tmp_path / "scores.csv")["score"].tolist() == pytest.approx(wanted.tolist())
    later.write_text("amount;count\n50.5;2\n")
    with pytest.raises(DataFileError, match="those of the training had decimal commas"):
        score_file(model, later)


@pytest.mark.parametrize(
    ("trained", "scored", "told"), [("%", "", "has no %"), ("", " %", "has % signs"), ("%", "%", "")]
)
def test_per_cent_in_one_file_and_not_in_the_other_is_told(tmp_path, trained, scored, told):
    training, later = tmp_path / "training.csv", tmp_path / "later.csv"
    training.write_text("\n".join(["share,count", *(f"{row % 50 / 10}{trained},{row % 7}" for row in range(60))]))
    model = TrainingData.from_file(training).fit(IsolationForest(random_state=0))
    model.save(tmp_path / "m.esad")
    later.write_text(f"share,count\n,1\n3.5{scored},2\n")
    remarks = []
    score_file(load(tmp_path / "m.esad"), later, on_remark=remarks.append)
    assert [told in remark.text for remark in remarks] == [True] * bool(told)


def test_the_index_that_pandas_writes_is_pointed_at_and_names_the_rows_though_it_has_no_name(rows, tmp_path):
    file, remarks = tmp_path / "t.csv", []
    rows.sample(frac=1, random_state=0).to_csv(file)
    TrainingData.from_file(file, on_remark=remarks.append)
    assert [remark.text[:43] for remark in remarks] == ["column '' is called as pandas calls its ind"]
    model = TrainingData.from_file(file, id_column="").fit(IsolationForest(random_state=0))
    found = score_file(model, file, tmp_path / "s.csv", top=1)
    scores = pd.read_csv(tmp_path / "s.csv", index_col=0)["score"]
    assert (found.id_name, found.worst.ids) == ("", [str(scores.idxmax())])
    assert scores.sort_index().tolist() == pytest.approx(model.anomaly_score(rows).tolist())


@pytest.mark.parametrize("ids", [["a", "a", "b"], ["a", "", "b"], ["a", "c", "b"]])
def test_ids_that_do_not_tell_rows_apart_keep_the_row_number(tmp_path, ids):
    file = tmp_path / "t.csv"
    file.write_text(
        "\n".join(["name,size", *(f"{name},{row}" for row, name in enumerate(ids * 10 if ids[1] != "c" else ids))])
    )
    detector = IsolationForest(random_state=0).fit(pa.table({"size": [0.0, 1.0, 2.0, 3.0]}))
    found = score_file(detector, file, tmp_path / "s.csv", id_column="name", top=1)
    header, first, *_ = (tmp_path / "s.csv").read_text().splitlines()
    is_numbered = ids[1] != "c"
    assert header == "name,score,anomaly" + (",row" if is_numbered else "")
    assert first.endswith(",0") == is_numbered
    assert ("row" in found.to_json()["top"][0]) == is_numbered
    explained = explain_file(detector, file, id_column="name", top=1)
    explained.write(tmp_path / "why.csv")
    assert ("(row " in explained.name(0), "row" in explained.to_json()[0]) == (is_numbered, is_numbered)
    assert ("row" in pd.read_csv(tmp_path / "why.csv").columns) == is_numbered
    rows = TrainingData.for_model(file, detector, id_column="name")
    advise_on_labels(detector, rows, n=1, quick=True).write_csv(tmp_path / "next.csv")
    assert ("row" in pd.read_csv(tmp_path / "next.csv").columns) == is_numbered


@pytest.mark.parametrize(
    "type_", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())], ids=str
)
def test_text_of_any_type_names_rows_and_goes_along_with_its_commas(tmp_path, type_):
    texts = pa.array([f"x, {number}" for number in range(60)])
    texts = texts.dictionary_encode() if pa.types.is_dictionary(type_) else texts.cast(type_)
    sizes = np.random.default_rng(0).normal(size=60)
    pq.write_table(pa.table({"size": sizes, "name": texts}), tmp_path / "rows.parquet")
    data = TrainingData.from_file(tmp_path / "rows.parquet", id_column="name")
    forest = data.fit(IsolationForest(random_state=0, contamination=0.01))
    for with_data in (False, True):
        found = score_file(forest, tmp_path / "rows.parquet", tmp_path / "scores.csv", top=60, with_data=with_data)
        assert not found.row_numbers and sorted(found.worst.ids) == sorted(texts.to_pylist())
        assert read_table(tmp_path / "scores.csv")["name"].to_pylist() == texts.to_pylist()


def test_bytes_that_are_no_text_go_along_as_such(tmp_path):
    table = pa.table({"size": np.arange(30.0), "raw": pa.array([b"a,", b"\xff"] * 15), "place": ["x", "y"] * 15})
    pq.write_table(table, tmp_path / "rows.parquet")
    forest = IsolationForest(random_state=0).fit(table)
    score_file(forest, tmp_path / "rows.parquet", tmp_path / "scores.csv", with_data=True)
    assert read_table(tmp_path / "scores.csv")["raw"].to_pylist() == ["a,", "\N{REPLACEMENT CHARACTER}"] * 15


def test_a_blank_id_of_any_type_of_text_has_rows_numbered(tmp_path):
    names = pa.array([*(f"n{number}" for number in range(30)), " "], pa.large_string())
    pq.write_table(pa.table({"size": np.arange(31.0), "name": names}), tmp_path / "rows.parquet")
    forest = IsolationForest(random_state=0).fit(pa.table({"size": np.arange(31.0)}))
    assert score_file(forest, tmp_path / "rows.parquet", id_column="name", top=1).row_numbers


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_progress_of_a_file_that_is_read_ahead_of_its_scores_ends_with_it_and_not_before(tmp_path, name):
    sizes = np.random.default_rng(0).normal(size=200_000)
    pd.DataFrame({"size": sizes, "note": "not learned from"}).to_csv(tmp_path / name, index=False)
    detector = IsolationForest(random_state=0).fit(pa.table({"size": sizes[:50]}))
    told = []
    score_file(detector, tmp_path / name, on_progress=lambda *now: told.append(now[1:]), on_remark=lambda remark: None)
    assert len(told) == 4 and sum(n for n, _ in told) == 200_000
    assert [total for _, total in told] == pytest.approx([200_000] * 4, rel=0.2)


def test_cells_go_along_as_they_are_written_with_the_separator_and_decimal_mark_of_the_file(tmp_path):
    lines = [f"{row};0{8000 + row};{row % 7},5 \N{EURO SIGN};{row % 28 + 1}.2.2024;NA" for row in range(40)]
    (tmp_path / "t.csv").write_text("\n".join(["name;zip;sum;day;seen", *lines, '"a;b";08776;457,48 \N{EURO SIGN};;']))
    detector = TrainingData.from_file(tmp_path / "t.csv", id_column="name").fit(IsolationForest(random_state=0))
    plain = pd.read_csv(score_file(detector, tmp_path / "t.csv", tmp_path / "plain.csv").out)
    found = score_file(detector, tmp_path / "t.csv", tmp_path / "s.csv", with_data=True).out
    written = pd.read_csv(found, sep=";", decimal=",", dtype={"zip": str}, keep_default_na=False)
    assert list(written.columns) == ["line", "name", "zip", "sum", "day", "seen", "score", "anomaly", "reasons"]
    assert [";".join(row) for row in written.iloc[:40, 1:6].astype(str).to_numpy()] == lines
    assert written.iloc[40, 1:6].tolist() == ["a;b", "08776", "457,48 \N{EURO SIGN}", "", ""]
    assert written["score"].tolist() == plain["score"].tolist()
    as_sheet = read_table(score_file(detector, tmp_path / "t.csv", tmp_path / "s.parquet", with_data=True).out)
    assert as_sheet.slice(40).select(["zip", "sum"]).to_pylist() == [{"zip": "08776", "sum": 457.48}]


def test_reasons_are_worth_a_tenth_of_the_largest_and_expect_a_text_that_most_rows_like_it_have(tmp_path):
    rng = np.random.default_rng(0)
    shop = [f"shop{row % 40}" if row < 1200 else f"new{row}" for row in range(1260)]
    client = [None if row % 8 == 0 else f"K{row % 20}" for row in range(1260)]
    frame = pd.DataFrame({"size": rng.normal(size=1260), "load": rng.normal(size=1260), "shop": shop, "client": client})
    frame.to_csv(tmp_path / "t.csv", index=False)
    detector = TrainingData.from_file(tmp_path / "t.csv").fit(Autoencoder(n_epochs=3, random_state=0))
    odd = pd.DataFrame({"size": [90.0, 0.1], "load": 0.0, "shop": ["shop3", "new1204"], "client": ["K5", "K25"]})
    reasons = detector.explain(odd)
    column = {name: index for index, name in enumerate(reasons.columns)}
    assert reasons.expected[:, column["shop"]].tolist() == ["shop3", "(a usual one)"]
    assert not any(cell is None or "(" in cell for cell in reasons.expected[:, column["client"]])
    odd.to_csv(tmp_path / "odd.csv", index=False)
    score_file(detector, tmp_path / "odd.csv", tmp_path / "s.csv", with_data=True, on_remark=lambda remark: None)
    told = pd.read_csv(tmp_path / "s.csv")["reasons"].str.count(";") + 1
    n_worth_it = (reasons.total > 0.1 * reasons.total.max(axis=1, keepdims=True)).sum(axis=1)
    assert told.tolist() == np.minimum(n_worth_it, 3).tolist() and n_worth_it.min() < 3


def test_rows_to_calibrate_on_that_are_a_shuffled_part_of_the_training_are_warned_about(tmp_path):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"size": rng.normal(size=1500), "place": rng.choice(["x", "y"], 1500)})
    X[:1000].to_csv(tmp_path / "t.csv", index=False)
    detector = TrainingData.from_file(tmp_path / "t.csv").fit(IsolationForest(random_state=0))
    detector.save(tmp_path / "m.esad")
    told = []
    for first, is_warned in ((700, True), (1000, False)):
        X[first : first + 500].sample(frac=1, random_state=0).to_csv(tmp_path / "c.csv", index=False)
        told.clear()
        calibrate_on_file(load(tmp_path / "m.esad"), tmp_path / "c.csv", on_remark=told.append)
        assert ["that the model was trained on" in remark.text for remark in told] == [True] * is_warned
    repeated = IsolationForest(random_state=0).fit(np.arange(100.0)[:, None] % 7)
    assert repeated.sketch_ == []  # new rows are like them by chance
