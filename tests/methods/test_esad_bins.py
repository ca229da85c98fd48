"""Members that see columns as places within quantile bins, against plain numpy in float64."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support import perceptrons, tiny

from esad import ESAD
from esad.core.random import MemberRandom
from esad.datasets.scenario import Scenario
from esad.detectors.stacked import can_stack, fit_stack
from esad.errors import InputError
from esad.methods.esad.loss import ESADObjective, LossSettings
from esad.methods.esad.recipe import Recipe
from esad.methods.esad.views import BinnedView, Bins
from esad.networks.spec import NetworkSpec
from esad.train.objective import Batch

N_BINS, N_COLUMNS, N_MEMBERS = 4, 5, 3
EDGES = np.linspace(0, 1, N_BINS + 1)


@pytest.fixture(scope="module")
def rows():
    """Two skewed columns, one of three values, one of two, one constant."""
    rng = np.random.default_rng(0)
    few, two = rng.choice([-1.0, 0.0, 2.0], 300, p=[0.5, 0.4, 0.1]), rng.choice([0.0, 1.0], 300)
    skewed = np.exp(rng.normal(size=(300, 2)))
    return np.c_[skewed, few, two, np.full(300, 3.0)].astype(np.float32)


@pytest.fixture(scope="module")
def bins(rows):
    found = Bins(N_COLUMNS, (0, N_BINS, 0)).double()
    found.learn(rows)
    return found


def places(rows, column):
    """Eq. (a) of one column, standardised, (n, bins that there are)."""
    x = rows[:, column].astype(np.float64)
    edges = np.unique(np.quantile(x, EDGES))
    found = []
    for index, (low, high) in enumerate(pairwise(edges)):
        least, most = -1.0 * (index == 0), 1.0 + (index == len(edges) - 2)
        found.append(np.clip((x - low) / (high - low), least, most))
    return (
        np.stack([(one - one.mean()) / max(one.std(), 0.05) for one in found], axis=1) if found else x[:, None][:, :0]
    )


def seen(bins, rows):
    x = torch.from_numpy(rows.astype(np.float64))
    return bins(x.expand(N_MEMBERS, *x.shape)).unflatten(2, (N_BINS, N_COLUMNS)).numpy()


class TestBins:
    def test_places_are_those_of_numpy(self, bins, rows):
        found = seen(bins, rows)[1]
        exists = bins.exists[1].numpy().astype(bool)
        assert exists.sum(0).tolist() == [4, 4, 2, 1, 0]
        for column in range(N_COLUMNS):
            wanted = places(rows, column)
            np.testing.assert_allclose(found[:, exists[:, column], column], wanted, atol=1e-9)
        assert (found[:, ~exists] == 0).all()
        assert float(bins.ratio[1]) == 11 / 5

    def test_other_members_see_the_columns(self, bins, rows):
        found = seen(bins, rows)[0]
        np.testing.assert_array_equal(found[:, 0], rows)
        assert (found[:, 1:] == 0).all()
        assert float(bins.ratio[0]) == 1

    @given(share=st.floats(0, 1))
    def test_columns_come_back(self, bins, rows, share):
        x = torch.from_numpy(np.quantile(rows.astype(np.float64), [share], axis=0))
        x[:, 4] = 0.0  # a constant column has no bins, and comes back as nothing
        back = bins.back(bins(x.expand(N_MEMBERS, *x.shape)))
        np.testing.assert_allclose(back.numpy(), x.expand(N_MEMBERS, *x.shape), atol=1e-9)

    def test_far_outside_a_column_counts_no_more(self, bins):
        near, far = (torch.full((1, N_COLUMNS), value).double() for value in (1e4, 1e8))
        views = [bins(x.expand(N_MEMBERS, *x.shape)) for x in (near, far)]
        assert (views[0][1] == views[1][1]).all()
        assert (views[0][0] != views[1][0]).any()

    def test_scoring_sees_the_same(self, bins, rows):
        x = torch.from_numpy(rows[:9].astype(np.float64))
        binned = torch.tensor([1])
        wanted = bins(x.expand(N_MEMBERS, *x.shape))[binned]
        np.testing.assert_allclose(bins.freeze(binned)(x).transpose(1, 2), wanted, atol=1e-12)

    def test_rows_that_are_all_alike_have_no_bins(self):
        alike = Bins(2, (0, 3))
        alike.learn(np.ones((4, 2), np.float32))
        assert alike.exists[1].sum() == 0
        assert (alike.ratio > 0).all()


@pytest.fixture(params=["sum", "mean"])
def objective(request, rows):
    spec = NetworkSpec("mlp", in_shape=(N_COLUMNS,), hidden=(7, 4), latent=3, n_members=N_MEMBERS)
    settings = LossSettings(bins=(0, N_BINS, 0), phi="none", reduction=request.param, input_noise=(0.0,) * N_MEMBERS)
    found = ESADObjective(spec, settings)
    found.double().view.bins.learn(rows)
    found.reset(MemberRandom([1, 2, 3], dtype=torch.float64))
    return found


def numpy_terms(objective, x, *, training):
    """Errors (members, rows, columns) by Eq. (a), and both codes, of rows (members, rows, columns)."""
    features = objective.view.bins(torch.from_numpy(x)).numpy()
    exists, ratio = objective.view.bins.exists.flatten(1).numpy(), objective.view.bins.ratio.numpy()
    z = perceptrons(objective.encoder_1, features, training=training)
    rebuilt = perceptrons(objective.decoder, z, training=training) * exists[:, None]
    z_hat = perceptrons(objective.encoder_2, rebuilt, training=training)
    squares = ((rebuilt - features) ** 2).reshape(*x.shape[:2], N_BINS, N_COLUMNS).sum(2)
    squares /= ratio[:, None, None]
    return squares / (1 if objective.settings.reduction == "sum" else N_COLUMNS), z, z_hat


def test_the_loss_is_that_of_numpy(objective, rows):
    x = rows[:18].astype(np.float64).reshape(1, 18, N_COLUMNS).repeat(N_MEMBERS, axis=0)
    y = np.tile([-1.0, 1.0, -1.0, 1.0, -1.0, -1.0], (N_MEMBERS, 1))
    unlabelled, labelled = torch.from_numpy(x[:, :12]), torch.from_numpy(x[:, 12:])
    batch = Batch(unlabelled, labelled, torch.from_numpy(y), MemberRandom([5, 6, 7], dtype=torch.float64))
    errors, z, z_hat = numpy_terms(objective, x, training=True)
    reduce = np.sum if objective.settings.reduction == "sum" else np.mean
    error, norm = errors.sum(2), np.sqrt(reduce(z_hat**2, axis=2))
    wanted = {
        "reconstruction": error[:, :12].mean(1) + error[:, 12:].mean(1),
        "norm": norm[:, :12].mean(1) + (norm[:, 12:] ** y).mean(1),
        "assist": reduce((z_hat - z) ** 2, axis=2).mean(1),
    }
    found = objective.loss(batch)
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name].detach(), value, rtol=1e-9, err_msg=name)


def test_score_and_summands_are_those_of_numpy(objective, rows):
    objective.eval()
    x = torch.from_numpy(rows[:9].astype(np.float64))
    errors, _, z_hat = numpy_terms(objective, x.expand(N_MEMBERS, *x.shape).numpy(), training=False)
    reduce = np.sum if objective.settings.reduction == "sum" else np.mean
    with torch.no_grad():
        terms, summands = objective.scorer()(x), objective.summands()(x)["reconstruction"]
    np.testing.assert_allclose(terms["reconstruction"], errors.sum(2), rtol=1e-9)
    np.testing.assert_allclose(terms["norm"], np.sqrt(reduce(z_hat**2, axis=2)), rtol=1e-9)
    np.testing.assert_allclose(summands, errors, rtol=1e-9)


def test_noise_is_on_features_that_exist_and_as_strong_against_a_column_as_it_was(rows):
    spec = NetworkSpec("mlp", in_shape=(N_COLUMNS,), hidden=(4,), latent=2, n_members=2)
    objective = ESADObjective(spec, LossSettings(bins=(0, N_BINS), input_noise=(0.5, 0.5)))
    objective.view.bins.learn(rows)
    still = torch.zeros(2, 4000, N_BINS * N_COLUMNS)
    noise = objective.view.disturb(still, 4000, MemberRandom([1, 2])).std(1)
    exists = objective.view.bins.exists.flatten(1) > 0
    assert (noise[~exists] == 0).all()
    np.testing.assert_allclose(noise[0][exists[0]], 0.5, rtol=0.1)
    np.testing.assert_allclose(noise[1][exists[1]], 0.5 * np.sqrt(11 / 5), rtol=0.1)


def test_initial_weights_are_as_large_as_without_room_for_bins(rows):
    spec = NetworkSpec("mlp", in_shape=(N_COLUMNS,), hidden=(50,), latent=2, n_members=2)
    with_room, without = ESADObjective(spec, LossSettings(bins=(0, N_BINS))), ESADObjective(spec, LossSettings())
    with_room.view.bins.learn(rows)
    for objective in (with_room, without):
        objective.reset(MemberRandom([1, 2]))
    largest = [objective.encoder_1.layers()[0][0][0].abs().max().item() for objective in (with_room, without)]
    np.testing.assert_allclose(*largest, rtol=0.05)


class TestDetector:
    @pytest.mark.parametrize(("n_members", "n_binned"), [(2, 1), (3, 1), (5, 2), (10, 4)])
    def test_two_of_five_members_see_bins(self, rows, n_members, n_binned):
        detector = tiny("esad", n_members=n_members).fit(rows)
        assert np.count_nonzero(detector.objective_.view.bins.n_bins) == n_binned

    @pytest.mark.parametrize(("n_features", "bins"), [(275, 4), (276, 3), (366, 3), (367, 2), (5000, 2)])
    def test_wide_tables_have_fewer(self, n_features, bins):
        recipe = ESAD().recipe_for((n_features,), np.zeros(100, np.int8))
        assert recipe.loss.bins == (0, bins, 0, bins, 0)

    def test_each_member_may_have_its_own_number(self, rows):
        detector = tiny("esad", n_members=3, bins=[2, 4]).fit(rows)
        exists = detector.objective_.view.bins.exists
        assert exists[:, :, 0].sum(1).tolist() == [2, 4, 2]  # of a column with many values
        assert np.isfinite(detector.anomaly_score(rows)).all()

    def test_fits_side_by_side_are_those_alone(self, rows):
        """The second part has other edges, and other members see bins than if their numbers went on."""
        drawn = [Scenario(x, np.zeros(len(x), np.int8), x[:9], np.zeros(9, bool)) for x in (rows, rows[::-1] * 2)]
        stacked = [tiny("esad", n_members=3, random_state=seed) for seed in (0, 1)]
        assert can_stack(stacked, drawn)
        assert fit_stack(stacked, drawn)
        for seed, (detector, one) in enumerate(zip(stacked, drawn, strict=True)):
            alone = tiny("esad", n_members=3, random_state=seed).fit(one.X_train)
            assert detector.objective_.view.bins.n_bins == (0, 4, 0)
            np.testing.assert_allclose(detector.anomaly_score(rows), alone.anomaly_score(rows), rtol=1e-3, atol=1e-3)

    @pytest.mark.parametrize("changes", [{"n_members": 1}, {"bins": 0}])
    def test_there_may_be_none(self, rows, changes):
        assert not isinstance(tiny("esad", **changes).fit(rows).objective_.view, BinnedView)

    def test_member_k_is_the_same_network_whatever_the_number_of_members(self, rows):
        few, many = (tiny("esad", n_members=n).fit(rows).objective_.state_dict() for n in (2, 5))
        for name, value in few.items():
            if not name.startswith(("centre", "spread")):
                np.testing.assert_allclose(many[name][:2], value, rtol=1e-4, atol=1e-5, err_msg=name)

    @pytest.mark.filterwarnings("ignore:`y` labels every row")
    @pytest.mark.parametrize("others", [0, 1])
    def test_edges_come_from_presumed_normal_rows(self, rows, others):
        y = np.full(len(rows), others)
        y[:20] = -1
        strange = rows.copy()
        strange[:20] *= 1000
        edges = [
            tiny("esad", scaling="standard", column_weights=0.0).fit(x, y).objective_.view.bins.slope
            for x in (rows, strange)
        ]
        assert (edges[0] == edges[1]).all()

    @pytest.mark.parametrize("bins", [-1, 65, 2.5, "many", True, [], np.array(4), [4, -1], [4, "auto"]])
    def test_wrong_numbers_are_named(self, rows, bins):
        with pytest.raises(InputError, match="`bins`"):
            tiny("esad", bins=bins).fit(rows)

    def test_pictures_have_none(self):
        pictures = np.random.default_rng(0).integers(0, 256, size=(20, 16, 16), dtype=np.uint8)
        with pytest.raises(InputError, match="`bins` is for a table"):
            tiny("esad", bins=4, hidden=(4, 4)).fit(pictures)

    @pytest.mark.parametrize("bins", [[-1, 0], [10**9, 4], [2.0, 0], [True, 0], [4], [4, 4, 4]])
    def test_a_forged_number_in_a_file_is_refused(self, rows, bins):
        plain = tiny("esad").fit(rows).recipe_.to_json()
        plain["loss"]["bins"] = bins
        with pytest.raises(InputError):
            Recipe.from_json(plain)

    def test_a_recipe_of_an_older_version_has_none(self, rows):
        plain = tiny("esad", bins=0).fit(rows).recipe_.to_json()
        del plain["loss"]["bins"]
        assert Recipe.from_json(plain).loss.bins == ()
