"""Stain normalisation of tissue pictures after Vahadane et al. (2016), which makes two laboratories' dyes look alike.

    V = -log(I / 255) = C D                    optical density; a sum of what the two stains absorb
    D, C = argmin 1/2 |V - C D|^2 + l |C|_1    sparse and non-negative: a pixel is mostly of one stain

V  (pixels, 3)  optical density of red, green and blue
D  (2, 3)       colours of haematoxylin and eosin, rows of length one
C  (pixels, 2)  how much of each stain there is

A picture's own D is replaced by that of a target picture, its C stays. Vahadane et al. also stretch C to the target's
99th percentile, over a whole slide. Done tile by tile that would level out how dense the nuclei are, and the tiles of
the paper are not stretched, so it is left out here.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from esad.core.arrays import Floats

Picture = NDArray[np.uint8]

_DICTIONARY_PENALTY: Final = 0.1
_CODE_PENALTY: Final = 0.01
_MAX_PIXELS: Final = 1000  # that the colours are learned from
_MIN_PIXELS: Final = 50
_TISSUE_LUMINANCE: Final = ((80 + 16) / 116) ** 3  # lightness L* below 80; above it is glass
_LUMINANCE: Final = np.array([0.2126, 0.7152, 0.0722])


def normalise(picture: Picture, target: Floats, *, shown: tuple[slice, slice] = (slice(None), slice(None))) -> Picture:
    """Show a picture in the stains of a target; a picture with next to no tissue only gets its brightness.

    Parameters
    ----------
    picture : ndarray of uint8, shape (height, width, 3)
        RGB.
    target : ndarray of shape (2, 3)
        `find_stain_colours` of the target picture.
    shown : tuple of two slices
        Rows and columns wanted; the stains are learned from the whole picture all the same.
    """
    bright = _brighten(picture)
    colours = _colours(bright)
    bright = bright[shown]
    if colours is None:
        return bright
    density = find_concentrations(optical_density(bright), colours) @ target
    return np.round(255 * np.exp(-density)).astype(np.uint8).reshape(bright.shape)


def find_stain_colours(picture: Picture) -> Floats | None:
    """Colours of the two stains of a picture as optical densities, haematoxylin first; None without tissue.

    Returns
    -------
    ndarray of shape (2, 3) or None
        Rows have length one.
    """
    return _colours(_brighten(picture))


def _colours(picture: Picture) -> Floats | None:
    from sklearn.decomposition import MiniBatchDictionaryLearning

    density = optical_density(picture)[_is_tissue(picture)]
    if len(density) < _MIN_PIXELS:
        return None
    rng = np.random.default_rng(0)
    density = density[rng.permutation(len(density))[:_MAX_PIXELS]]
    learned = MiniBatchDictionaryLearning(
        n_components=2,
        alpha=_DICTIONARY_PENALTY,
        fit_algorithm="cd",
        positive_code=True,
        positive_dict=True,
        max_iter=10,
        batch_size=64,
        random_state=0,
    ).fit(density)
    lengths = np.linalg.norm(learned.components_, axis=1, keepdims=True)
    if not (lengths > 0).all():  # one stain only
        return None
    colours: Floats = learned.components_ / lengths
    return colours[np.argsort(-colours[:, 0])]  # haematoxylin, being blue, absorbs more red


def find_concentrations(density: Floats, colours: Floats) -> Floats:
    """The non-negative C that minimises 1/2 |V - C D|^2 + l |C|_1, exactly: there are only two stains."""
    gram = colours @ colours.T  # ones on the diagonal
    slope = density @ colours.T - _CODE_PENALTY  # (pixels, 2)
    both = slope @ np.linalg.inv(gram)
    first_alone, second_alone = np.maximum(slope, 0.0).T
    # With one stain alone the loss is -c^2 / 2 up to a constant.
    is_first = first_alone >= second_alone
    alone = np.stack([np.where(is_first, first_alone, 0.0), np.where(is_first, 0.0, second_alone)], axis=1)
    return np.where((both >= 0).all(axis=1, keepdims=True), both, alone)


def _brighten(picture: Picture) -> Picture:
    """Scale so that the brightest tenth is white."""
    white = max(float(np.percentile(picture, 90)), 1.0)
    scaled: Picture = np.clip(picture * (255.0 / white), 0, 255).astype(np.uint8)
    return scaled


def optical_density(picture: Picture) -> Floats:
    """What the stains absorb of red, green and blue, (pixels, 3)."""
    return -np.log(np.maximum(picture.reshape(-1, 3), 1) / 255.0)


def _is_tissue(picture: Picture) -> NDArray[np.bool_]:
    """Pixels darker than glass, by the lightness of sRGB."""
    values = picture.reshape(-1, 3) / 255.0
    linear = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    is_dark: NDArray[np.bool_] = linear @ _LUMINANCE < _TISSUE_LUMINANCE
    return is_dark
