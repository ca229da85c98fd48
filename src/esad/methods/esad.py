r"""ESAD: end-to-end semi-supervised anomaly detection by an encoder, a decoder and a second encoder.

Objective: maximise  [I(X_N, Z_N) - I(X_A, Z_A)] - [H(Z_N) - H(Z_A)]                                    Eq. (3)

    z = Enc1(x),   x^ = Dec(z),   z^ = Enc2(x^)                                                         Eq. (4)

    L_rec  = 1/n sum_i ||x^_i - x_i||^2 + 1/m sum_j ||x^_j - Phi(x_j)||^2                               Eq. (5)
    L_norm = 1/n sum_i ||z^_i||         + 1/m sum_j ||z^_j||^(y_j)                                      Eq. (6)
    L_ass  = 1/(n+m) sum_i ||z^_i - z_i||^2                                                             Eq. (7)
    L      = L_rec + lambda_norm L_norm + lambda_assist L_ass                                           Eq. (8)

    S(x)   = ||x^ - x||^2 + lambda_norm ||z^||                                                          Eq. (9)

=================  =========================================================================================
i = 1 .. n         unlabelled rows, almost all of them normal
j = 1 .. m         labelled rows, y_j = -1 anomaly, +1 normal
Phi(x_j)           x_j for a normal row, phi(x_j) for an anomaly: noise, permuted features, rotated picture
Enc1, Dec, Enc2    networks; the encoders have the same shape and do not share weights
=================  =========================================================================================

Losses and score are computed in `_esad_objective`, for pictures with what `_esad_pictures` adds; sizes and steps are
chosen in `_esad_recipe`; docs/method.md derives the loss.
"""

from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray

from esad.detectors.deep import DeepDetector, Phase
from esad.errors import ModelFileError
from esad.methods._esad_bins import BinnedESADObjective
from esad.methods._esad_recipe import PUBLISHED, Recipe, resolve
from esad.preprocess.inputs import Rows, reference_rows
from esad.train.objective import Objective

__all__ = ["ESAD"]


class ESAD(DeepDetector):
    """End-to-end semi-supervised anomaly detection, for tables and pictures.

    `ESAD()` is the best recipe we know for a user's data: whatever is "auto" is chosen from the data's kind and size.
    `ESAD.as_published()` is the paper's recipe.

    Parameters
    ----------
    recipe : {"auto", "published"}
        "published" takes the paper's network shapes and trains every member on all rows, see `as_published`.
    n_members : int or "auto"
        Networks trained side by side; the score is their mean. Auto: 5 for tables, 1 for pictures.
    hidden : sequence of int or "auto"
        Hidden widths (tables) or channels per level (pictures).
    latent : int or "auto"
        Size of the code, or its channels.
    network : {"auto", "mlp", "conv", "lenet"}
        Auto: "mlp" for tables, "conv" for pictures.
    phi : {"both", "noise", "permute", "rotate", "normal", "none"}
        What labelled anomalies are reconstructed to. "permute" is for tables, "rotate" for pictures; "both" adds
        noise to either. "normal" (a normal row) is the variant that the paper rejects.
    noise : float
        Standard deviation of phi's noise.
    input_noise : float, sequence of float or "auto"
        Noise on the first encoder's input while training; a sequence gives each member its own.
    augment : int or "auto"
        Pictures only: labelled anomalies are mirrored and shifted by up to this many pixels; 0 for not at all.
        Auto: an eighth of the shorter side.
    shift, flip : int and bool, or "auto"
        Pictures only: unlabelled pictures are shifted by up to this many pixels, and mirrored. Auto: an eighth of the
        shorter side and yes for colour pictures, else 0 and no.
    decoys : float or "auto"
        Pictures only: this share of the unlabelled pictures of a step is seen once more, turned by 90, 180 or 270
        degrees, as if they were labelled anomalies; the norm of a picture is then held against that of its turned
        copies. Turns that cannot be told apart lose their weight. Auto: 0.5 for colour pictures, else 0.
    restore : {"none", "grey", "rotate", "both"}
        Pictures only: what is hidden from the first encoder, to be restored.
    bins : int, sequence of int or "auto"
        Tables only: the second and fourth of every five members see a column as its place within this many quantile
        bins; 0 for none of them. A sequence gives each member its own number. Auto: 4.
    lambda_norm : float or "auto"
        Weight of L_norm, in the loss and in the score of Eq. (9). Auto: 1.5 for tables, 1 for pictures.
    lambda_assist : float or "auto"
        Weight of L_ass; 0 switches it off. Auto: 1 for tables, 0.3 for pictures.
    second_encoder : bool
        False: L_norm is taken of the first code (the paper's ablation).
    reduction : {"sum", "mean"}
        Squared norms as sums over features, as in the equations, or as means.
    anomaly_gain, anomaly_offset : float
        A labelled anomaly's norm term is gain / (||z^|| + offset); the paper has 1 and 0.
    combine : {"scaled", "sum"}
        "sum" is Eq. (9). "scaled" puts both terms on a common scale: z-scores of their logarithms over the
        presumed normal training rows, the norm weighted by `norm_weight`.
    norm_weight : float or "auto"
        See `combine`.
    scaling : {"standard", "minmax"}
        How table columns are scaled.
    optimizer : {"auto", "adam", "adamw", "sgd"}
    lr : float or "auto"
    schedule : {"auto", "cosine", "halving", "constant"}
        "halving" halves the learning rate after every quarter of the epochs.
    n_epochs : int or "auto"
        Passes over the unlabelled rows.
    batch_size, labelled_batch_size : int or "auto"
        Unlabelled and labelled rows per step.
    accumulate : int
        Parts that the rows of a step are taken in, one after the other, to train on large pictures in little memory.
        Batch norm then sees one part at a time; but for that, the step is the same.
    clip : float, None or "auto"
        Largest gradient norm per member; None switches it off.
    weight_decay : float
    early_stopping : bool or "splits"
        True: hold out a quarter of the rows and keep the weights that rank their labels best. "splits": choose when to
        stop by repeated splits in a training before, then train on all rows; with few labels, to the end.
    contamination : "auto" or float
        Share of the training rows to flag; "auto" takes a robust rule on the unlabelled scores.
    device : str
        "auto", "cpu", "cuda", ...
    precision : {"auto", "float32", "float64", "bfloat16"}
        Auto: bfloat16 for pictures on a GPU, else float32.
    compiled : bool
        Compile the networks with `torch.compile` before training, which takes minutes and pays on a GPU.
    random_state : int, RandomState or None
        The same seed on the same machine gives the same bits.
    verbose : int
        1 logs the progress to the logger "esad".

    Attributes
    ----------
    offset_, threshold_ : float
        Alarms have `anomaly_score > threshold_ = -offset_`.
    recipe_ : Recipe
        Every choice that was made, "auto" resolved.
    loss_curves_ : dict of str to array
        Loss terms per step.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = np.r_[rng.normal(size=(200, 4)), rng.normal(5, 1, size=(8, 4))]
    >>> y = np.zeros(208, dtype=int)
    >>> y[-4:] = -1                                            # four known anomalies, the rest unlabelled
    >>> detector = ESAD(n_members=1, n_epochs=20, random_state=0).fit(X, y)
    >>> bool(detector.anomaly_score(X)[200:204].min() > np.median(detector.anomaly_score(X)))
    True
    """

    summary: ClassVar[str] = (
        "Encoder-decoder-encoder trained end to end on mutual information and entropy (Huang et al. 2021)"
    )

    def __init__(
        self,
        *,
        recipe: str = "auto",
        n_members: int | str = "auto",
        hidden: Any = "auto",
        latent: int | str = "auto",
        network: str = "auto",
        phi: str = "both",
        noise: float = 0.1,
        input_noise: Any = "auto",
        augment: int | str = "auto",
        shift: int | str = "auto",
        flip: bool | str = "auto",
        decoys: float | str = "auto",
        restore: str = "none",
        bins: Any = "auto",
        lambda_norm: float | str = "auto",
        lambda_assist: float | str = "auto",
        second_encoder: bool = True,
        reduction: str = "sum",
        anomaly_gain: float = 10.0,
        anomaly_offset: float = 0.1,
        combine: str = "scaled",
        norm_weight: float | str = "auto",
        scaling: str = "standard",
        optimizer: str = "auto",
        lr: float | str = "auto",
        schedule: str = "auto",
        n_epochs: int | str = "auto",
        batch_size: int | str = "auto",
        labelled_batch_size: int | str = "auto",
        accumulate: int = 1,
        clip: float | str | None = "auto",
        weight_decay: float = 0.0,
        early_stopping: bool | str = False,
        contamination: float | str = "auto",
        device: str = "auto",
        precision: str = "auto",
        compiled: bool = False,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.recipe = recipe
        self.n_members = n_members
        self.hidden = hidden
        self.latent = latent
        self.network = network
        self.phi = phi
        self.noise = noise
        self.input_noise = input_noise
        self.augment = augment
        self.shift = shift
        self.flip = flip
        self.decoys = decoys
        self.restore = restore
        self.bins = bins
        self.lambda_norm = lambda_norm
        self.lambda_assist = lambda_assist
        self.second_encoder = second_encoder
        self.reduction = reduction
        self.anomaly_gain = anomaly_gain
        self.anomaly_offset = anomaly_offset
        self.combine = combine
        self.norm_weight = norm_weight
        self.scaling = scaling
        self.optimizer = optimizer
        self.lr = lr
        self.schedule = schedule
        self.n_epochs = n_epochs
        self.batch_size = batch_size
        self.labelled_batch_size = labelled_batch_size
        self.accumulate = accumulate
        self.clip = clip
        self.weight_decay = weight_decay
        self.early_stopping = early_stopping
        self.contamination = contamination
        self.device = device
        self.precision = precision
        self.compiled = compiled
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def as_published(cls, **changes: Any) -> Self:
        """The paper's recipe: SGD 0.1, batch 32, 200 epochs, halved every 50, the score of Eq. (9).

        Two deviations, without which it diverges: gradients are clipped to norm 1, and squared norms are means over
        the features. Networks are Deep SAD's for tables and the paper's table for pictures.

        Examples
        --------
        >>> ESAD.as_published(random_state=0).lr
        0.1
        """
        return cls(**PUBLISHED | changes)

    def _holds_out(self) -> bool:
        return self.recipe != "published"

    def _repeated(self, n_members: int) -> Self:
        whole = super()._repeated(n_members)
        whole.input_noise, whole.bins = list(self.recipe_.loss.input_noise), list(self.recipe_.loss.bins) or 0
        return whole

    def _scaling(self) -> str:
        return self.scaling

    def _precision_on(self, device: torch.device, in_shape: tuple[int, ...]) -> str:
        low = self.precision == "auto" and device.type == "cuda" and len(in_shape) == 3
        return "bfloat16" if low else self.precision

    def _phases(self, rows: Rows, y: NDArray[np.int8], device: torch.device) -> list[Phase]:
        parameters = self.get_params(deep=False) | {"precision": self._precision_on(device, rows.shape[1:])}
        self.recipe_ = resolve(parameters, rows.shape[1:], y, device.type)
        objective = self.recipe_.objective()
        if isinstance(objective, BinnedESADObjective):
            objective.bins.learn(rows, np.flatnonzero(reference_rows(y)))
        return [Phase(objective, self.recipe_.settings)]

    def _describe(self) -> dict[str, Any]:
        return self.recipe_.to_json()

    def _rebuild(self, plain: Any) -> Objective:
        self.recipe_ = Recipe.from_json(plain)
        if self.recipe_.network.in_shape != self.inputs_.shape:
            raise ModelFileError("its network takes other rows than its inputs give")
        return self.recipe_.objective()
