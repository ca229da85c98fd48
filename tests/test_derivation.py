"""Checks docs/method.md: every exact step of the derivation, and the steps that are only approximations."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

Array = NDArray[np.float64]

seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(2, 6)
concentrations = st.sampled_from([0.3, 1.0, 10.0])


def draw_joint(rng: np.random.Generator, n_x: int, n_z: int, concentration: float = 1.0) -> Array:
    """Random strictly positive table p(x, z); rows are x, columns z."""
    table = rng.gamma(concentration, size=(n_x, n_z)) + 1e-9
    return np.asarray(table / table.sum())


def kl(p: Array, q: Array) -> float:
    return float(np.sum(p * np.log(p / q)))


def entropy(p: Array) -> float:
    positive = p[p > 0]
    return float(-np.sum(positive * np.log(positive)))


def mutual_information(joint: Array) -> float:
    positive = joint > 0
    independent = joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True)
    return float(np.sum(joint[positive] * np.log(joint[positive] / independent[positive])))


def given_x(joint: Array) -> Array:
    """The channel p(z | x), one row per x."""
    return np.asarray(joint / joint.sum(1, keepdims=True))


def cross_entropy_given_x(p: Array, q: Array) -> float:
    """E_{p(x)} H(p(z|x), q(z|x)), the third term of Eq. (2)."""
    return float(-np.sum(p * np.log(given_x(q))))


def kept(joint: Array) -> float:
    """I(X, Z) - H(Z): what Eq. (3) keeps of one divergence."""
    return mutual_information(joint) - entropy(joint.sum(0))


def dropped(p: Array, q: Array) -> float:
    """The third and fourth terms of Eq. (2): what Eq. (3) leaves out of KL[p || q]."""
    return cross_entropy_given_x(p, q) + kl(p.sum(1), q.sum(1))


@given(seeds, sizes, sizes, concentrations)
def test_eq_2_splits_the_divergence_exactly(seed: int, n_x: int, n_z: int, concentration: float) -> None:
    rng = np.random.default_rng(seed)
    normal, anomaly = (draw_joint(rng, n_x, n_z, concentration) for _ in range(2))
    four_terms = (
        mutual_information(normal)
        - entropy(normal.sum(0))
        + cross_entropy_given_x(normal, anomaly)
        + kl(normal.sum(1), anomaly.sum(1))
    )
    assert four_terms == pytest.approx(kl(normal, anomaly), rel=1e-9, abs=1e-12)


@given(seeds, sizes, sizes)
def test_proposition_1_is_the_chain_rule(seed: int, n_x: int, n_z: int) -> None:
    rng = np.random.default_rng(seed)
    normal, anomaly = draw_joint(rng, n_x, n_z), draw_joint(rng, n_x, n_z)
    per_x = [kl(p, q) for p, q in zip(given_x(normal), given_x(anomaly), strict=True)]
    chained = kl(normal.sum(1), anomaly.sum(1)) + float(normal.sum(1) @ np.array(per_x))
    assert chained == pytest.approx(kl(normal, anomaly), rel=1e-9, abs=1e-12)


@given(seeds, sizes, sizes)
def test_one_channel_for_both_classes_makes_the_divergence_independent_of_the_channel(
    seed: int, n_x: int, n_z: int
) -> None:
    rng = np.random.default_rng(seed)
    channel = given_x(draw_joint(rng, n_x, n_z))
    normal_x, anomaly_x = rng.dirichlet(np.ones(n_x)) + 1e-9, rng.dirichlet(np.ones(n_x)) + 1e-9
    normal_x, anomaly_x = normal_x / normal_x.sum(), anomaly_x / anomaly_x.sum()
    joint = kl(normal_x[:, None] * channel, anomaly_x[:, None] * channel)
    assert joint == pytest.approx(kl(normal_x, anomaly_x), rel=1e-9, abs=1e-12)


@given(seeds, sizes, sizes, concentrations)
def test_discrete_codes_satisfy_the_lower_bound(seed: int, n_x: int, n_z: int, concentration: float) -> None:
    rng = np.random.default_rng(seed)
    normal, anomaly = (draw_joint(rng, n_x, n_z, concentration) for _ in range(2))
    assert np.log(given_x(anomaly)).max() <= 0  # what proposition 3 assumes, free of charge here
    assert cross_entropy_given_x(normal, anomaly) >= 0
    assert kl(normal, anomaly) >= kept(normal)


@given(seeds, sizes, sizes)
def test_the_bound_is_minus_a_conditional_entropy(seed: int, n_x: int, n_z: int) -> None:
    joint = draw_joint(np.random.default_rng(seed), n_x, n_z)
    conditional = float(joint.sum(1) @ np.array([entropy(row) for row in given_x(joint)]))
    assert kept(joint) == pytest.approx(-conditional, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(("spread", "holds"), [(1.0, True), (0.01, False)])
def test_the_bound_needs_densities_below_one(spread: float, holds: bool) -> None:
    """Same X for both classes; Z|X is N(X, spread^2) for normals and N(X + 2 spread, spread^2) for anomalies."""
    n_draws = 40_000
    offset = np.random.default_rng(0).normal(0.0, spread, n_draws)  # z - x under the normal class

    def log_density(residual: Array) -> Array:
        return np.asarray(-0.5 * (residual / spread) ** 2 - math.log(spread * math.sqrt(2 * math.pi)))

    anomaly_log = log_density(offset - 2 * spread)
    divergence = float(np.mean(log_density(offset) - anomaly_log))
    bound = float(np.mean(log_density(offset)))  # I - H = -H(Z|X) = E log p_N(z|x)
    assert divergence == pytest.approx(2.0, abs=0.1)
    assert bool(anomaly_log.max() <= 0) is holds
    assert (divergence >= bound) is holds


@given(seeds, sizes, sizes)
def test_eq_3_misses_eq_1_by_the_difference_of_the_dropped_terms(seed: int, n_x: int, n_z: int) -> None:
    rng = np.random.default_rng(seed)
    normal, labelled, anomaly = (draw_joint(rng, n_x, n_z) for _ in range(3))
    eq_1 = kl(normal, anomaly) - kl(labelled, anomaly)
    eq_3 = kept(normal) - kept(labelled)
    gap = dropped(normal, anomaly) - dropped(labelled, anomaly)
    assert eq_1 - eq_3 == pytest.approx(gap, rel=1e-9, abs=1e-10)


def test_eq_3_is_neither_a_lower_nor_an_upper_bound_of_eq_1() -> None:
    rng = np.random.default_rng(0)
    gaps = []
    for _ in range(50):
        normal, labelled, anomaly = (draw_joint(rng, 3, 3) for _ in range(3))
        gaps.append(dropped(normal, anomaly) - dropped(labelled, anomaly))
    assert min(gaps) < -0.1 < 0.1 < max(gaps)


@given(seeds, sizes, sizes)
def test_any_decoder_bounds_the_mutual_information_from_below(seed: int, n_x: int, n_z: int) -> None:
    rng = np.random.default_rng(seed)
    joint = draw_joint(rng, n_x, n_z)
    decoder = draw_joint(rng, n_x, n_z)
    decoder = decoder / decoder.sum(0)  # q(x | z)
    exact = joint / joint.sum(0)  # p(x | z), where the bound is tight
    floor, tight = (entropy(joint.sum(1)) + float(np.sum(joint * np.log(q))) for q in (decoder, exact))
    assert floor <= mutual_information(joint) + 1e-12
    assert tight == pytest.approx(mutual_information(joint), rel=1e-9, abs=1e-12)


@given(seeds, sizes, sizes)
def test_a_second_encoder_can_lose_entropy_without_touching_the_first_code(seed: int, n_x: int, n_z: int) -> None:
    rng = np.random.default_rng(seed)
    joint = draw_joint(rng, n_x, n_z)
    merge = np.zeros((n_z, n_z))
    merge[np.arange(n_z), rng.integers(0, n_z, n_z)] = 1.0  # a deterministic map z -> z^
    second = joint @ merge
    assert entropy(second.sum(0)) <= entropy(joint.sum(0)) + 1e-12
    assert mutual_information(second) <= mutual_information(joint) + 1e-12


@settings(deadline=None)
@given(seeds, st.integers(1, 16), st.floats(0.01, 100.0))
def test_gaussian_entropy_of_proposition_4_matches_monte_carlo(seed: int, n_latent: int, sigma: float) -> None:
    rng = np.random.default_rng(seed)
    n_draws = 10_000
    mean = rng.normal(0.0, 50.0, n_latent)  # the entropy must not depend on it
    draws = mean + sigma * rng.normal(size=(n_draws, n_latent))
    squared = np.sum((draws - mean) ** 2, axis=1) / sigma**2
    log_density = -0.5 * squared - n_latent * math.log(sigma * math.sqrt(2 * math.pi))
    stated = n_latent / 2 * (1 + math.log(2 * math.pi * sigma**2))
    standard_error = math.sqrt(n_latent / 2 / n_draws)  # of the mean of chi^2_d / 2
    assert -float(log_density.mean()) == pytest.approx(stated, abs=6 * standard_error)


@given(st.lists(st.tuples(st.floats(1e-3, 1e3), st.floats(-1e3, 1e3)), min_size=1, max_size=8))
def test_the_squared_norm_bounds_the_entropy_of_a_code_that_is_not_gaussian(box: list[tuple[float, float]]) -> None:
    width, centre = np.array(box).T  # Z uniform on a box: entropy and second moment are known
    second_moment = float(np.sum(width**2 / 12 + centre**2))
    n_latent = len(box)
    ceiling = n_latent / 2 * math.log(2 * math.pi * math.e * second_moment / n_latent)
    assert float(np.log(width).sum()) <= ceiling


@given(st.integers(1, 256), st.floats(1e-3, 1e3))
def test_the_plain_norm_bounds_the_entropy_too(n_latent: int, sigma: float) -> None:
    """The density exp(-d |z| / r) has the largest entropy among those with E|z| = r."""
    log_ratio = math.lgamma((n_latent + 1) / 2) - math.lgamma(n_latent / 2)
    mean_norm = sigma * math.sqrt(2) * math.exp(log_ratio)  # of a centred Gaussian code
    log_sphere = math.log(2) + n_latent / 2 * math.log(math.pi) - math.lgamma(n_latent / 2)
    ceiling = n_latent * (math.log(mean_norm / n_latent) + 1) + log_sphere + math.lgamma(n_latent)
    assert n_latent / 2 * (1 + math.log(2 * math.pi * sigma**2)) <= ceiling


@settings(deadline=None)
@given(seeds, st.integers(2, 6))
def test_a_fresh_permutation_asks_for_the_flat_row_on_average(seed: int, n_features: int) -> None:
    rng = np.random.default_rng(seed)
    x, reconstruction = rng.normal(size=(2, n_features))
    flat = np.full(n_features, x.mean())
    every_order = [
        np.sum((reconstruction - x[list(order)]) ** 2) for order in itertools.permutations(range(n_features))
    ]
    expected = np.sum((reconstruction - flat) ** 2) + np.sum((x - flat) ** 2)
    assert float(np.mean(every_order)) == pytest.approx(float(expected), rel=1e-9)


def test_fresh_noise_alone_only_adds_a_constant_to_plain_reconstruction() -> None:
    rng = np.random.default_rng(0)
    x, reconstruction = rng.normal(size=(2, 5))
    noise = 0.1 * rng.normal(size=(200_000, 5))
    loss = np.mean(np.sum((reconstruction - (x + noise)) ** 2, axis=1))
    assert float(loss) == pytest.approx(float(np.sum((reconstruction - x) ** 2)) + 5 * 0.1**2, rel=1e-3)


@given(seeds, sizes, sizes, sizes, concentrations)
def test_a_change_that_can_be_told_from_the_code_bounds_its_information(seed, n_t, n_x, n_z, concentration):
    """Eq. (10): T -> X -> Z, so I(X, Z) >= I(T, Z) >= H(T) + E log q(t | z) for every q, and the true one is best."""
    rng = np.random.default_rng(seed)
    t_and_x = draw_joint(rng, n_t, n_x, concentration)
    channel = given_x(draw_joint(rng, n_x, n_z, concentration))
    x_and_z = t_and_x.sum(0)[:, None] * channel
    t_and_z = t_and_x @ channel
    told = t_and_z / t_and_z.sum(0)  # q = p(t | z)
    guessed = draw_joint(rng, n_t, n_z, concentration)
    guessed /= guessed.sum(0)
    bounds = [entropy(t_and_z.sum(1)) + float(np.sum(t_and_z * np.log(q))) for q in (told, guessed)]
    assert mutual_information(x_and_z) >= mutual_information(t_and_z) - 1e-12
    assert math.isclose(bounds[0], mutual_information(t_and_z), abs_tol=1e-9)
    assert bounds[1] <= bounds[0] + 1e-12


def contrast(p_x: Array, channel: Array, alike: Array, n_pictures: int) -> float:
    """The mean of L_contrast, Eq. (13), over all batches of so many pictures; `channel` is p(z | x, t), (x, t, z)."""
    n_turns, n_z = channel.shape[1:]
    n = n_pictures * n_turns
    codes = np.array(list(itertools.product(range(n_z), repeat=2 * n)))  # the first of each pair, then the second
    logits = alike[codes[:, :, None], codes[:, None, :]]
    right = logits[:, np.arange(2 * n), np.roll(np.arange(2 * n), n)]
    logits[:, np.arange(2 * n), np.arange(2 * n)] = -np.inf
    losses = (np.log(np.exp(logits).sum(2)) - right).mean(1)
    chances = np.zeros(len(codes))
    for drawn in itertools.product(range(len(p_x)), repeat=n_pictures):
        chance = np.full(len(codes), np.prod(p_x[list(drawn)]))
        for place in range(2 * n):
            picture, turn = divmod(place % n, n_turns)
            chance *= channel[drawn[picture], turn][codes[:, place]]
        chances += chance
    assert chances.sum() == pytest.approx(1.0)
    return float(chances @ losses)


@settings(deadline=None, max_examples=15)
@given(seeds, st.integers(1, 2), concentrations, st.sampled_from([0.5, 2.0, 8.0]))
def test_pairs_that_are_told_from_turned_copies_bound_the_information(seed, n_pictures, concentration, sharpness):
    """Eq. (13): whatever codes are alike, and though copies of a picture depend on each other."""
    rng = np.random.default_rng(seed)
    p_x, channel = rng.dirichlet(np.ones(3)), rng.gamma(concentration, size=(3, 2, 3)) + 1e-9
    channel /= channel.sum(2, keepdims=True)
    information = mutual_information((p_x[:, None, None] * channel / 2).reshape(6, 3))
    codes = (p_x[:, None, None] * channel / 2).reshape(6, 3)
    pairs = np.einsum("ga,gb->ab", codes, codes / codes.sum(1, keepdims=True))
    best = np.log(pairs / np.outer(pairs.sum(0), pairs.sum(1)))
    for alike in (best, sharpness * rng.normal(size=(3, 3))):
        assert math.log(2 * n_pictures) - contrast(p_x, channel, alike, n_pictures) <= information + 1e-9


def test_the_logarithm_of_all_choices_would_claim_too_much():
    """Codes that tell the turn and nothing else: log 2 is all they hold."""
    loss = contrast(np.ones(1), np.eye(2)[None], 50 * np.eye(2), 1)
    assert math.log(2) - loss <= math.log(2) < math.log(3) - loss
