"""Data to learn from, as Python gets it: roles, labels, ids, what looks odd, and a fit that keeps them."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support import methods, tiny

import esad
from esad import IsolationForest, TrainingData
from esad.detectors.opening import join_truth, open_source
from esad.errors import DataFileError, InputError, LabelError
from esad.table import statistics

N_ROWS = 60


@pytest.fixture
def payments(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "serial": [f"S{row:03d}" for row in range(N_ROWS)],
            "amount": rng.normal(size=N_ROWS).round(3),
            "kind": rng.choice(["a", "b"], N_ROWS),
            "verdict": ["fraud" if row in (3, 9) else "fine" if row == 5 else None for row in range(N_ROWS)],
        }
    )
    table.to_csv(tmp_path / "payments.csv", index=False)
    return tmp_path / "payments.csv"


ROLES = {"label_column": "verdict", "id_column": "serial", "anomaly_value": "fraud", "normal_value": "fine"}


def test_a_file_gives_features_labels_and_names(payments):
    data = TrainingData.from_file(payments, **ROLES)
    assert data.X.column_names == ["amount", "kind"]
    assert (np.flatnonzero(data.y < 0).tolist(), np.flatnonzero(data.y > 0).tolist()) == ([3, 9], [5])
    assert (data.name_of(9), data.id_name, data.kind, data.n_rows) == ("S009", "serial", "table", N_ROWS)
    assert data.label_counts() == esad.labels.LabelCounts(2, N_ROWS - 3, 1)


def test_blank_categories_of_a_parquet_file_are_unlabelled_and_no_truth(payments):
    file = payments.with_suffix(".parquet")
    pd.read_csv(payments).astype({"verdict": "category", "serial": "category"}).to_parquet(file)
    data = TrainingData.from_file(file, **ROLES)
    forest = data.fit(IsolationForest(random_state=0))
    for known in (data, TrainingData.for_model(file, forest)):
        assert known.label_counts() == esad.labels.LabelCounts(2, N_ROWS - 3, 1)
        assert known.name_of(9) == "S009"
    source = open_source(file, forest, truth_column="verdict")
    words = join_truth(block.truth for block in source)
    assert [(row, word) for row, word in enumerate(words) if word] == [(3, "fraud"), (5, "fine"), (9, "fraud")]


def test_what_looks_odd_is_a_warning_in_python_and_names_parameters(payments):
    with pytest.warns(UserWarning, match=r"'label' is learned from .*`label_column='label'` or `ignore=\['label'\]`"):
        pd.read_csv(payments).assign(label=1.5).to_csv(payments, index=False)
        TrainingData.from_file(payments, ignore=["verdict", "serial"])
    remarks = []
    TrainingData.from_file(payments, ignore=["verdict", "serial"], on_remark=remarks.append)
    assert [remark.kind for remark in remarks] == ["warning"]
    data = TrainingData.from_file(payments, ignore="verdict", text="label", on_remark=remarks.append)  # one name alone
    assert {column.name: column.kind for column in data.schema.columns}["label"] == "category"
    assert "verdict" not in data.X.column_names


def test_columns_are_checked_with_the_names_of_parameters(payments):
    with pytest.raises(DataFileError, match=r"has no column 'verdit' \(`label_column`\). Did you mean 'verdict'"):
        TrainingData.from_file(payments, label_column="verdit")
    with pytest.raises(InputError, match="named twice among `label_column`"):
        TrainingData.from_file(payments, label_column="verdict", ignore=["verdict"])
    with pytest.raises(InputError, match="`labels_csv` is for a folder"):
        TrainingData.from_file(payments, labels_csv=payments)


def test_a_fit_keeps_the_roles_for_scoring(payments, tmp_path):
    data = TrainingData.from_file(payments, **ROLES)
    forest = data.fit(IsolationForest(random_state=0))
    by_hand = IsolationForest(random_state=0).fit(data.X, data.y)
    assert forest.threshold_ == by_hand.threshold_
    roles = {"ignored_columns": [], "label_column": "verdict", "id_column": "serial"}
    assert roles.items() <= forest.notes_.items()
    assert forest.notes_["training_data"] == [str(payments)]
    found = esad.score_file(forest, payments, tmp_path / "scores.csv", top=2)
    scores = pd.read_csv(tmp_path / "scores.csv")
    assert scores["serial"].tolist() == data.ids
    assert scores["score"].to_numpy() == pytest.approx(by_hand.anomaly_score(data.X))
    assert found.worst.ids == scores.nlargest(2, "score")["serial"].tolist()


def test_rows_for_a_model_come_in_its_columns_with_the_labels_of_its_training(payments, tmp_path):
    forest = TrainingData.from_file(payments, **ROLES).fit(IsolationForest(random_state=0))
    moved = pd.read_csv(payments)[["verdict", "kind", "serial", "amount"]]
    pq.write_table(pa.Table.from_pandas(moved), tmp_path / "moved.parquet")
    data = TrainingData.for_model(tmp_path / "moved.parquet", forest, anomaly_value="fraud", normal_value="fine")
    assert data.X.column_names == ["amount", "kind"]
    assert (data.ids[9], data.y[9], data.y[5], data.y[0]) == ("S009", -1, 1, 0)


def test_data_in_parts_is_read_once_and_refused_early(payments, monkeypatch):
    monkeypatch.setattr("esad.detectors.training.data_limit", lambda: 125.0)
    network = esad.ESAD(n_members=1, n_epochs=1, random_state=3, contamination=0.1)
    stages = set()
    data = TrainingData.from_file(
        payments, **ROLES, stream=None, detector=network, on_progress=lambda stage, more, of: stages.add(stage)
    )
    assert (data.survey.seed, data.n_rows, stages) == (3, N_ROWS, {"looking", "reading"})
    assert data.fit(network).label_counts_.n_anomaly == 2
    with pytest.raises(InputError, match="cannot learn from a stream"):
        TrainingData.from_file(payments, **ROLES, stream=True, detector=IsolationForest())


def test_a_threshold_that_the_rows_cannot_bear_is_refused_before_the_training(payments):
    data = TrainingData.from_file(payments, **ROLES)
    with pytest.raises(InputError, match="`n_members="):
        data.check_rule(esad.Threshold("false_alarm", 0.02), esad.ESAD(n_members=1))
    data.check_rule(esad.Threshold("false_alarm", 0.02), esad.ESAD(n_members=10))
    with pytest.raises(InputError, match="not both"):
        data.check_rule(None, esad.ESAD(), calibration_ratio=0.5, cross_calibration=True)


def test_a_method_that_needs_labels_is_refused_where_nothing_says_any(payments):
    data = TrainingData.from_file(payments, ignore=["verdict"], id_column="serial")
    with pytest.raises(LabelError, match=r"nothing says which these are\. Give `label_column`, or take a method"):
        data.check_rule(None, esad.BaggedTrees())
    data.check_rule(None, esad.Committee())


@pytest.mark.parametrize("name", methods())
def test_cross_calibration_is_refused_where_it_cannot_be_and_only_there(payments, name):
    data, detector = TrainingData.from_file(payments, **ROLES), tiny(name)
    try:
        data.check_rule(None, detector, cross_calibration=True)
    except InputError:
        with pytest.raises(InputError, match="has seen all of its training rows"):
            data.fit(detector, cross_calibration=True, on_remark=lambda remark: None)
    else:
        data.fit(detector, cross_calibration=True, on_remark=lambda remark: None)
        assert detector.calibration_.kind == "cross"


@pytest.mark.parametrize("ids", [{"id_column": "serial"}, {}])
def test_the_rows_of_a_file_are_counted_once(payments, monkeypatch, ids):
    """Also where a column of ids is found and left out; the model is that of the same rows as a table."""
    calls = []
    count, infer = statistics._count_columns, statistics.ColumnStatistics.column
    monkeypatch.setattr(statistics, "_count_columns", lambda *args, **how: calls.append(1) or count(*args, **how))
    inferred = []
    monkeypatch.setattr(
        statistics.ColumnStatistics, "column", lambda self, n_rows: inferred.append(self.name) or infer(self, n_rows)
    )
    roles = {"label_column": "verdict", "anomaly_value": "fraud", "normal_value": "fine", **ids}
    data = TrainingData.from_file(payments, on_remark=lambda remark: None, **roles)
    forest = data.fit(IsolationForest(random_state=0))
    assert len(calls) == 1
    assert len(inferred) == len(set(inferred))  # each column once
    again = IsolationForest(random_state=0).fit(data.X, data.y)
    assert (forest.anomaly_score(data.X) == again.anomaly_score(data.X)).all()
    assert forest.inputs_.schema == again.inputs_.schema == data.schema


def test_known_normal_rows_in_words_are_no_doubt(tmp_path):
    pd.DataFrame({"a": np.arange(40) % 7, "b": ["normal", *[None] * 39]}).to_csv(tmp_path / "rows.csv", index=False)
    data = TrainingData.from_file(tmp_path / "rows.csv", label_column="b")
    assert data.fit(IsolationForest(random_state=0)).label_counts_.n_normal == 1  # warnings are errors here


def test_labels_that_leave_little_to_learn_from_are_told_once(tmp_path):
    file = tmp_path / "all.csv"
    file.write_text("a,label\n" + "".join(f"{row % 7},normal\n" for row in range(40)))
    with pytest.warns(UserWarning, match="every row is labelled.*`unlabelled_value`") as told:
        TrainingData.from_file(file, label_column="label").fit(IsolationForest(random_state=0))
    assert len(told) == 1
    file.write_text("a\n" + "".join(f"{row}\n" for row in range(8)))
    with pytest.warns(UserWarning, match="8 unlabelled rows to learn from"):
        TrainingData.from_file(file).fit(IsolationForest(random_state=0))


def test_known_anomalies_that_the_automatic_threshold_misses_are_told(tmp_path):
    """The rows nearest to the middle are labelled as anomalies, for a method that cannot learn them."""
    cloud = np.random.default_rng(0).normal(size=(80, 2)).round(4)
    middle = set(np.argsort((cloud**2).sum(axis=1))[:4].tolist())
    lines = [f"{a},{b},{'anomaly' if row in middle else ''}" for row, (a, b) in enumerate(cloud)]
    (tmp_path / "cloud.csv").write_text("\n".join(["a,b,label", *lines]))
    data, remarks = TrainingData.from_file(tmp_path / "cloud.csv", label_column="label"), []
    with pytest.warns(UserWarning, match="flags 0 of the 4 labelled anomalies.*`from_labels`"):
        data.fit(IsolationForest(random_state=0))
    data.fit(IsolationForest(random_state=0), rule=esad.Threshold("labels"), on_remark=remarks.append)
    data.fit(IsolationForest(contamination=0.1, random_state=0), on_remark=remarks.append)
    assert remarks == []
