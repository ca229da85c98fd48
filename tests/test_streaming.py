"""Fits on data that is read in parts: like those on all rows at once, resumable, in bounded memory."""

import json
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score
from support import tiny

import esad
from esad import ESAD, registry, streaming
from esad.cli.app import run
from esad.data import scenario
from esad.data.parts import find_tables
from esad.data.sample import Sample, priorities
from esad.data.stream import open_stream
from esad.errors import DataFileError, InputError, LabelError
from esad.persist.checkpoint import Checkpoint
from esad.streaming import Portion, Refill, Survey
from esad.train.callbacks import StopTraining

WORDS = {-1: "anomaly", 0: None, 1: "normal"}


def write_parts(folder, X, y=None, *, n_parts=3, group_rows=50, suffix=".parquet"):
    """Rows as Parquet or CSV files."""
    folder.mkdir(exist_ok=True)
    columns = {f"x{index}": X[:, index] for index in range(X.shape[1])}
    if y is not None:
        columns["label"] = pa.array([WORDS[label] for label in y.tolist()], type=pa.string())
    for number, rows in enumerate(np.array_split(np.arange(len(X)), n_parts)):
        part = pa.table(columns).take(pa.array(rows))
        file = folder / f"part-{number}{suffix}"
        if suffix == ".parquet":
            pq.write_table(part, file, row_group_size=group_rows)
        else:
            with pa.output_stream(str(file), compression="detect") as opened:
                pa_csv.write_csv(part, opened)
    return folder


@pytest.fixture(scope="module")
def drawn():
    return scenario.table(registry.load_data_set("breast_cancer"), labelled_ratio=0.05, pollution_ratio=0.05, seed=0)


@pytest.fixture
def parts(tmp_path, drawn):
    return write_parts(tmp_path / "parts", drawn.X_train, drawn.y_train)


@pytest.fixture(params=[".csv", ".csv.gz"])
def csv_parts(tmp_path, drawn, request, monkeypatch):
    """The same rows as CSV, in more parts than files."""
    monkeypatch.setattr("esad.data.csv_parts.PART_BYTES", 8000)
    return write_parts(tmp_path / "csv", drawn.X_train, drawn.y_train, suffix=request.param)


@pytest.fixture
def small_buffer(monkeypatch):
    """Room for few rows only, so that they are replaced during the training."""
    monkeypatch.setattr(streaming, "N_SLOTS", 64)
    monkeypatch.setattr(streaming, "N_HELD_OUT", 30)


# ---------------------------------------------------------------------- samples


@given(cuts=st.lists(st.integers(0, 300), max_size=5), n_most=st.integers(1, 80), seed=st.integers(0, 9))
def test_a_sample_does_not_depend_on_blocks_order_and_shards(cuts, n_most, seed):
    numbers = np.arange(300)
    expected = numbers[np.argsort(priorities(numbers, seed))][:n_most]
    bounds = sorted({0, 300, *cuts})
    shards = [Sample(n_most, seed=seed), Sample(n_most, seed=seed)]
    for index, (first, last) in enumerate(pairwise(bounds)):
        shards[index % 2].add(numbers[first:last], numbers[first:last] * 10)
    shards[1].merge(shards[0])
    np.testing.assert_array_equal(shards[1].numbers, expected)
    np.testing.assert_array_equal(shards[1].rows(0, n_most), expected * 10)


def test_a_sample_is_uniform():
    counts = np.zeros(100)
    for seed in range(400):
        sample = Sample(20, seed=seed)
        sample.add(np.arange(100), np.arange(100))
        counts[sample.numbers] += 1
    assert abs(counts - 80).max() < 5 * np.sqrt(80 * 0.8)


# ---------------------------------------------------------------------- streams


@pytest.mark.parametrize("form", [".parquet", ".csv", ".csv.gz"])
def test_streams_give_every_row_once_with_its_number_and_label(tmp_path, drawn, monkeypatch, form):
    monkeypatch.setattr("esad.data.csv_parts.PART_BYTES", 8000)
    parts = write_parts(tmp_path / "parts", drawn.X_train, drawn.y_train, suffix=form)
    stream = open_stream(parts, label_column="label")
    assert stream.n_rows == len(drawn.X_train)
    for blocks in (stream.blocks(), stream.shuffled(np.random.default_rng(0))):
        seen = list(blocks)
        numbers = np.concatenate([block.numbers for block in seen])
        assert sorted(numbers.tolist()) == list(range(stream.n_rows))
        np.testing.assert_array_equal(np.concatenate([block.y for block in seen]), drawn.y_train[numbers])
        first = np.concatenate([block.X["x0"].to_numpy() for block in seen])
        np.testing.assert_array_equal(first, drawn.X_train[numbers, 0])
    assert not np.array_equal(numbers, np.arange(stream.n_rows))  # the last was shuffled


def test_folders_patterns_and_files_are_found(parts):
    assert [file.name for file in find_tables(parts)] == ["part-0.parquet", "part-1.parquet", "part-2.parquet"]
    assert len(find_tables(f"{parts}/part-[01].parquet")) == 2
    assert find_tables(parts / "part-0.parquet") == (parts / "part-0.parquet",)
    with pytest.raises(DataFileError, match="no file matches"):
        find_tables(f"{parts}/none-*.parquet")


def part(n_rows=40, **changes):
    """A small table with a few labels; `changes` are other columns, None to leave one out."""
    rng = np.random.default_rng(n_rows)
    columns = {"size": rng.normal(size=n_rows), "count": rng.integers(9, size=n_rows)}
    columns |= {"kind": rng.choice(["a", "b"], n_rows), "when": pa.array(np.arange(n_rows) * 10**6, pa.timestamp("us"))}
    columns |= {"label": pa.array((["anomaly"] * 2 + [None] * n_rows)[:n_rows], pa.string())} | changes
    return pa.table({name: column for name, column in columns.items() if column is not None})


def fitted(folder, *tables, args=("-l", "label")):
    """Exit code of a fit on some files: tables, or the bytes of one."""
    folder.mkdir(exist_ok=True)
    for number, table in enumerate(tables):
        file = folder / f"part-{number}.parquet"
        file.write_bytes(table) if isinstance(table, bytes) else pq.write_table(table, file)
    model = folder.with_suffix(".esad")
    quick = (
        "--set",
        "n_epochs=1",
        "--members",
        "1",
        "--contamination",
        "0.1",
        "-q",
    )  # one epoch finds no anomaly by itself
    code = run(["fit", str(folder), *args, "--out", str(model), *quick])
    assert model.exists() == (code == 0)
    return code


@pytest.mark.parametrize(
    "second",
    [
        part(0),
        part().select(["label", "when", "kind", "count", "size"]),
        part(count=np.arange(40) / 2, size=pa.array(np.arange(40, dtype="f4"))),
        part(count=pa.array(range(40)).cast(pa.decimal128(22, 2))),
        part(kind=pa.array(["a", "c"] * 20).dictionary_encode()),
        part(kind=pa.array(["a", "c"] * 20, pa.large_string()), size=pa.nulls(40)),
        part(when=pa.array(np.arange(40) * 10**9, pa.timestamp("ns", "UTC"))),
        part(when=pa.array(list(range(40)), pa.date32())),
        part(label=pa.nulls(40)),
        part(label=[np.nan] * 40),  # as pandas writes a column without any label
    ],
)
def test_files_that_say_the_same_in_other_words_are_one_table(tmp_path, capsys, second):
    for number, tables in enumerate([(part(), second), (second, part())]):
        assert fitted(tmp_path / f"parts-{number}", *tables) == 0, capsys.readouterr().err
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("second", "line"),
    [
        (part(count=None), "part-1.parquet' has no column 'count', which"),
        (part(label=None), "part-1.parquet' has no column 'label', which"),
        (part(kind=range(40)), "'kind' holds text in"),
        (part(size=["1"] * 40), "'size' holds numbers in"),
        (part(when=["2024-01-01"] * 40), "'when' holds dates in"),
        (part(count=[True] * 40), "and bool in"),
        (part(label=["anomly"] * 40), "anomly"),
        (pa.Table.from_arrays([part()["size"]] * 2, names=["size", "size"]), "part-1.parquet': doubled column names"),
        (b"", "part-1.parquet': it is empty"),
        (b"PAR1" + b"x" * 300 + b"PAR1", "part-1.parquet': it is damaged"),
    ],
)
def test_files_that_do_not_go_together_are_one_line(tmp_path, capsys, second, line):
    assert fitted(tmp_path / "parts", part(), second) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and said.count("\n") == 1 and line in said


def test_a_column_of_lists_is_refused_with_its_file(tmp_path, capsys):
    odd = part(kind=[[1, 2]] * 40)
    assert fitted(tmp_path / "parts", odd, odd) == 2
    assert "part-0.parquet': Column 'kind' holds a" in capsys.readouterr().err


def test_columns_that_only_some_files_have_are_left_out_with_a_warning(tmp_path, capsys):
    assert fitted(tmp_path / "parts", part(), part(more=[1] * 40, most=[2] * 40)) == 0
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "'more' of" in said and "and 1 more" in said


def test_files_without_rows_or_labels(tmp_path, capsys):
    assert fitted(tmp_path / "empty", part(0), part(0)) == 2
    assert "columns but no rows" in capsys.readouterr().err
    assert fitted(tmp_path / "few", part(5), part(4)) == 2
    assert "10 unlabelled rows or more. Got 5 of 9" in capsys.readouterr().err
    assert fitted(tmp_path / "none", part(label=None), part(label=None), args=()) == 0
    assert fitted(tmp_path / "all", part(), part(), args=("-l", "label", "--calibration-ratio", "0.95")) == 2
    assert "leaves 72 rows to calibrate with and 0 to train on" in capsys.readouterr().err


def test_csv_beside_pictures_is_no_table(tmp_path):
    (tmp_path / "labels.csv").write_text("file,label\n1.png,anomaly\n")
    assert find_tables(tmp_path) == (tmp_path / "labels.csv",)
    (tmp_path / "1.png").write_bytes(b"")
    assert find_tables(tmp_path) == ()
    for name in ("_temporary", ".hidden"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.parquet").write_bytes(b"")
    assert find_tables(tmp_path) == ()


# ---------------------------------------------------------------------- fits


def test_csv_gives_the_model_that_parquet_gives(parts, csv_parts, drawn):
    test = pa.table({f"x{index}": drawn.X_test[:, index] for index in range(drawn.X_test.shape[1])})
    scores = [
        ESAD(n_members=2, n_epochs=5, random_state=0)
        .fit_stream(open_stream(folder, label_column="label"))
        .anomaly_score(test)
        for folder in (parts, csv_parts)
    ]
    np.testing.assert_array_equal(*scores)


def test_longer_fits_draw_every_row_of_csv_too(csv_parts, small_buffer):
    survey = Survey.of(open_stream(csv_parts, label_column="label"), seed=0)
    portion = Portion.of(survey, survey.inputs(scaling="standard"), n_calibration=0, estimator="ESAD")
    x = torch.from_numpy(portion.rows.copy())
    refill, seen = Refill(portion, x, estimator="ESAD"), set()
    for _ in range(2 * -(-portion.n_unlabelled // portion.n_slots)):
        refill()
        seen |= {row.tobytes() for row in x[: portion.n_slots].numpy()}
    assert len(seen) == portion.n_unlabelled


def test_the_preprocessing_is_that_of_all_rows(parts, drawn):
    survey = Survey.of(open_stream(parts, label_column="label"), seed=0)
    inputs = survey.inputs(scaling="standard")
    whole = ESAD(n_epochs=1, random_state=0).fit(drawn.X_train, drawn.y_train).inputs_
    np.testing.assert_allclose(inputs.preprocessor.mean_, whole.preprocessor.mean_, rtol=1e-10)
    np.testing.assert_allclose(inputs.preprocessor.scale_, whole.preprocessor.scale_, rtol=1e-9)


def test_surveys_of_shards_merge_into_the_survey_of_all(parts, drawn):
    stream = open_stream(parts, label_column="label")
    whole, blocks = Survey.of(stream, seed=3), list(stream.blocks())
    shards = [Survey.empty(stream, blocks[0], seed=3) for _ in range(2)]
    for index, block in enumerate(blocks):
        shards[index % 2].add(block)
    shards[1].merge(shards[0])
    assert shards[1].counts == whole.counts
    np.testing.assert_array_equal(shards[1].unlabelled.numbers, whole.unlabelled.numbers)
    np.testing.assert_array_equal(shards[1].anomalies.numbers, whole.anomalies.numbers)
    merged, single = (survey.inputs(scaling="minmax") for survey in (shards[1], whole))
    np.testing.assert_allclose(merged.preprocessor.scale_, single.preprocessor.scale_, rtol=1e-12)
    np.testing.assert_allclose(merged.minimum, single.minimum, rtol=1e-6)


def compared(drawn, folder, **settings):
    """AUC of two streamed and two ordinary fits of other seeds, and how alike their ranks are."""
    stream = open_stream(write_parts(folder, drawn.X_train, drawn.y_train), label_column="label")
    test = pa.table({f"x{index}": drawn.X_test[:, index] for index in range(drawn.X_test.shape[1])})
    scores = [ESAD(random_state=seed, **settings).fit_stream(stream).anomaly_score(test) for seed in (0, 1)]
    for seed in (0, 1):
        whole = ESAD(random_state=seed, **settings).fit(drawn.X_train, drawn.y_train)
        scores.append(whole.anomaly_score(drawn.X_test))
    ranks = np.corrcoef([one.argsort().argsort() for one in scores])
    return [roc_auc_score(drawn.truth_test, one) for one in scores], ranks


def test_scores_are_those_of_a_fit_in_memory_within_the_noise_of_seeds(tmp_path, drawn, small_buffer):
    aucs, ranks = compared(drawn, tmp_path / "parts", n_members=2, n_epochs=30)
    assert np.mean(aucs[:2]) > np.mean(aucs[2:]) - 0.02
    assert ranks[:2, 2:].min() > ranks[2, 3] - 0.05


@pytest.mark.extra
def test_so_they_are_on_a_table_of_adbench(tmp_path, monkeypatch):
    monkeypatch.setattr(streaming, "N_SLOTS", 512)
    try:
        table = registry.load_data_set("47_yeast")
    except DataFileError:
        pytest.skip("the table is not here")
    drawn = scenario.table(table, labelled_ratio=0.01, pollution_ratio=0.05, seed=0)
    aucs, ranks = compared(drawn, tmp_path / "parts")
    assert abs(np.mean(aucs[:2]) - np.mean(aucs[2:])) < 0.03
    assert ranks[:2, 2:].min() > ranks[2, 3] - 0.1


def test_rows_that_were_held_out_are_never_trained_on(parts, small_buffer):
    survey = Survey.of(open_stream(parts, label_column="label"), seed=0)
    inputs = survey.inputs(scaling="standard")
    portion = Portion.of(survey, inputs, n_calibration=20, estimator="ESAD")
    kept = {row.tobytes() for row in portion.scored[portion.scored_y == 0]}
    kept |= {row.tobytes() for row in portion.rows[portion.n_slots :]}
    x = torch.from_numpy(portion.rows.copy())
    refill, seen = Refill(portion, x, estimator="ESAD"), set()
    for _ in range(2 * -(-portion.n_unlabelled // portion.n_slots)):
        seen |= {row.tobytes() for row in x[: portion.n_slots].numpy()}
        refill()
    assert not seen & kept
    assert len(seen) == portion.n_unlabelled  # every other row has had its turn


def test_an_interrupted_fit_goes_on_to_the_same_bits(parts, tmp_path, small_buffer):
    class Stop:
        def on_start(self, state): ...

        def on_end(self, state): ...

        def on_step(self, state):
            if state.step == 25:
                assert state.data.refill.n_done > 2
                raise StopTraining

    def fit(*callbacks):
        detector = ESAD(n_members=2, n_epochs=20, random_state=0)
        return detector.fit_stream(open_stream(parts, label_column="label"), callbacks=callbacks)

    whole = fit()
    checkpoint = tmp_path / "checkpoint"
    fit(Checkpoint(checkpoint, every_seconds=0), Stop())
    resumed = fit(Checkpoint(checkpoint, resume=True))
    np.testing.assert_array_equal(resumed.training_scores_, whole.training_scores_)


def test_thresholds_calibration_and_drift_work(parts, drawn):
    stream = open_stream(parts, label_column="label")
    detector = ESAD(n_epochs=5, random_state=0).fit_stream(stream, calibration_ratio=0.3)
    test = pa.table({f"x{index}": drawn.X_test[:, index] for index in range(drawn.X_test.shape[1])})
    assert 0 < detector.p_value(test).min() < 0.05
    assert detector.fit_threshold(contamination=0.1).predict(test).min() == -1
    assert detector.drift(test).found is not None
    assert detector.label_counts_.n_unlabelled == (drawn.y_train == 0).sum()


@pytest.mark.parametrize("method", ["deep_sad", "autoencoder", "classifier"])
def test_other_methods_that_are_trained_in_steps_can_be_streamed(parts, method, small_buffer):
    detector = tiny(method)
    assert np.isfinite(detector.fit_stream(open_stream(parts, label_column="label")).training_scores_).all()


@pytest.mark.parametrize("method", ["iforest", "ocsvm_hybrid", "tlsad"])
def test_methods_that_look_at_all_rows_say_so(parts, method):
    with pytest.raises(InputError, match="cannot learn from a stream"):
        registry.method(method)(random_state=0).fit_stream(open_stream(parts, label_column="label"))


def test_what_cannot_be_streamed_is_refused(parts, tmp_path):
    with pytest.raises(InputError, match="early_stopping"):
        ESAD(early_stopping=True).fit_stream(open_stream(parts, label_column="label"))
    known = write_parts(tmp_path / "known", np.zeros((10, 2)), np.ones(10, dtype=int))
    with pytest.raises(LabelError, match=r"10 unlabelled rows or more\. Got 0 of 10"):
        ESAD().fit_stream(open_stream(known, label_column="label"))


def test_pictures_are_streamed(tmp_path, monkeypatch):
    pillow = pytest.importorskip("PIL.Image")
    monkeypatch.setattr(streaming, "N_SLOTS", 16)
    rng = np.random.default_rng(0)
    for word, n_pictures in (("unlabelled", 40), ("anomaly", 4)):
        (tmp_path / word).mkdir()
        for number in range(n_pictures):
            pixels = rng.integers(0, 100, size=(8, 8), dtype=np.uint8) + np.uint8(150 * (word == "anomaly"))
            pillow.fromarray(pixels).save(tmp_path / word / f"{number}.png")
    detector = ESAD(n_epochs=3, hidden=(4, 4), latent=4, random_state=0).fit_stream(open_stream(tmp_path))
    assert detector.label_counts_.n_anomaly == 4
    assert detector.inputs_.mean_picture.mean() == pytest.approx(50 / 255, abs=0.02)
    assert run(["fit", str(tmp_path), "--stream", "--out", str(tmp_path / "m.esad"), "--set", "n_epochs=1", "-q"]) == 0


# ---------------------------------------------------------------------- the command line


def test_several_files_are_one_table_on_the_command_line(parts, tmp_path, capsys):
    out = tmp_path / "m.esad"
    fast = ["--set", "n_epochs=2", "--members", "1"]
    assert run(["fit", f"{parts}/*.parquet", "-l", "label", "--out", str(out), "--json", *fast]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["data"]["n_rows"] == open_stream(parts).n_rows
    assert said["data"]["labels"]["n_unlabelled"] > said["n_sample"] > 0
    assert np.isfinite(esad.load(out).threshold_)


def test_csv_is_streamed_on_the_command_line_with_the_columns_of_the_whole_file(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("esad.data.csv_parts.PART_BYTES", 300)
    rng = np.random.default_rng(0)
    lines = [
        f"{size:.3f},{count % 7},{count % 2 == 0},," for size, count in zip(rng.normal(size=90), range(90), strict=True)
    ]
    lines[-1] = "0.5,many,True,2.5,anomaly"  # settles three columns, and is the only label
    file = tmp_path / "t.csv"
    file.write_text("\n".join(["size,count,even,late,label", *lines]))
    args = ["--out", str(tmp_path / "m.esad"), "-l", "label", "--json", "--set", "n_epochs=1", "--members", "1"]
    assert run(["fit", str(file), "--stream", *args]) == 0
    streamed = json.loads(capsys.readouterr().out)
    assert run(["fit", str(file), *args]) == 0
    whole = json.loads(capsys.readouterr().out)
    assert streamed["n_sample"] is not None and whole["n_sample"] is None
    assert streamed["data"] == whole["data"]
    kinds = {column["name"]: column["kind"] for column in whole["data"]["columns"]}
    assert kinds == {"size": "number", "count": "category", "even": "boolean", "late": "number"}
    assert whole["data"]["labels"]["n_anomaly"] == 1


def test_a_large_csv_is_streamed_without_being_asked(csv_parts, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("esad.cli.streamed._memory", lambda: 1000.0)
    file = str(next(csv_parts.iterdir()))
    args = ["fit", file, "--ignore", "label", "--out", str(tmp_path / "m.esad"), "--json", "--set", "n_epochs=1"]
    assert run(args) == 0
    assert json.loads(capsys.readouterr().out)["n_sample"] is not None


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (["--no-stream"], "Several files are always read in parts"),
        (["--method", "iforest"], "cannot learn from a stream"),
        (["--search"], "Leave --search out"),
        (["--cross-calibration"], "Take --calibration-ratio"),
        (["--false-alarm-rate", "0.0001"], "false"),
        (["--calibration-ratio", "2"], "--calibration-ratio"),
    ],
)
def test_what_does_not_go_together_is_one_line(parts, tmp_path, capsys, args, line):
    assert run(["fit", str(parts), "-l", "label", "--out", str(tmp_path / "m.esad"), *args]) == 2
    errors = [text for text in capsys.readouterr().err.splitlines() if text.startswith("error: ")]
    assert len(errors) == 1 and line in errors[0]
    assert not (tmp_path / "m.esad").exists()


def test_large_data_is_read_in_parts_without_being_asked(parts, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("esad.cli.streamed._memory", lambda: 1000.0)
    out = str(tmp_path / "m.esad")
    file = str(parts / "part-0.parquet")
    args = ["fit", file, "-l", "label", "--out", out, "--json", "--set", "n_epochs=1", "--members", "1"]
    assert run(args) == 0
    assert json.loads(capsys.readouterr().out)["n_sample"] is not None
    assert run([*args, "--no-stream"]) == 0
    assert json.loads(capsys.readouterr().out)["n_sample"] is None
