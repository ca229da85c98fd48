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

`loss` computes them in this order, `views` says what the networks see of a row, `turns` has another bound for pictures,
and `recipe` turns "auto" into numbers; docs/method.md derives the loss.
"""

from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from esad.core.arguments import (
    NOT_NEGATIVE,
    POSITIVE,
    TRUTH,
    WHOLE,
    Rule,
    check,
    find_parameters,
    is_auto,
    is_not_negative,
    is_truth,
    is_whole,
    list_of,
    parameter,
    with_parameters,
)
from esad.core.arrays import Arrays, Labels, Rows
from esad.detectors.deep import DeepDetector, Phase
from esad.errors import ModelFileError
from esad.labels import reference_rows
from esad.methods.esad.loss import WORDS
from esad.methods.esad.recipe import MAX_BINS, Recipe, is_bins, is_number_of_bins, make_recipe
from esad.methods.esad.turns import TurnsObjective, have_upper_side
from esad.methods.esad.views import weigh_columns
from esad.preprocess.inputs import SCALINGS
from esad.train.loop import OPTIMIZERS, SCHEDULES
from esad.train.objective import Objective

_AMOUNT = Rule("a number, 0 or more, or 'auto'", is_not_negative, ("auto",))
_AMOUNTS = Rule(
    "a number or a list of numbers, 0 or more, or 'auto'",
    lambda value: is_not_negative(value) or list_of(is_not_negative)(value),
    ("auto",),
)
_SHARE = Rule("a share between 0 and 1, or 'auto'", lambda value: is_not_negative(value) and value <= 1, ("auto",))
_PIXELS = Rule("a whole number, 0 or more, or 'auto'", lambda value: is_whole(value, 0), ("auto",))
_SWITCH = Rule("True, False or 'auto'", is_truth, ("auto",))
_BINS = Rule(
    f"a whole number from 0 to {MAX_BINS}, a list of them, or 'auto'",
    lambda value: is_number_of_bins(value) or is_bins(value),
    ("auto",),
)
_NETWORKS = {"table": ("auto", "mlp"), "images": ("auto", "conv", "unet", "lenet")}
_PHI = {
    "table": ("both", "noise", "permute", "normal", "none"),
    "images": ("both", "noise", "rotate", "normal", "none"),
}
_BOUNDS = {"table": ("auto", "reconstruction"), "images": ("auto", "reconstruction", "both")}
_RESTORE = {"table": ("none", "auto"), "images": ("none", "auto", "grey", "rotate", "both")}
_SCHEDULES = ("auto", *SCHEDULES)


@with_parameters
class ESAD(DeepDetector):
    """End-to-end semi-supervised anomaly detection, for tables and pictures.

    `ESAD()` is the best recipe we know for a user's data: whatever is "auto" is chosen from the data's kind and size.
    `ESAD.as_published()` is the paper's recipe.

    Parameters
    ----------
    recipe
        "published" takes the paper's network shapes and trains every member on all rows; see `as_published` for the
        whole of it.
    n_members
        Networks trained side by side; the score is their mean.
    hidden
        Hidden widths (tables) or channels per level (pictures). Auto: (64, 32) for tables, the paper's for pictures,
        narrower on a CPU.
    latent
        Size of the code, or its channels. Auto: 32 for tables, the paper's for pictures, narrower on a CPU.
    network
        Auto: "mlp" for tables, "conv" for pictures; "unet" is that with skips from the first encoder to the decoder.
    phi
        What labelled anomalies are reconstructed to. "permute" is for tables, "rotate" for pictures; "both" adds noise
        to either. "normal" (a normal row) is the variant that the paper rejects.
    noise
        Standard deviation of phi's noise.
    input_noise
        Noise on the first encoder's input while training; a sequence gives each member its own. Auto: 0.5 for tables,
        down to 0.25 with the power that columns are weighed by; none for pictures.
    augment
        Pictures only: labelled anomalies are mirrored and shifted by up to this many pixels, 0 for neither. Auto: an
        eighth of the shorter side.
    shift
        Pictures only: unlabelled pictures are shifted by up to this many pixels. Auto: an eighth of the shorter side
        for colour pictures, else 0.
    flip
        Pictures only: whether half of the pictures are mirrored; of labelled ones where `augment` is 0. Auto: yes for
        colour pictures and as published, else no.
    decoys
        Pictures only: this share of the unlabelled pictures of a step is seen once more, turned by 90, 180 or 270
        degrees, as if they were labelled anomalies; the norm of a picture is then held against that of its turned
        copies. Turns that cannot be told apart lose their weight. Auto: 0.5 for colour pictures, else 0.
    mutual_information
        What bounds the mutual information of Eq. (3): "reconstruction", as in the paper; or "both", for pictures that
        have an upper side: besides, an encoder learns to tell by which quarter turn a picture was turned, and the score
        asks how well it can and whether it knows such codes. An extension of ours, trained first, with the network
        `network`. Auto: "both" for pictures whose turns a linear model can tell, if `network` is "conv", and `restore`,
        `decoys` and `norm_weight` are not set; else "reconstruction".
    restore
        Pictures only: what is hidden from the first encoder, to be restored. Auto: none; as published both.
    signed
        Pictures only: whether the networks see pixels in [-1, 1], and rebuild those, instead of [0, 1]. Auto: yes as
        published, else no.
    bins
        Tables only: the second and fourth of every five members see a column as its place within this many quantile
        bins; 0 for none of them. A sequence gives each member its own number. Auto: 4; 3 on tables of more than 275
        features, 2 above 366.
    column_weights
        Tables only: columns are weighed by their importance for telling known anomalies from unlabelled rows, to this
        power; 0 weighs all alike. Auto: n / (n + columns) with n known anomalies.
    lambda_norm
        Weight of L_norm in the loss and of the norm in the score; with 0 the reconstruction alone is scored, and turns
        where `mutual_information` is "both".
    lambda_assist
        Weight of L_ass; 0 switches it off.
    second_encoder
        False: L_norm is taken of the first code (the paper's ablation).
    reduction
        Squared norms as sums over features, as in the equations, or as means.
    anomaly_gain
        A labelled anomaly's norm term is gain / (||z^|| + offset).
    anomaly_offset
        See `anomaly_gain`.
    combine
        "sum" is Eq. (9). "scaled" puts both terms on a common scale: z-scores of their logarithms over the presumed
        normal training rows, the norm weighted by `norm_weight`.
    norm_weight
        Weight of the norm in the scaled score; that of the reconstruction is 1. Auto: 2 lambda_norm, which Eq. (9)
        weighs it with; 0 for pictures where no anomaly has taught it.
    scaling
        How table columns are scaled.
    optimizer
    lr
        Learning rate. Auto: 0.005 for tables, 0.002 for pictures, less in wide networks.
    schedule
        "halving" halves the learning rate after every quarter of the epochs.
    n_epochs
        Passes over the unlabelled rows. Auto: 250 to 1,000 steps on tables, two fifths of that where no anomaly is
        known; 500 to 1,500 on pictures; by the number of unlabelled rows. Where turns are told, half as many for the
        reconstruction.
    batch_size
        Unlabelled rows per step. Auto: 128, for pictures on a CPU 64.
    labelled_batch_size
        Labelled rows per step. Auto: 32, for pictures on a CPU 16.
    accumulate
        Parts that the rows of a step are taken in, one after the other, to train on large pictures in little memory.
        Batch norm then sees one part at a time; but for that, the step is the same.
    clip
        Largest gradient norm per member; None switches it off.
    weight_decay : float
    early_stopping : bool or "splits"
        True: hold out a quarter of the rows and keep the weights that rank their labels best. "splits": choose when to
        stop by repeated splits in a training before, then train on all rows; with few labels, to the end.
    contamination : "auto" or float
        Share of the training rows to flag; "auto" takes what labels and unlabelled rows tell.
    device : str
        "auto", "cpu", "cuda", ...
    precision : {"auto", "float32", "float64", "bfloat16"}
        Auto: bfloat16 for pictures on a GPU, else float32.
    compiled
        Compile the networks with `torch.compile` before training, which takes minutes and pays on a GPU.
    random_state : int, RandomState or None
        The same seed on the same machine gives the same bits.
    verbose : int
        1 shows the progress, and logs it to the logger "esad".

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

    summary = "Encoder-decoder-encoder trained end to end on mutual information and entropy (Huang et al. 2021)"

    # `table` and `images` are what "auto" stands for, unless that depends on the data (see `recipe.py`).
    # `paper` is what the paper has. docs/decisions/0005-default-recipe.md has the reasons.
    recipe: str = parameter(default="auto", allowed=("auto", "published"), paper="published")
    n_members: int | str = parameter(default="auto", table=5, images=1, paper=1)
    hidden: Any = parameter(default="auto")
    latent: int | str = parameter(default="auto")
    network: str = parameter(default="auto", allowed=_NETWORKS)
    phi: str = parameter(default="both", allowed=_PHI)
    noise: float = parameter(default=0.1, allowed=NOT_NEGATIVE)
    input_noise: Any = parameter(default="auto", allowed=_AMOUNTS, table=0.5, images=0.0, paper=0.0)
    augment: int | str = parameter(default="auto", allowed=_PIXELS, paper=0, only="images")
    shift: int | str = parameter(default="auto", allowed=_PIXELS, paper=0, only="images")
    flip: bool | str = parameter(default="auto", allowed=_SWITCH, only="images")
    decoys: float | str = parameter(default="auto", allowed=_SHARE, paper=0.0, only="images")
    mutual_information: str = parameter(default="auto", allowed=_BOUNDS, table="reconstruction", paper="reconstruction")
    restore: str = parameter(default="auto", allowed=_RESTORE, table="none", images="none")
    signed: bool | str = parameter(default="auto", allowed=_SWITCH, images=False, only="images")
    bins: Any = parameter(default="auto", allowed=_BINS, table=4, paper=0, only="table")
    column_weights: float | str = parameter(default="auto", allowed=_AMOUNT, table=0.0, paper=0.0, only="table")
    lambda_norm: float | str = parameter(default="auto", allowed=_AMOUNT, table=1.5, images=1.0, paper=1.0)
    lambda_assist: float | str = parameter(default="auto", allowed=_AMOUNT, table=1.0, images=0.3, paper=1.0)
    second_encoder: bool = parameter(default=True, allowed=TRUTH)
    reduction: str = parameter(default="sum", allowed=WORDS["reduction"], paper="mean")
    anomaly_gain: float = parameter(default=10.0, allowed=POSITIVE, paper=1.0)
    anomaly_offset: float = parameter(default=0.1, allowed=NOT_NEGATIVE, paper=0.0)
    combine: str = parameter(default="scaled", allowed=WORDS["combine"], paper="sum")
    norm_weight: float | str = parameter(default="auto", allowed=_AMOUNT)
    scaling: str = parameter(default="standard", allowed=SCALINGS, paper="minmax")
    optimizer: str = parameter(default="auto", allowed=("auto", *OPTIMIZERS), table="adam", images="adam", paper="sgd")
    lr: float | str = parameter(default="auto", table=5e-3, paper=0.1)
    schedule: str = parameter(default="auto", allowed=_SCHEDULES, table="cosine", images="cosine", paper="halving")
    n_epochs: int | str = parameter(default="auto", paper=200)
    batch_size: int | str = parameter(default="auto", table=128, images=64, paper=32)
    labelled_batch_size: int | str = parameter(default="auto", table=32, images=16, paper=8)
    accumulate: int = parameter(default=1, allowed=WHOLE)
    clip: float | str | None = parameter(default="auto", table=10.0, images=10.0, paper=1.0)
    weight_decay: float = 0.0
    early_stopping: bool | str = False
    contamination: float | str = "auto"
    device: str = "auto"
    precision: str = "auto"
    compiled: bool = parameter(default=False, allowed=TRUTH)
    random_state: int | np.random.RandomState | None = None
    verbose: int = 0

    @classmethod
    def as_published(cls, **changes: Any) -> Self:
        """The paper's recipe: SGD 0.1, batch 32, 200 epochs, halved every 50, the score of Eq. (9).

        Networks are Deep SAD's for tables and the paper's table for pictures; these are grey and turned at random as
        the first encoder sees them, mirrored, with pixels in [-1, 1], after ARNet. `network="unet"` is the reading in
        which its skips are meant too. Where it departs from the paper is listed in docs/method.md.

        Examples
        --------
        >>> ESAD.as_published(random_state=0).lr
        0.1
        """
        papers = {name: one.paper for name, one in find_parameters(cls).items() if one.paper is not None}
        return cls(**papers | changes)

    @classmethod
    def defaults(cls, kind: str) -> dict[str, Any]:
        """What "auto" stands for on "table" or "images", as far as that does not depend on the data.

        Examples
        --------
        >>> ESAD.defaults("table")["n_members"], ESAD.defaults("images")["n_members"]
        (5, 1)
        """
        values = {
            name: getattr(one, kind) if one.only in (None, kind) else 0 for name, one in find_parameters(cls).items()
        }
        return {name: value for name, value in values.items() if value is not None}

    def recipe_for(
        self, in_shape: tuple[int, ...], y: Labels, device: str = "cpu", *, pictures: Rows | None = None
    ) -> Recipe:
        """Every choice for preprocessed rows (n, *in_shape) with labels `y`; wrong arguments are refused.

        Without the `pictures` themselves they are taken to have an upper side.
        """
        kind = "images" if len(in_shape) == 3 else "table"
        parameters = find_parameters(self)
        given = self.get_params(deep=False)
        check(given, parameters, kind)
        given["precision"] = self._precision_on(torch.device(device), in_shape)
        automatic = self.defaults(kind)
        if self.recipe == "published":  # `as_published` gives all of the paper's; the word alone, these
            automatic |= {name: parameters[name].paper for name in ("bins", "lambda_norm")}

        def upper_side() -> bool:
            return pictures is None or have_upper_side(pictures[reference_rows(y)])

        return make_recipe(given, automatic, in_shape, y, device, upper_side=upper_side)

    def n_leaving_out(self, kind: str) -> int:
        """As many as there are members; none as published."""
        if self.recipe == "published":
            return 0
        return int(self.defaults(kind)["n_members"]) if is_auto(self.n_members) else super().n_leaving_out(kind)

    def _repeat_members(self, n_members: int) -> Self:
        whole = super()._repeat_members(n_members)
        whole.input_noise, whole.bins = list(self.recipe_.loss.input_noise), list(self.recipe_.loss.bins) or 0
        return whole

    def _precision_on(self, device: torch.device, in_shape: tuple[int, ...]) -> str:
        low = self.precision == "auto" and device.type == "cuda" and len(in_shape) == 3
        return "bfloat16" if low else self.precision

    def _phases(self, rows: Rows, y: Labels, device: torch.device) -> list[Phase]:
        self.recipe_ = self.recipe_for(rows.shape[1:], y, device.type, pictures=rows)
        objective = self.recipe_.objective()
        objective.view.learn(rows, np.flatnonzero(reference_rows(y)), self._column_weights(rows, y))
        phases = [Phase(objective, self.recipe_.settings)]
        if self.recipe_.loss.turns:
            turns = TurnsObjective(self.recipe_.network, self.recipe_.loss)
            phases.insert(0, Phase(turns, self.recipe_.turn_settings))
        return phases

    def _column_weights(self, rows: Rows, y: Labels) -> NDArray[np.float32] | None:
        power, n_members = self.recipe_.loss.column_weights, self.recipe_.network.n_members
        if not power:
            return None
        return weigh_columns(rows, y, self._draw_unseen_by(y), power=power, n_members=n_members, seed=self.seed_)

    def _describe(self) -> dict[str, Any]:
        return self.recipe_.to_json()

    def _rebuild(self, plain: Any) -> Objective:
        self.recipe_ = Recipe.from_json(plain)
        if self.recipe_.network.in_shape != self.inputs_.shape:
            raise ModelFileError("its network takes other rows than its inputs give")
        return self.recipe_.objective()

    def _restore(self, arrays: Arrays, plain: Any) -> None:
        super()._restore({_current_name(name): value for name, value in arrays.items()}, plain)


def _current_name(name: str) -> str:
    """The name of an array of a model file; views were no modules of their own in version 0.1.0."""
    name = name.replace("weights.bins.", "weights.view.bins.")
    return name.replace("weights.told_apart", "weights.view.decoys.told_apart")
