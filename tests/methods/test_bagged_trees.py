"""Bagged trees: bags as the equations have them, scores by trees that have not seen a row, forged trees refused."""

import time

import numpy as np
import pytest
from in_parts import named, write_parts
from sklearn.metrics import roc_auc_score
from sklearn.tree import ExtraTreeRegressor

import esad
from esad import BaggedTrees, IsolationForest
from esad.errors import InputError, LabelError, ModelFileError
from esad.io.stream import open_stream
from esad.methods.bagged_trees import BaggedTreesModel
from esad.persist import bundle
from esad.solvers.trees import Trees, _count_levels

SETTINGS = {"n_trees": 20, "unlabelled_ratio": 4.0, "min_unlabelled": 64, "max_features": 1.0}


def planted(n=1000, n_hidden=20, n_known=12, *, seed=0):
    """Rows of which the last ones stand out in two of eight columns, and most of those are not labelled."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 8))
    X[-n_hidden - n_known :, [2, 5]] += 2.5
    y = np.zeros(n, dtype=int)
    y[-n_known:] = -1
    return X, y


@pytest.fixture(scope="module")
def fitted():
    X, y = planted()
    return BaggedTrees(random_state=0).fit(X, y), X, y


def bags(y, **changes):
    drawn = BaggedTreesModel(**SETTINGS | changes)._draw(np.asarray(y, dtype=np.int8), 0)
    return [(anomalies, others) for anomalies, others, _ in drawn]


def test_a_bag_has_two_thirds_of_the_anomalies_and_four_times_as_many_others():
    for anomalies, others in bags([-1] * 30 + [0] * 500):
        assert len(set(anomalies)) == 20 and (anomalies < 30).all()
        assert len(set(others)) == 80 and (others >= 30).all()


def test_few_anomalies_are_in_every_bag_against_a_least_number_of_others():
    assert {(len(anomalies), len(others)) for anomalies, others in bags([-1] * 5 + [0] * 500)} == {(5, 64)}
    assert {len(others) for _, others in bags([-1] * 5 + [0] * 30)} == {20}  # two thirds of all at most


def test_known_normal_rows_are_in_every_bag_up_to_the_number_of_others():
    for _, others in bags([-1] * 3 + [0] * 200 + [1] * 10):
        assert set(range(203, 213)) <= set(others)
    assert {len(others) for _, others in bags([-1] * 3 + [0] * 200 + [1] * 500)} == {128}


def test_known_normal_rows_lower_the_scores_around_them():
    X, y = planted()
    near = X[-20:-12] + np.random.default_rng(1).normal(0, 0.1, size=(8, 8))  # like rows that are no longer suspect
    without = BaggedTrees(random_state=0).fit(X, y).anomaly_score(near)
    y[-32:-12] = 1
    assert BaggedTrees(random_state=0).fit(X, y).anomaly_score(near).mean() < without.mean() - 0.1


def test_training_rows_are_scored_by_trees_that_have_not_seen_them(fitted):
    detector, X, y = fitted
    seen, unseen = detector.anomaly_score(X), detector.training_scores_
    assert np.isfinite(unseen).all()
    assert unseen[y < 0].mean() < seen[y < 0].mean() - 0.05  # a tree knows the anomalies of its own bag
    again = BaggedTrees(random_state=1).fit(X[y == 0][:-1], np.r_[np.zeros((y == 0).sum() - 2), -1])
    assert np.isfinite(again.training_scores_).all()


def test_unseen_scores_are_those_of_a_walk_tree_by_tree():
    X, y = planted(200)
    detector = BaggedTrees(n_trees=14, random_state=3).fit(X, y)
    drawn = [np.concatenate(bag[:2]) for bag in detector.model_._draw(y.astype(np.int8), 3)]
    values = np.stack(list(detector.model_.trees.values(detector.rows_of(X))))
    in_bag = np.stack([np.isin(np.arange(200), bag) for bag in drawn])
    wanted = np.nanmean(np.where(in_bag, np.nan, values), axis=0)
    np.testing.assert_allclose(detector.training_scores_, wanted, atol=1e-12)


def test_every_second_tree_sees_nothing_but_the_order_of_a_column():
    X, y = planted()
    known, stretched = y.astype(np.int8), np.exp(2 * X)
    plain, other = (BaggedTreesModel(**SETTINGS).fit(rows, known, seed=0) for rows in (X, stretched))
    used = np.unique(np.concatenate([np.concatenate(bag[:2]) for bag in plain._draw(known, 0)]))
    values = [np.stack(list(model.trees.values(rows[used]))) for model, rows in ((plain, X), (other, stretched))]
    np.testing.assert_array_equal(values[0][1::2], values[1][1::2])
    assert (values[0][::2] != values[1][::2]).any(axis=1).all()


def test_cuts_lie_between_the_values_of_their_column():
    X, y = planted()
    X[:, 3] = np.round(X[:, 3])  # few values, many rows each
    arrays = BaggedTreesModel(**SETTINGS).fit(X, y.astype(np.int8), seed=0).trees.arrays
    inner = arrays["left"] != np.arange(arrays["left"].shape[1])
    for column, values in enumerate(np.sort(X.astype(np.float32), axis=0).T):
        cuts = arrays["cut"][inner & (arrays["feature"] == column)]
        assert len(cuts) and ((values[0] <= cuts) & (cuts < values[-1])).all()


def test_with_few_anomalies_no_tree_sees_ranks():
    X, y = planted(n_known=5)
    known = y.astype(np.int8)
    each = [BaggedTreesModel(**SETTINGS, with_ranks=some).fit(X, known, seed=0).score(X) for some in (True, False)]
    np.testing.assert_array_equal(*each)


def test_hidden_anomalies_are_found_and_isolation_forest_does_not_find_them(fitted):
    detector, _, _ = fitted
    X, _ = planted(seed=1)
    truth = np.arange(1000) >= 968
    ours, other = (
        roc_auc_score(truth, one.anomaly_score(X)) for one in (detector, IsolationForest(random_state=0).fit(X))
    )
    assert ours > 0.93 and ours > other + 0.05


def test_p_values_of_the_training_rows_hold_their_level(fitted):
    detector, _, _ = fitted
    p_values = detector.calibrate().p_value(np.random.default_rng(9).normal(size=(4000, 8)))
    for alpha in (0.05, 0.2):
        assert (p_values <= alpha).mean() <= alpha + 0.02


def test_reasons_name_the_planted_columns_and_add_up(fitted):
    detector, X, _ = fitted
    reasons = detector.explain(X[-32:-12])
    np.testing.assert_allclose(reasons.base["score"] + reasons.total.sum(1), reasons.score, atol=1e-12)
    assert np.mean([reasons.top(row, 1)[0] in ("x2", "x5") for row in range(20)]) > 0.9


def test_same_seed_same_scores_and_another_seed_others(fitted):
    detector, X, y = fitted
    scores = detector.anomaly_score(X)
    np.testing.assert_array_equal(BaggedTrees(random_state=0).fit(X, y).anomaly_score(X), scores)
    assert (BaggedTrees(random_state=1).fit(X, y).anomaly_score(X) != scores).any()


def test_it_learns_from_a_stream(tmp_path, fitted):
    _, X, y = fitted
    stream = open_stream(write_parts(tmp_path / "parts", X, y), label_column="label")
    detector = BaggedTrees(random_state=0).fit_stream(stream, calibration_ratio=0.1)
    truth = np.arange(1000) >= 968
    assert roc_auc_score(truth, detector.anomaly_score(named(X))) > 0.95
    assert len(detector.training_scores_) < 200  # rows that were held out, and the labelled ones


def test_it_says_that_it_needs_a_labelled_anomaly():
    with pytest.raises(LabelError, match=r"learns from labelled anomalies \(-1\) and needs one at least"):
        BaggedTrees().fit(np.eye(5))


@pytest.mark.filterwarnings("ignore:`y` labels every row")
def test_it_says_that_anomalies_alone_are_nothing_to_tell_apart():
    with pytest.raises(LabelError, match=r"from unlabelled \(0\) or normal rows \(\+1\) and needs one.*anomalies only"):
        BaggedTrees().fit(np.eye(5), [-1] * 5)
    BaggedTrees(n_trees=3).fit(np.eye(5), [-1] * 4 + [1])


@pytest.mark.parametrize(
    "parameters",
    [{"n_trees": 0}, {"n_trees": 1.5}, {"unlabelled_ratio": 0}, {"min_unlabelled": -1}, {"max_features": 1.1}],
)
def test_it_names_its_wrong_parameters(parameters):
    with pytest.raises(InputError, match=next(iter(parameters))):
        BaggedTrees(**parameters).fit(np.eye(5), [-1, 0, 0, 0, 0])


def broken(change):
    """A way to damage the trees of a file."""

    def damage(tensors):
        arrays = {name: tensors[f"model.{name}"] for name in ("feature", "cut", "left", "right", "value")}
        change(arrays)
        return tensors | {f"model.{name}": value for name, value in arrays.items()}

    return damage


def set_to(name, value, where=(0, 0)):
    def change(arrays):
        arrays[name][where] = value

    return broken(change)


def deep_chain(arrays):
    n = 1201
    here = np.arange(n, dtype=np.int32)
    inner = (here % 2 == 0) & (here < n - 1)
    arrays["left"], arrays["right"] = np.where(inner, here + 1, here)[None], np.where(inner, here + 2, here)[None]
    arrays["feature"] = np.zeros((1, n), np.int32)
    arrays["cut"], arrays["value"] = np.zeros((1, n)), np.zeros((1, n))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (set_to("left", 0), "circles"),  # one child is the node itself
        (set_to("right", -1), "outside"),
        (set_to("left", 10**6), "outside"),
        (set_to("left", 0, (slice(None), 2)), "circles"),  # back to the root
        (broken(lambda arrays: arrays["left"].__setitem__((0, 0), arrays["right"][0, 0])), "two parents"),
        (set_to("feature", 8), "columns that do not exist"),
        (set_to("feature", -1), "columns that do not exist"),
        (set_to("cut", np.nan), "not finite"),
        (set_to("value", np.inf), "not finite"),
        (broken(deep_chain), "deeper than 512"),
        (broken(lambda arrays: arrays.update(cut=arrays["cut"].astype(np.float32))), "wrong type"),
        (broken(lambda arrays: arrays.update(value=arrays["value"][:, :-1])), "wrong type or shape"),
    ],
)
def test_forged_trees_are_refused(fitted, tmp_path, damage, message):
    detector, _, _ = fitted
    detector.save(tmp_path / "m.esad")
    manifest, tensors = bundle.read(tmp_path / "m.esad")
    kept = {name: value for name, value in manifest.items() if name not in bundle._STATED}
    bundle.write(tmp_path / "forged.esad", kept, damage(tensors))
    with pytest.raises(ModelFileError, match=message):
        esad.load(tmp_path / "forged.esad")


class Watched(dict):
    """Arrays that count how often one is looked at."""

    n_looks = 0

    def __getitem__(self, name):
        self.n_looks += 1
        return super().__getitem__(name)


def test_levels_are_counted_level_by_level_not_node_by_node(fitted):
    grown = [ExtraTreeRegressor(random_state=seed).fit(*fitted[1:]).tree_ for seed in range(3)]
    levels = _count_levels(Trees.from_sklearn(grown, [tree.value[:, 0, 0] for tree in grown]).arrays)
    assert levels.tolist() == [tree.max_depth for tree in grown]
    here = np.arange(2**16 - 1, dtype=np.int32)  # a full tree, then one of as many leaves
    below = np.stack([np.where(here < 2**15 - 1, 2 * here + 1, here), here])
    arrays = Watched(left=below, right=np.where(below > here, below + 1, here))
    assert _count_levels(arrays).tolist() == [15, 0]
    assert arrays.n_looks < 3 * 16


def test_a_loaded_forest_walks_as_the_grown_one_did(fitted, tmp_path):
    detector, X, _ = fitted
    detector.save(tmp_path / "m.esad")
    loaded = esad.load(tmp_path / "m.esad")
    far = np.r_[X, 1e9 * X[:50]]
    np.testing.assert_array_equal(loaded.anomaly_score(far), detector.anomaly_score(far))
    np.testing.assert_array_equal(loaded.explain(X[:9]).total, detector.explain(X[:9]).total)


def test_three_thousand_rows_of_thirty_columns_take_about_a_second():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(3000, 30)), np.zeros(3000, dtype=int)
    X[:60, :3] += 2
    y[:30] = -1
    started = time.process_time()
    BaggedTrees(random_state=0).fit(X, y)
    assert time.process_time() - started < 10  # 0.3 s where nothing else runs
