"""SS-DGM: bounds against plain numpy in float64 and against the exact densities of linear models; what it learns."""

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.special import expit, logsumexp
from support import perceptrons, tiny

import esad
from esad import SSDGM, evaluate, registry
from esad.core.random import MemberRandom
from esad.datasets import scenario
from esad.errors import InputError, ModelFileError
from esad.methods.ss_dgm import Latent, M1M2Objective, M1Objective, M2Objective, log_density
from esad.networks.spec import NetworkSpec
from esad.persist import bundle
from esad.train.objective import Batch

MEMBERS, FEATURES, N, M, LATENT = 2, 5, 9, 4, 3
SPEC = NetworkSpec("mlp", in_shape=(FEATURES,), hidden=(7, 4), latent=LATENT, n_members=MEMBERS)
LINEAR = NetworkSpec("mlp", in_shape=(FEATURES,), hidden=(), latent=1)


def streams(seed=5, members=MEMBERS):
    return MemberRandom(range(seed, seed + members), dtype=torch.float64)


def made(objective):
    objective.double().reset(streams(1, objective.n_members))
    return objective


def m2(spec=SPEC, anomaly_ratio=0.2, alpha=3.0):
    return made(M2Objective(spec, anomaly_ratio=anomaly_ratio, alpha=alpha))


def batch_of(n=N, m=M, members=MEMBERS):
    rng = np.random.default_rng(0)
    rows = [torch.from_numpy(rng.normal(size=(members, count, FEATURES))) for count in (n, m)]
    y = torch.tensor([[-1.0, 1, -1, -1]] * members, dtype=torch.float64)[:, :m]
    return Batch(*rows, y, streams(members=members))


def set_layer(network, matrix, bias):
    """Give a network of one layer its weights, (out, in), and bias, (out,)."""
    with torch.no_grad():
        network.weights.copy_(torch.from_numpy(np.r_[np.ravel(matrix), bias][None]))


# ---------------------------------------------------------------------- parts


def test_the_divergence_is_that_of_two_gaussians():
    rng = np.random.default_rng(0)
    latent = Latent.of(torch.from_numpy(rng.normal(size=(2, 6, 8))))
    q = torch.distributions.Normal(latent.mean, latent.log_variance.exp().sqrt())
    wanted = torch.distributions.kl_divergence(q, torch.distributions.Normal(0.0, 1.0)).sum(2)
    np.testing.assert_allclose(latent.divergence(), wanted, rtol=1e-12)


def test_draws_have_the_mean_and_variance_of_the_latent():
    latent = Latent(torch.full((2, 40_000, 1), 3.0), torch.full((2, 40_000, 1), np.log(4.0)))
    drawn = latent.sample(streams())
    assert drawn.mean().item() == pytest.approx(3.0, abs=0.03)
    assert drawn.var().item() == pytest.approx(4.0, rel=0.03)


def test_columns_are_gaussian_and_pixels_bernoulli():
    rng = np.random.default_rng(0)
    x, mean = rng.normal(size=(2, 1, 3, 4))
    found = log_density(torch.from_numpy(x), torch.from_numpy(mean), std=0.3)
    np.testing.assert_allclose(found, stats.norm(mean, 0.3).logpdf(x).sum(2), rtol=1e-12)
    pixels, logits = rng.integers(0, 2, size=(1, 3, 2, 4, 4)).astype(float), rng.normal(size=(1, 3, 2, 4, 4))
    found = log_density(torch.from_numpy(pixels), torch.from_numpy(logits), std=1.0)
    np.testing.assert_allclose(found, stats.bernoulli(expit(logits)).logpmf(pixels).sum((2, 3, 4)), rtol=1e-12)


# ---------------------------------------------------------------------- M2, equation by equation


def bound_by_hand(objective, x, y, noise):
    """Eq. (2) with the given draw of standard normal noise."""
    output = perceptrons(objective.encoder, np.concatenate([x, y[:, :, None]], axis=2), training=True)
    mean, log_variance = output[:, :, :LATENT], output[:, :, LATENT:]
    z = mean + np.exp(log_variance / 2) * noise
    rebuilt = perceptrons(objective.decoder, np.concatenate([z, y[:, :, None]], axis=2), training=True)
    density = stats.norm(rebuilt, 1.0).logpdf(x).sum(2)
    divergence = 0.5 * (mean**2 + np.exp(log_variance) - 1 - log_variance).sum(2)
    return density + np.where(y == 1, np.log(0.2), np.log(0.8)) - divergence


def test_the_loss_is_equation_4():
    objective, batch = m2(), batch_of()
    u, labelled = batch.unlabelled.numpy(), batch.labelled.numpy()
    y = (batch.y.numpy() < 0).astype(float)
    noise = streams().normal(2 * N + M, LATENT).numpy()
    rows = np.concatenate([u, u, labelled], axis=1)
    classes = np.concatenate([np.zeros((MEMBERS, N)), np.ones((MEMBERS, N)), y], axis=1)
    bound = bound_by_hand(objective, rows, classes, noise)
    output = perceptrons(objective.classifier, np.concatenate([u, labelled], axis=1), training=True)[:, :, 0]
    q = expit(np.log(0.2 / 0.8) + output)

    q_u, q_l = q[:, :N], q[:, N:]
    entropy = -q_u * np.log(q_u) - (1 - q_u) * np.log(1 - q_u)
    unlabelled = -((1 - q_u) * bound[:, :N] + q_u * bound[:, N : 2 * N] + entropy)
    found = objective.loss(batch)
    np.testing.assert_allclose(found["unlabelled"].detach(), unlabelled.mean(1), rtol=1e-9)
    np.testing.assert_allclose(found["labelled"].detach(), -bound[:, 2 * N :].mean(1), rtol=1e-9)
    wanted = -3.0 * np.log(np.where(y == 1, q_l, 1 - q_l)).mean(1)
    np.testing.assert_allclose(found["classification"].detach(), wanted, rtol=1e-9)


@pytest.mark.parametrize(("n", "m"), [(N, 0), (0, M)])
@pytest.mark.parametrize("model", [M2Objective, M1M2Objective])
def test_a_part_without_rows_drops_out(model, n, m):
    terms = made(model(SPEC, anomaly_ratio=0.1, alpha=1.0)).train().loss(batch_of(n, m))
    assert all(torch.isfinite(term).all() for term in terms.values())
    assert (terms["unlabelled"] != 0).all() == (n > 0)
    assert (terms["labelled"] != 0).all() == (m > 0)
    assert (terms["classification"] != 0).all() == (m > 0)


# ---------------------------------------------------------------------- linear models, whose densities are known


def linear_parts():
    """p(x | y, z) = N(shift + y step + w z, std^2): then x is Gaussian given y, and z given x and y as well."""
    rng = np.random.default_rng(3)
    shift, step, w, x = rng.normal(size=(4, FEATURES))
    return shift, 0.7 * step, w, x


def exact_latent(w, std):
    """Slope of the mean in x - E[x | y], and the variance, of p(z | x, y)."""
    variance = 1 / (1 + w @ w / std**2)
    return variance * w / std**2, variance


def copies(x, n_copies):
    rows = torch.from_numpy(np.tile(x, (1, n_copies, 1)))
    none = torch.empty((1, 0), dtype=torch.float64)
    return Batch(rows, rows[:, :0], none, streams(members=1))


def test_m1_with_the_exact_posterior_bounds_the_log_density_tightly():
    shift, _, w, x = linear_parts()
    objective = made(M1Objective(LINEAR))
    set_layer(objective.decoder, w, shift)
    slope, variance = exact_latent(w, 0.3)
    set_layer(objective.encoder, np.c_[slope, np.zeros(FEATURES)].T, [-slope @ shift, np.log(variance)])
    exact = stats.multivariate_normal(shift, np.outer(w, w) + 0.09 * np.eye(FEATURES)).logpdf(x)
    found = sum(term.item() for term in objective.loss(copies(x, 50_000)).values())
    assert found == pytest.approx(-exact, abs=0.02)
    set_layer(objective.encoder, np.c_[slope, np.zeros(FEATURES)].T, [-slope @ shift + 0.3, np.log(variance)])
    worse = sum(term.item() for term in objective.loss(copies(x, 50_000)).values())
    assert worse - found == pytest.approx(0.3**2 / variance / 2, rel=0.05)  # the KL between the two posteriors


@pytest.mark.parametrize("off", [0.0, 0.8])
def test_m2_with_the_exact_posterior_bounds_the_log_density_tightly(off):
    shift, step, w, x = linear_parts()
    ratio = 0.2
    objective = m2(LINEAR, anomaly_ratio=ratio)
    set_layer(objective.decoder, np.c_[w, step], shift)
    slope, variance = exact_latent(w, 1.0)
    rows = np.array([[*slope, -slope @ step], np.zeros(FEATURES + 1)])
    set_layer(objective.encoder, rows, [-slope @ shift, np.log(variance)])
    covariance = np.outer(w, w) + np.eye(FEATURES)
    normal, anomaly = (stats.multivariate_normal(shift + y * step, covariance).logpdf(x) for y in (0, 1))
    set_layer(objective.classifier, np.zeros(FEATURES), [anomaly - normal + off])
    exact = logsumexp([normal + np.log(1 - ratio), anomaly + np.log(ratio)])

    for y, density in ((0.0, normal + np.log(1 - ratio)), (1.0, anomaly + np.log(ratio))):
        batch = copies(x, 50_000)
        found = objective.bound(batch.unlabelled, torch.full((1, 50_000), y, dtype=torch.float64), batch.random)
        assert found.mean().item() == pytest.approx(density, abs=0.02)  # -L(x, y) = log p(x, y)
    posterior = expit(anomaly - normal + np.log(ratio / (1 - ratio)))
    q = expit(anomaly - normal + off + np.log(ratio / (1 - ratio)))
    gap = q * np.log(q / posterior) + (1 - q) * np.log((1 - q) / (1 - posterior))
    found = objective.loss(copies(x, 50_000))["unlabelled"].item()
    assert found == pytest.approx(gap - exact, abs=0.02)  # U(x) = -log p(x) where q(y | x) is exact


# ---------------------------------------------------------------------- what it learns


def test_training_starts_at_the_share_of_anomalies():
    objective = m2(anomaly_ratio=0.03).eval()
    with torch.no_grad():
        objective.classifier.weights.zero_()
    q = objective.scorer()(torch.zeros(4, FEATURES, dtype=torch.float64))["logit"].sigmoid()
    np.testing.assert_allclose(q, 0.03)


def test_labelled_rows_move_the_classification_their_way():
    objective, batch = m2(), batch_of()
    optimizer = torch.optim.SGD(objective.parameters(), lr=0.05)

    def logits():
        with torch.no_grad():
            return objective.classifier(batch.labelled).squeeze(2)

    before = logits()
    for _ in range(30):
        optimizer.zero_grad()
        objective.loss(batch)["classification"].sum().backward()
        optimizer.step()
    moved, is_anomaly = logits() - before, batch.y < 0
    assert moved[is_anomaly].mean() > 0
    assert moved[~is_anomaly].mean() < 0


@pytest.mark.parametrize("variant", ["m2", "m1+m2"])
def test_anomalies_as_the_only_labels_do_not_make_every_row_an_anomaly(variant, rows):
    X, y = rows
    y = np.where(y == 1, 0, y)
    detector = SSDGM(variant=variant, pretrain_epochs=300, n_epochs=300, random_state=0).fit(X, y)
    q = expit(detector.anomaly_score(X))
    assert q[:90].mean() < 0.1
    assert q[95:].mean() > 0.8  # labelled
    assert q[90:95].mean() > 0.8  # like them, and not labelled


@pytest.mark.extra
def test_pictures_with_anomalies_as_the_only_labels_rank_the_right_way(data_folder):
    """Without a start at p(y) every unlabelled picture becomes an anomaly here, and the AUC is 0.11."""
    fashion = registry.load_data_set("fashion_mnist")
    part = scenario.images(fashion, normal_class=3, labelled_classes=(6,), n_normal=300, labelled_ratio=0.05, seed=0)
    detector = SSDGM(hidden=(4, 8), batch_size=64, n_epochs=20, random_state=0).fit(part.X_train, part.y_train)
    assert evaluate(detector.anomaly_score(part.X_test[:2000]), part.truth_test[:2000]).auc > 0.7
    assert expit(detector.anomaly_score(part.X_train[part.y_train == 0])).mean() < 0.2


# ---------------------------------------------------------------------- M1+M2


def test_m1_stays_as_it_was_trained(rows):
    kept = []

    class Keep:
        def on_start(self, state):
            if isinstance(state.objective, M1M2Objective):
                kept.append({name: value.clone() for name, value in state.objective.encoder.state_dict().items()})

        on_step = on_end = on_start

    detector = tiny("ss_dgm", variant="m1+m2").fit(*rows, callbacks=[Keep()])
    assert len(kept) > 2
    for state in (*kept, detector.objective_.encoder.state_dict()):
        assert all(torch.equal(value, kept[0][name]) for name, value in state.items())


def test_m1_plus_m2_scores_mean_codes(rows):
    detector = tiny("ss_dgm", variant="m1+m2", precision="float64").fit(*rows)
    objective = detector.objective_
    x = detector.inputs_.transform(rows[0]).astype(np.float64)
    codes = perceptrons(objective.encoder, np.stack([x, x]))[:, :, : detector.network_.latent]
    wanted = np.log(0.1 / 0.9) + perceptrons(objective.model.classifier, codes)[:, :, 0]
    np.testing.assert_allclose(detector.anomaly_score(rows[0]), wanted.mean(0), rtol=1e-9)


def test_m1_learns_from_all_rows_and_m2_from_the_labels(rows):
    X, y = rows
    first, last = SSDGM(variant="m1+m2")._phases(X.astype(np.float32), y.astype(np.int8), torch.device("cpu"))
    assert isinstance(first.objective, M1Objective)
    assert (first.y == 0).all()
    assert isinstance(last.objective, M1M2Objective)
    assert last.y is None


def test_the_bound_of_m1_is_worse_for_a_row_unlike_the_others(rows):
    objective = m1_trained_on(rows[0][:90])
    bound = objective.scorer()(torch.from_numpy(np.r_[rows[0][:90], np.full((1, 4), 9.0)]))["bound"]
    assert (bound[:, -1] > bound[:, :-1].max(1).values).all()


def m1_trained_on(X):
    spec = NetworkSpec("mlp", in_shape=(4,), hidden=(8,), latent=2, n_members=MEMBERS)
    objective, random = made(M1Objective(spec)), streams()
    x = torch.from_numpy(X).expand(MEMBERS, *X.shape)
    optimizer = torch.optim.Adam(objective.parameters(), lr=1e-2)
    for _ in range(100):
        optimizer.zero_grad()
        sum(objective.loss(Batch(x, x[:, :0], x[:, :0, 0], random)).values()).sum().backward()
        optimizer.step()
    return objective.eval()


@pytest.mark.parametrize("kind", ["table", "images"])
def test_both_variants_come_back_from_a_file_and_are_told_apart(kind, rows, tmp_path):
    X, y = rows
    X = X if kind == "table" else np.random.default_rng(0).random((100, 10, 10))
    paths = {}
    for variant in ("m2", "m1+m2"):
        detector = tiny("ss_dgm", variant=variant, n_epochs=1).fit(X, y)
        paths[variant] = tmp_path / f"{variant}.esad"
        detector.save(paths[variant])
        np.testing.assert_array_equal(esad.load(paths[variant]).anomaly_score(X), detector.anomaly_score(X))
    manifest, tensors = bundle.read(paths["m1+m2"])
    own = {key: value for key, value in manifest.items() if key not in bundle._STATED}
    own["parameters"]["variant"] = "m2"
    bundle.write(paths["m1+m2"], own, tensors)
    with pytest.raises(ModelFileError, match="not those of the network"):
        esad.load(paths["m1+m2"])


def test_wrong_arguments_are_refused(rows):
    wrong = [{"variant": "m3"}, {"network": "conv"}, {"anomaly_ratio": 0}, {"anomaly_ratio": 1.0}, {"alpha": -1}]
    for arguments in wrong:
        with pytest.raises(InputError, match=f"`{next(iter(arguments))}` must be"):
            SSDGM(**arguments).fit(*rows)
