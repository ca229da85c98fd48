"""The committee: one score of two judges, weighed by anomalies that neither has seen; ESAD alone without labels."""

import numpy as np
import pytest
from in_parts import named, write_parts
from support import tiny

import esad
from esad import ESAD, BaggedTrees, Committee
from esad.detectors.deep import DeepDetector
from esad.errors import ModelFileError
from esad.io.stream import open_stream
from esad.persist import bundle

SMALL = {"n_members": 5, "n_epochs": 8, "hidden": (8,), "latent": 2, "n_trees": 60, "random_state": 0}


def planted(n=400, n_known=20, *, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6))
    X[-2 * n_known :, [1, 4]] += 2.5
    y = np.zeros(n, dtype=int)
    y[-n_known:] = -1
    return X, y


@pytest.fixture(scope="module")
def fitted():
    X, y = planted()
    return Committee(**SMALL).fit(X, y), X, y


def test_the_score_is_the_weighted_mean_of_the_surprisals_of_the_judges(fitted):
    detector, X, _ = fitted
    networks, trees = detector.judges_["esad"], detector.judges_["bagged_trees"]
    by_member = detector.scales_["esad"](networks.member_scores(networks.rows_of(X)))
    wanted = detector.weights_["esad"] * by_member.mean(axis=0)
    wanted += detector.weights_["bagged_trees"] * detector.scales_["bagged_trees"](trees.anomaly_score(X))
    np.testing.assert_allclose(detector.anomaly_score(X), wanted, rtol=1e-12)
    assert sum(detector.weights_.values()) == pytest.approx(1)
    assert list(detector.score_terms(X)) == ["bagged_trees", "esad"]


def test_each_judge_scores_the_training_rows_once(monkeypatch):
    X, y = planted(n=120)
    scored, raw_terms = [], DeepDetector._raw_terms
    monkeypatch.setattr(
        DeepDetector, "_raw_terms", lambda self, rows: scored.append(len(rows)) or raw_terms(self, rows)
    )
    detector = Committee(**SMALL).fit(X, y)
    assert scored == [120]
    np.testing.assert_array_equal(detector.training_totals_, detector.anomaly_score(X))


def test_a_row_has_the_same_score_in_any_company(fitted):
    detector, X, _ = fitted
    np.testing.assert_allclose(detector.anomaly_score(X[7:8]), detector.anomaly_score(X)[7:8], rtol=1e-6)


def test_the_judges_are_those_one_would_train_alone(fitted):
    detector, X, y = fitted
    alone = BaggedTrees(n_trees=60, random_state=0).fit(X, y)
    np.testing.assert_array_equal(detector.judges_["bagged_trees"].anomaly_score(X), alone.anomaly_score(X))
    assert isinstance(detector.judges_["esad"], ESAD)


def test_every_member_leaves_out_a_fifth_of_the_known_anomalies_and_an_unlabelled_part(fitted):
    detector, _, y = fitted
    unseen_by = detector.judges_["esad"].training_unseen_by_
    assert np.bincount(unseen_by[y < 0]).tolist() == [4] * 5
    assert np.bincount(unseen_by[(y == 0) & (unseen_by >= 0)]).tolist() == [38] * 5
    left_alone = tiny("esad", n_members=5).fit(*planted())
    assert (left_alone.training_unseen_by_[y < 0] == -1).all()


@pytest.mark.parametrize(
    ("trees", "networks", "low", "high"),
    [(3.0, 1.0, 0.0, 0.05), (1.0, 3.0, 0.6, 1.0), (2.0, 2.0, 0.2, 0.3)],
)
def test_the_better_judge_of_unseen_anomalies_has_the_say(trees, networks, low, high):
    noise = np.random.default_rng(0).normal(0, 1, size=20)
    noise -= noise.mean()
    unseen = {"bagged_trees": trees + noise, "esad": np.full(20, networks)}
    weights = Committee()._weigh(unseen, n_anomalies=20, n_columns=10)
    assert low <= weights["esad"] <= high


def test_too_few_unseen_anomalies_leave_the_weights_as_they_are_by_default():
    found = Committee()
    unseen = {"bagged_trees": np.full(4, 9.0), "esad": np.zeros(4)}
    weights = found._weigh(unseen, n_anomalies=4, n_columns=10)
    assert weights["esad"] == pytest.approx(0.25, abs=0.005)
    assert "too few" in found.why_
    wide = found._weigh(unseen, n_anomalies=4, n_columns=300)
    assert wide["esad"] > 0.8  # among many columns one tells four anomalies apart by chance


def test_a_lead_of_esad_beside_more_weight_of_trees_is_explained():
    found = Committee()
    unseen = {"bagged_trees": np.tile([0.0, 1.0], 10), "esad": np.tile([0.4, 0.8], 10)}
    weights = found._weigh(unseen, n_anomalies=20, n_columns=10)
    assert weights["esad"] < 0.5 and "trees lead unless ESAD is clearly ahead; here it is ahead by" in found.why_


def test_it_says_who_judges_and_why(fitted, tmp_path):
    detector, _, _ = fitted
    assert detector.why_.endswith("standard errors on 20 known anomalies that neither had seen")
    X = np.random.default_rng(0).normal(size=(40, 600))
    wide = Committee(**SMALL).fit(X, np.r_[-1, -1, np.zeros(38)])
    assert wide.why_ == (
        "ESAD 96%, trees 4%: too few known anomalies that neither had seen, and 600 columns to 2 known anomalies, "
        "among which trees find one by chance"
    )
    detector.save(tmp_path / "m.esad")
    assert esad.load(tmp_path / "m.esad").why_ == detector.why_


@pytest.mark.filterwarnings("ignore:`y` labels every row")
@pytest.mark.parametrize("kind", ["table", "table of anomalies", "images"])
def test_it_is_esad_alone_where_trees_cannot_judge(kind, caplog):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 255, size=(20, 8, 8), dtype=np.uint8) if kind == "images" else rng.normal(size=(60, 4))
    y = {"table": None, "table of anomalies": [-1] * 60, "images": [-1, -1, *[0] * 18]}[kind]
    with caplog.at_level("INFO", "esad"):
        committee = tiny("committee", hidden=(4, 4)).fit(X, y)
    assert "ESAD judges alone" in caplog.text and "ESAD judges alone" in committee.why_
    alone = tiny("esad", hidden=(4, 4)).fit(X, y)
    np.testing.assert_array_equal(committee.anomaly_score(X), alone.anomaly_score(X))
    assert committee.score_terms(X).keys() == alone.score_terms(X).keys()
    assert committee.threshold_ == alone.threshold_
    assert committee.judges_.keys() == {"esad"}


def test_reasons_add_up_over_the_judges(fitted):
    detector, X, _ = fitted
    reasons = detector.explain(X[-40:-20])
    assert list(reasons.terms) == ["bagged_trees", "esad"]
    for name, term in reasons.terms.items():
        np.testing.assert_allclose(reasons.base[name] + reasons.shares[name].sum(1), term, atol=1e-9)
    assert np.mean([reasons.top(row, 1)[0] in ("x1", "x4") for row in range(20)]) > 0.8


def test_p_values_of_the_training_rows_hold_their_level(fitted):
    detector, _, _ = fitted
    p_values = detector.calibrate().p_value(np.random.default_rng(9).normal(size=(3000, 6)))
    for alpha in (0.05, 0.2):
        assert (p_values <= alpha).mean() <= 1.5 * alpha


def test_one_file_holds_both_judges(fitted, tmp_path):
    detector, X, _ = fitted
    detector.save(tmp_path / "m.esad")
    loaded = esad.load(tmp_path / "m.esad")
    np.testing.assert_array_equal(loaded.anomaly_score(X), detector.anomaly_score(X))
    np.testing.assert_allclose(loaded.explain(X[:5]).total, detector.explain(X[:5]).total, atol=1e-12)


@pytest.mark.parametrize("format", ["torch", pytest.param("onnx", marks=pytest.mark.extra)])
def test_one_graph_holds_both_judges(fitted, tmp_path, format):
    detector, X, _ = fitted
    assert esad.export(detector, tmp_path / "file", format=format, X=X).holds


def test_it_learns_from_a_stream(tmp_path, fitted):
    _, X, y = fitted
    stream = open_stream(write_parts(tmp_path / "parts", X, y), label_column="label")
    detector = Committee(**SMALL).fit_stream(stream)
    scores = detector.anomaly_score(named(X))
    assert scores[-40:-20].mean() > scores[:-40].mean() + 1
    assert detector.judges_.keys() == {"bagged_trees", "esad"}


def forge(change):
    def damage(manifest, tensors):
        change(manifest["model"], tensors)

    return damage


@pytest.mark.parametrize(
    "damage",
    [
        forge(lambda model, tensors: model["judges"].pop("esad")),
        forge(lambda model, tensors: model["judges"].update(geom=model["judges"]["esad"])),
        forge(lambda model, tensors: model["judges"]["esad"].update(weight=float("inf"))),
        forge(lambda model, tensors: model["judges"]["esad"].update(threshold="much")),
        forge(lambda model, tensors: model.update(why=7)),
        forge(lambda model, tensors: tensors.pop("model.esad.scale.knots")),
        forge(lambda model, tensors: [tensors.pop(f"model.esad.scale.{n}") for n in ("knots", "values", "slopes")]),
        forge(lambda model, tensors: tensors["model.bagged_trees.left"].fill(0)),
        forge(lambda model, tensors: tensors.update({"model.geom.left": np.zeros(3)})),
    ],
)
def test_a_forged_committee_is_refused(fitted, tmp_path, damage):
    detector, _, _ = fitted
    detector.save(tmp_path / "m.esad")
    manifest, tensors = bundle.read(tmp_path / "m.esad")
    kept = {name: value for name, value in manifest.items() if name not in bundle._STATED}
    damage(kept, tensors)
    try:
        bundle.write(tmp_path / "forged.esad", kept, tensors)
    except esad.errors.InputError:
        return  # such a number cannot even be written
    with pytest.raises(ModelFileError):
        esad.load(tmp_path / "forged.esad")
