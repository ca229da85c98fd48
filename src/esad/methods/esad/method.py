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

`loss` computes them in this order, `views` says what the networks see of a row, `extras` what a view adds, and `recipe`
turns "auto" into numbers; docs/method.md derives the loss.
"""

from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray

from esad.core.arguments import (
    COMMON,
    NOT_NEGATIVE,
    POSITIVE,
    TRUTH,
    WHOLE,
    Rule,
    is_auto,
    is_not_negative,
    is_truth,
    is_whole,
    list_of,
    with_parameters,
)
from esad.detectors.deep import DeepDetector, Phase
from esad.errors import ModelFileError
from esad.methods.esad.recipe import MAX_BINS, Parameter, Parameters, Recipe, is_bins, is_number_of_bins, resolve
from esad.methods.esad.turns import TurnsObjective, have_upper_side
from esad.methods.esad.views import weigh_columns
from esad.preprocess.inputs import SCALINGS, Rows, reference_rows
from esad.train.loop import OPTIMIZERS, SCHEDULES
from esad.train.objective import Objective

__all__ = ["ESAD", "PARAMETERS"]

_AMOUNT = Rule("a number, 0 or more, or 'auto'", is_not_negative, ("auto",))
_PIXELS = Rule("a whole number, 0 or more, or 'auto'", lambda value: is_whole(value, 0), ("auto",))
_are_amounts = list_of(is_not_negative)

# docs/decisions/0005-default-recipe.md says what each "auto" brought.
PARAMETERS = Parameters(
    recipe=Parameter(
        meaning='"published" takes the paper\'s network shapes and trains every member on all rows; see `as_published` '
        "for the whole of it.",
        allowed=("auto", "published"),
        paper="published",
    ),
    n_members=Parameter(
        meaning="Networks trained side by side; the score is their mean.",
        allowed=COMMON["n_members"],
        table=5,
        images=1,
        paper=1,
    ),
    hidden=Parameter(
        meaning="Hidden widths (tables) or channels per level (pictures).",
        allowed=COMMON["hidden"],
        auto="(64, 32) for tables, the paper's for pictures, narrower on a CPU",
    ),
    latent=Parameter(
        meaning="Size of the code, or its channels.",
        allowed=COMMON["latent"],
        auto="32 for tables, the paper's for pictures, narrower on a CPU",
    ),
    network=Parameter(
        meaning="",
        allowed={"table": ("auto", "mlp"), "images": ("auto", "conv", "unet", "lenet")},
        auto='"mlp" for tables, "conv" for pictures; "unet" is that with skips from the first encoder to the decoder',
    ),
    phi=Parameter(
        meaning='What labelled anomalies are reconstructed to. "permute" is for tables, "rotate" for pictures; "both" '
        'adds noise to either. "normal" (a normal row) is the variant that the paper rejects.',
        allowed={
            "table": ("both", "noise", "permute", "normal", "none"),
            "images": ("both", "noise", "rotate", "normal", "none"),
        },
    ),
    noise=Parameter(meaning="Standard deviation of phi's noise.", allowed=NOT_NEGATIVE),
    input_noise=Parameter(
        meaning="Noise on the first encoder's input while training; a sequence gives each member its own.",
        allowed=Rule(
            "a number or a list of numbers, 0 or more, or 'auto'",
            lambda value: is_not_negative(value) or _are_amounts(value),
            ("auto",),
        ),
        auto="0.5 for tables, down to 0.25 with the power that columns are weighed by; none for pictures",
        table=0.5,
        images=0.0,
        paper=0.0,
    ),
    augment=Parameter(
        meaning="Pictures only: labelled anomalies are mirrored and shifted by up to this many pixels, 0 for neither.",
        allowed=_PIXELS,
        auto="an eighth of the shorter side",
        paper=0,
        only="images",
    ),
    shift=Parameter(
        meaning="Pictures only: unlabelled pictures are shifted by up to this many pixels.",
        allowed=_PIXELS,
        auto="an eighth of the shorter side for colour pictures, else 0",
        paper=0,
        only="images",
    ),
    flip=Parameter(
        meaning="Pictures only: whether half of the pictures are mirrored; of labelled ones where `augment` is 0.",
        allowed=Rule("True, False or 'auto'", is_truth, ("auto",)),
        auto="yes for colour pictures and as published, else no",
        only="images",
    ),
    decoys=Parameter(
        meaning="Pictures only: this share of the unlabelled pictures of a step is seen once more, turned by 90, 180 "
        "or 270 degrees, as if they were labelled anomalies; the norm of a picture is then held against that of its "
        "turned copies. Turns that cannot be told apart lose their weight.",
        allowed=Rule(
            "a share between 0 and 1, or 'auto'", lambda value: is_not_negative(value) and value <= 1, ("auto",)
        ),
        auto="0.5 for colour pictures, else 0",
        paper=0.0,
        only="images",
    ),
    mutual_information=Parameter(
        meaning='What bounds the mutual information of Eq. (3): "reconstruction", as in the paper; or "both", for '
        "pictures that have an upper side: besides, an encoder learns to tell by which quarter turn a picture was "
        "turned, and the score asks how well it can and whether it knows such codes. An extension of ours, trained "
        "first, with the network `network`.",
        allowed={"table": ("auto", "reconstruction"), "images": ("auto", "reconstruction", "both")},
        auto='"both" for pictures whose turns a linear model can tell, if `network` is "conv", and `restore`, `decoys` '
        'and `norm_weight` are not set; else "reconstruction"',
        table="reconstruction",
        paper="reconstruction",
    ),
    restore=Parameter(
        meaning="Pictures only: what is hidden from the first encoder, to be restored.",
        allowed={"table": ("none", "auto"), "images": ("none", "auto", "grey", "rotate", "both")},
        auto="none; as published both",
        table="none",
        images="none",
    ),
    signed=Parameter(
        meaning="Pictures only: whether the networks see pixels in [-1, 1], and rebuild those, instead of [0, 1].",
        allowed=Rule("True, False or 'auto'", is_truth, ("auto",)),
        auto="yes as published, else no",
        images=False,
        only="images",
    ),
    bins=Parameter(
        meaning="Tables only: the second and fourth of every five members see a column as its place within this many "
        "quantile bins; 0 for none of them. A sequence gives each member its own number.",
        allowed=Rule(
            f"a whole number from 0 to {MAX_BINS}, a list of them, or 'auto'",
            lambda value: is_number_of_bins(value) or is_bins(value),
            ("auto",),
        ),
        auto="4; 3 on tables of more than 275 features, 2 above 366",
        table=4,
        paper=0,
        only="table",
    ),
    column_weights=Parameter(
        meaning="Tables only: columns are weighed by their importance for telling known anomalies from unlabelled "
        "rows, to this power; 0 weighs all alike.",
        allowed=_AMOUNT,
        auto="n / (n + columns) with n known anomalies",
        table=0.0,
        paper=0.0,
        only="table",
    ),
    lambda_norm=Parameter(
        meaning="Weight of L_norm in the loss and of the norm in the score; with 0 the reconstruction alone is scored, "
        'and turns where `mutual_information` is "both".',
        allowed=_AMOUNT,
        table=1.5,
        images=1.0,
        paper=1.0,
    ),
    lambda_assist=Parameter(
        meaning="Weight of L_ass; 0 switches it off.", allowed=_AMOUNT, table=1.0, images=0.3, paper=1.0
    ),
    second_encoder=Parameter(meaning="False: L_norm is taken of the first code (the paper's ablation).", allowed=TRUTH),
    reduction=Parameter(
        meaning="Squared norms as sums over features, as in the equations, or as means.",
        allowed=("sum", "mean"),
        paper="mean",
    ),
    anomaly_gain=Parameter(
        meaning="A labelled anomaly's norm term is gain / (||z^|| + offset).", allowed=POSITIVE, paper=1.0
    ),
    anomaly_offset=Parameter(meaning="See `anomaly_gain`.", allowed=NOT_NEGATIVE, paper=0.0),
    combine=Parameter(
        meaning='"sum" is Eq. (9). "scaled" puts both terms on a common scale: z-scores of their logarithms over the '
        "presumed normal training rows, the norm weighted by `norm_weight`.",
        allowed=("scaled", "sum"),
        paper="sum",
    ),
    norm_weight=Parameter(
        meaning="Weight of the norm in the scaled score; that of the reconstruction is 1.",
        allowed=_AMOUNT,
        auto="2 lambda_norm, which Eq. (9) weighs it with; 0 for pictures where no anomaly has taught it",
    ),
    scaling=Parameter(meaning="How table columns are scaled.", allowed=SCALINGS, paper="minmax"),
    optimizer=Parameter(meaning="", allowed=("auto", *OPTIMIZERS), table="adam", images="adam", paper="sgd"),
    lr=Parameter(
        meaning="Learning rate.",
        allowed=COMMON["lr"],
        auto="0.005 for tables, 0.002 for pictures, less in wide networks",
        table=5e-3,
        paper=0.1,
    ),
    schedule=Parameter(
        meaning='"halving" halves the learning rate after every quarter of the epochs.',
        allowed=("auto", *SCHEDULES),
        table="cosine",
        images="cosine",
        paper="halving",
    ),
    n_epochs=Parameter(
        meaning="Passes over the unlabelled rows.",
        allowed=COMMON["n_epochs"],
        auto="250 to 1,000 steps on tables, 500 to 1,500 on pictures, by the number of unlabelled rows; where turns "
        "are told, half as many for the reconstruction",
        paper=200,
    ),
    batch_size=Parameter(
        meaning="Unlabelled rows per step.",
        allowed=COMMON["batch_size"],
        auto="128, for pictures on a CPU 64",
        table=128,
        images=64,
        paper=32,
    ),
    labelled_batch_size=Parameter(
        meaning="Labelled rows per step.",
        allowed=COMMON["labelled_batch_size"],
        auto="32, for pictures on a CPU 16",
        table=32,
        images=16,
        paper=8,
    ),
    accumulate=Parameter(
        meaning="Parts that the rows of a step are taken in, one after the other, to train on large pictures in little "
        "memory. Batch norm then sees one part at a time; but for that, the step is the same.",
        allowed=WHOLE,
    ),
    clip=Parameter(
        meaning="Largest gradient norm per member; None switches it off.",
        allowed=COMMON["clip"],
        table=10.0,
        images=10.0,
        paper=1.0,
    ),
    weight_decay=Parameter(meaning="", allowed=COMMON["weight_decay"]),
    early_stopping=Parameter(
        meaning="True: hold out a quarter of the rows and keep the weights that rank their labels best. "
        '"splits": choose when to stop by repeated splits in a training before, then train on all rows; with few '
        "labels, to the end.",
        allowed=COMMON["early_stopping"],
    ),
    contamination=Parameter(
        meaning='Share of the training rows to flag; "auto" takes what labels and unlabelled rows tell.',
        allowed="'auto' or a share up to 0.5",
    ),
    device=Parameter(meaning='"auto", "cpu", "cuda", ...', allowed="str"),
    precision=Parameter(
        meaning="",
        allowed='{"auto", "float32", "float64", "bfloat16"}',
        auto="bfloat16 for pictures on a GPU, else float32",
    ),
    compiled=Parameter(
        meaning="Compile the networks with `torch.compile` before training, which takes minutes and pays on a GPU.",
        allowed=TRUTH,
    ),
    random_state=Parameter(
        meaning="The same seed on the same machine gives the same bits.", allowed="int, RandomState or None"
    ),
    verbose=Parameter(meaning='1 shows the progress, and logs it to the logger "esad".', allowed="int"),
)


@PARAMETERS.describe
@with_parameters
class ESAD(DeepDetector):
    """End-to-end semi-supervised anomaly detection, for tables and pictures.

    `ESAD()` is the best recipe we know for a user's data: whatever is "auto" is chosen from the data's kind and size.
    `ESAD.as_published()` is the paper's recipe.

    Parameters
    ----------
    ... : all of `PARAMETERS`

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

    recipe: str = "auto"
    n_members: int | str = "auto"
    hidden: Any = "auto"
    latent: int | str = "auto"
    network: str = "auto"
    phi: str = "both"
    noise: float = 0.1
    input_noise: Any = "auto"
    augment: int | str = "auto"
    shift: int | str = "auto"
    flip: bool | str = "auto"
    decoys: float | str = "auto"
    mutual_information: str = "auto"
    restore: str = "auto"
    signed: bool | str = "auto"
    bins: Any = "auto"
    column_weights: float | str = "auto"
    lambda_norm: float | str = "auto"
    lambda_assist: float | str = "auto"
    second_encoder: bool = True
    reduction: str = "sum"
    anomaly_gain: float = 10.0
    anomaly_offset: float = 0.1
    combine: str = "scaled"
    norm_weight: float | str = "auto"
    scaling: str = "standard"
    optimizer: str = "auto"
    lr: float | str = "auto"
    schedule: str = "auto"
    n_epochs: int | str = "auto"
    batch_size: int | str = "auto"
    labelled_batch_size: int | str = "auto"
    accumulate: int = 1
    clip: float | str | None = "auto"
    weight_decay: float = 0.0
    early_stopping: bool | str = False
    contamination: float | str = "auto"
    device: str = "auto"
    precision: str = "auto"
    compiled: bool = False
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
        return cls(**PARAMETERS.published() | changes)

    @classmethod
    def defaults(cls, kind: str) -> dict[str, Any]:
        """What "auto" stands for on "table" or "images", as far as that does not depend on the data.

        Examples
        --------
        >>> ESAD.defaults("table")["n_members"], ESAD.defaults("images")["n_members"]
        (5, 1)
        """
        return PARAMETERS.automatic(kind)

    def recipe_for(
        self, in_shape: tuple[int, ...], y: NDArray[np.int8], device: str = "cpu", *, pictures: Rows | None = None
    ) -> Recipe:
        """Every choice for preprocessed rows (n, *in_shape) with labels `y`; wrong arguments are refused.

        Without the `pictures` themselves they are taken to have an upper side.
        """
        given = self.get_params(deep=False) | {"precision": self._precision_on(torch.device(device), in_shape)}

        def upper_side() -> bool:
            return pictures is None or have_upper_side(pictures[reference_rows(y)])

        return resolve(given, PARAMETERS, in_shape, y, device, upper_side=upper_side)

    def n_leaving_out(self, kind: str) -> int:
        """As many as there are members; none as published."""
        if self.recipe == "published":
            return 0
        return int(self.defaults(kind)["n_members"]) if is_auto(self.n_members) else super().n_leaving_out(kind)

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
        self.recipe_ = self.recipe_for(rows.shape[1:], y, device.type, pictures=rows)
        objective = self.recipe_.objective()
        objective.view.learn(rows, np.flatnonzero(reference_rows(y)), self._column_weights(rows, y))
        phases = [Phase(objective, self.recipe_.settings)]
        if self.recipe_.loss.turns:
            turns = TurnsObjective(self.recipe_.network, self.recipe_.loss)
            phases.insert(0, Phase(turns, self.recipe_.turn_settings))
        return phases

    def _column_weights(self, rows: Rows, y: NDArray[np.int8]) -> NDArray[np.float32] | None:
        power, n_members = self.recipe_.loss.column_weights, self.recipe_.network.n_members
        if not power:
            return None
        return weigh_columns(rows, y, self._unseen_by(y), power=power, n_members=n_members, seed=self.seed_)

    def _describe(self) -> dict[str, Any]:
        return self.recipe_.to_json()

    def _rebuild(self, plain: Any) -> Objective:
        self.recipe_ = Recipe.from_json(plain)
        if self.recipe_.network.in_shape != self.inputs_.shape:
            raise ModelFileError("its network takes other rows than its inputs give")
        return self.recipe_.objective()

    def _restore(self, arrays: dict[str, NDArray[Any]], plain: Any) -> None:
        super()._restore({_current_name(name): value for name, value in arrays.items()}, plain)


def _current_name(name: str) -> str:
    """The name of an array of a model file; views were no modules of their own in version 0.1.0."""
    name = name.replace("weights.bins.", "weights.view.bins.")
    return name.replace("weights.told_apart", "weights.view.decoys.told_apart")
