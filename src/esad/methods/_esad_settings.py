"""The switches of ESAD's losses and score, as `_esad_recipe` sets them."""

from dataclasses import dataclass

__all__ = ["LossSettings"]


@dataclass(frozen=True)
class LossSettings:
    """The switches of the losses and the score; the paper's values are the defaults.

    Attributes
    ----------
    lambda_norm, lambda_assist : float
        Weights of L_norm and L_ass.
    second_encoder : bool
        Off: the norm is taken of z and L_ass drops out (the paper's ablation).
    phi : {"both", "noise", "permute", "rotate", "normal", "none"}
        What labelled anomalies must be reconstructed to.
    noise : float
        Standard deviation of phi's Gaussian noise.
    input_noise : tuple of float
        Standard deviation of the noise added to Enc1's input while training, one per member.
    labelled_noise_ratio : float
        Share of that noise which labelled rows get.
    augment : int
        Pixels by which pictures of labelled anomalies are shifted at random, and mirrored; 0 for not at all.
    shift, flip : int and bool
        Pixels by which unlabelled pictures are shifted at random, and whether half of them are mirrored.
    decoys : float
        Share of the unlabelled pictures of a batch that are seen once more, turned, as if they were known anomalies.
    decoys_alone : bool
        There are no others: the norm's weight in the scaled score is how well decoys are told from normal pictures.
    restore : {"none", "grey", "rotate", "both"}
        What is taken from a picture before Enc1 sees it; the target stays whole.
    reduction : {"sum", "mean"}
        Squared norms as sums over features (the equations) or means (stable at large learning rates).
    error_scale : float
        Factor of L_rec, so that large pictures do not drown the other terms.
    gain, offset : float
        A labelled anomaly's norm term is gain / (||z^|| + offset); 1 and 0 in the paper.
    combine : {"sum", "scaled"}
        Eq. (9) as printed, or both terms as z-scores of their logarithms.
    norm_weight : float
        Weight of the norm term in the scaled score.
    robust : bool
        Scaled score: centre and spread by median and lower quantile, which hidden anomalies cannot stretch, instead
        of mean and standard deviation.
    norm_offset, min_spread : float
        Scaled score: added to ||z^|| before the logarithm; smallest spread a logarithm is divided by.
    bins : tuple of int
        Quantile bins that a column is seen in, one number per member, 0 for the column itself; empty if all see that.
        See `_esad_bins`.
    """

    lambda_norm: float = 1.0
    lambda_assist: float = 1.0
    second_encoder: bool = True
    phi: str = "both"
    noise: float = 0.1
    input_noise: tuple[float, ...] = (0.0,)
    labelled_noise_ratio: float = 1.0
    augment: int = 0
    shift: int = 0
    flip: bool = False
    decoys: float = 0.0
    decoys_alone: bool = False
    restore: str = "none"
    reduction: str = "mean"
    error_scale: float = 1.0
    gain: float = 1.0
    offset: float = 0.0
    combine: str = "sum"
    norm_weight: float = 1.0
    robust: bool = False
    norm_offset: float = 0.0
    min_spread: float = 1e-3
    bins: tuple[int, ...] = ()
