"""Two stains are told apart, and one laboratory's pictures come out in another's colours."""

import numpy as np
import pytest

from esad.datasets.stain import find_concentrations, find_stain_colours, normalise, optical_density

OURS = np.array([[0.65, 0.70, 0.29], [0.07, 0.99, 0.11]])
THEIRS = np.array([[0.50, 0.75, 0.43], [0.25, 0.90, 0.35]])


def unit(colours):
    return colours / np.linalg.norm(colours, axis=1, keepdims=True)


def dyed(colours, *, seed=0, side=64):
    """A picture of known amounts of two stains."""
    rng = np.random.default_rng(seed)
    amounts = rng.gamma(2.0, 0.4, (side, side, 2)) * (rng.random((side, side, 2)) < 0.6)
    return np.round(255 * np.exp(-amounts @ unit(colours))).astype(np.uint8), amounts


@pytest.mark.parametrize("colours", [OURS, THEIRS, OURS[::-1]], ids=["ours", "theirs", "swapped"])
def test_a_mixture_of_two_stains_is_separated(colours):
    picture, amounts = dyed(colours)
    order = np.argsort(-colours[:, 0])  # what absorbs more red comes first
    found = find_stain_colours(picture)
    assert np.linalg.norm(found, axis=1) == pytest.approx([1, 1])
    assert (found >= 0).all()
    cosines = (found * unit(colours)[order]).sum(axis=1)
    assert cosines.min() > 0.995
    told = find_concentrations(optical_density(picture), found).reshape(amounts.shape)
    for index, stain in enumerate(order):
        assert np.corrcoef(told[..., index].ravel(), amounts[..., stain].ravel())[0, 1] > 0.98


def test_codes_are_the_best_non_negative_ones():
    from sklearn.decomposition import sparse_encode

    picture, _ = dyed(OURS, side=16)
    density = optical_density(picture)
    exact = sparse_encode(density, unit(OURS), algorithm="lasso_cd", alpha=0.01, positive=True, max_iter=10_000)
    assert np.abs(find_concentrations(density, unit(OURS)) - exact).max() < 1e-3


def test_pictures_come_out_in_the_targets_colours():
    wanted, _ = dyed(OURS)
    foreign, _ = dyed(THEIRS)  # the same tissue, dyed elsewhere
    normalised = normalise(foreign, find_stain_colours(wanted))
    distance = [np.abs(picture.astype(float) - wanted).mean() for picture in (foreign, normalised)]
    assert distance[1] < 0.35 * distance[0]


def test_only_the_part_shown_is_computed_from_the_stains_of_all():
    picture, _ = dyed(THEIRS)
    target = unit(OURS)
    shown = (slice(10, 30), slice(5, 15))
    assert (normalise(picture, target, shown=shown) == normalise(picture, target)[shown]).all()


@pytest.mark.parametrize("value", [255, 250])
def test_glass_without_tissue_is_left_alone(value):
    glass = np.full((16, 16, 3), value, dtype=np.uint8)
    assert find_stain_colours(glass) is None
    assert (normalise(glass, unit(OURS)) >= value).all()


def test_black_and_one_colour_do_no_harm():
    assert normalise(np.zeros((16, 16, 3), dtype=np.uint8), unit(OURS)).shape == (16, 16, 3)
    flat = np.broadcast_to(np.array([120, 60, 150], dtype=np.uint8), (32, 32, 3))
    assert normalise(flat, unit(OURS)).dtype == np.uint8
