"""Fits on data that is read in parts: like those on all rows at once, resumable, in bounded memory."""

import numpy as np
import pytest
import torch
from in_parts import named, tumours, write_parts
from sklearn.metrics import roc_auc_score
from support import tiny

from esad import ESAD, registry
from esad.cli.app import run
from esad.datasets import scenario
from esad.detectors import streaming
from esad.detectors.streaming import Portion, StreamRefill, Survey
from esad.errors import DataFileError, InputError, LabelError
from esad.io.stream import open_stream
from esad.persist.checkpoint import Checkpoint
from esad.train.callbacks import StopTraining


@pytest.fixture(scope="module")
def drawn():
    return tumours()


@pytest.fixture
def parts(tmp_path, drawn):
    return write_parts(tmp_path / "parts", drawn.X_train, drawn.y_train)


@pytest.fixture(params=[".csv", ".csv.gz"])
def csv_parts(tmp_path, drawn, request, monkeypatch):
    """The same rows as CSV, in more parts than files."""
    monkeypatch.setattr("esad.io.csv.PART_BYTES", 8000)
    return write_parts(tmp_path / "csv", drawn.X_train, drawn.y_train, suffix=request.param)


@pytest.fixture
def small_buffer(monkeypatch):
    """Room for few rows only, so that they are replaced during the training."""
    monkeypatch.setattr(streaming, "N_SLOTS", 64)
    monkeypatch.setattr(streaming, "N_HELD_OUT", 30)


def test_csv_gives_the_model_that_parquet_gives(parts, csv_parts, drawn):
    test = named(drawn.X_test)
    scores = [
        ESAD(n_members=2, n_epochs=5, random_state=0)
        .fit_stream(open_stream(folder, label_column="label"))
        .anomaly_score(test)
        for folder in (parts, csv_parts)
    ]
    np.testing.assert_array_equal(*scores)


def test_longer_fits_draw_every_row_of_csv_too(csv_parts, small_buffer):
    survey = Survey.of(open_stream(csv_parts, label_column="label"), seed=0)
    portion = Portion.of(survey, survey.inputs(scaling="standard"), n_calibration=0)
    x = torch.from_numpy(portion.rows.copy())
    refill, seen = StreamRefill(portion, x), set()
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
    test = named(drawn.X_test)
    scores = [ESAD(random_state=seed, **settings).fit_stream(stream).anomaly_score(test) for seed in (0, 1)]
    for seed in (0, 1):
        whole = ESAD(random_state=seed, **settings).fit(drawn.X_train, drawn.y_train)
        scores.append(whole.anomaly_score(drawn.X_test))
    ranks = np.corrcoef([one.argsort().argsort() for one in scores])
    return [roc_auc_score(drawn.truth_test, one) for one in scores], ranks


def test_scores_are_those_of_a_fit_in_memory_within_the_noise_of_seeds(tmp_path, drawn, small_buffer):
    aucs, ranks = compared(drawn, tmp_path / "parts", n_members=2, n_epochs=30)
    assert np.mean(aucs[:2]) > np.mean(aucs[2:]) - 0.02
    assert ranks[:2, 2:].min() > ranks[2, 3] - 0.07


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
    portion = Portion.of(survey, inputs, n_calibration=20)
    kept = {row.tobytes() for row in portion.scored[portion.scored_y == 0]}
    kept |= {row.tobytes() for row in portion.rows[portion.n_slots :]}
    x = torch.from_numpy(portion.rows.copy())
    refill, seen = StreamRefill(portion, x), set()
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
        detector = ESAD(n_members=2, hidden=(16,), latent=4, n_epochs=20, random_state=0)
        return detector.fit_stream(open_stream(parts, label_column="label"), callbacks=callbacks)

    whole = fit()
    checkpoint = tmp_path / "checkpoint"
    fit(Checkpoint(checkpoint, every_seconds=0), Stop())
    resumed = fit(Checkpoint(checkpoint, resume=True))
    np.testing.assert_array_equal(resumed.training_scores_, whole.training_scores_)


def test_thresholds_calibration_and_drift_work(parts, drawn):
    stream = open_stream(parts, label_column="label")
    detector = ESAD(n_epochs=5, random_state=0).fit_stream(stream, calibration_ratio=0.3)
    test = named(drawn.X_test)
    assert 0 < detector.p_value(test).min() < 0.05
    assert detector.fit_threshold(contamination=0.1).predict(test).min() == -1
    assert detector.drift(test).found is not None
    assert detector.label_counts_.n_unlabelled == (drawn.y_train == 0).sum()


@pytest.mark.parametrize("method", ["deep_sad", "autoencoder", "classifier"])
def test_other_methods_that_are_trained_in_steps_can_be_streamed(parts, method, small_buffer):
    detector = tiny(method)
    assert np.isfinite(detector.fit_stream(open_stream(parts, label_column="label")).training_scores_).all()


def test_labelled_rows_weigh_against_the_whole_stream_not_the_rows_at_hand(parts, drawn, small_buffer):
    detector = tiny("deep_sad").fit_stream(open_stream(parts, label_column="label"))
    m, n = (np.count_nonzero(drawn.y_train != 0), np.count_nonzero(drawn.y_train == 0))
    assert m / (n + m) <= detector.objective_.labelled_ratio <= m / (n - streaming.N_HELD_OUT + m)


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
