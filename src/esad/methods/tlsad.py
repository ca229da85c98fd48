r"""TLSAD: Deep SAD whose features are also learned from a reference data set.

    d(x)  = ||Enc(x) - c||^2                                                                            Eq. (1)

    w_i   = tau / (tau + d(x_i)),  tau = 1e-6 + the median of d(x_1) .. d(x_n)                          Eq. (2)
    L_u   = sum_i w_i d(x_i) / sum_i w_i                                                                Eq. (3)
    L_l   = 1/m sum_j (d(x_j) + 1e-6)^(y_j)                                                             Eq. (4)
    L_ref = 1/r sum_k CE(A Enc(x_k) + b, t_k)                                                           Eq. (5)
    L     = L_u + eta [L_u / L_l] L_l + mu L_ref + lambda/2 ||W||^2                                     Eq. (6)

    S(x)  = ||Enc(x) - c||                                                                              Eq. (7)

=============  ========================================================================================
i = 1 .. n     unlabelled pictures
j = 1 .. m     labelled pictures, y_j = -1 anomaly, +1 normal
k = 1 .. r     reference pictures, of any subject
t_k            the class of a reference picture; without classes, the quarter turns it was rotated by
c              mean code of the user's pictures after pretraining as an autoencoder on both sets
w_i, [...]     constants for the gradient
A, b           a linear classifier that only training needs
CE             cross-entropy
=============  ========================================================================================

TLSAD (Feng et al. 2021) is published in full where we cannot read it. Its abstract promises features from a transfer of
learning, a loss in which "the contribution of pollution can be well suppressed" by weights of samples, and "a
harmonious balance in magnitude of loss/gradient between unlabeled and labeled samples". The equations are our reading:
Eqs. (2) and (3) weigh a picture the less the farther it lies out, Eq. (6) gives both kinds of pictures losses of one
size, and one encoder must be compact on the user's pictures and descriptive on the reference, as in Perera and Patel
(2019). `reweight=False` has Deep SAD's two sums in place of L_u and L_l. docs/decisions/0007-tlsad.md weighs other
readings.

Instead of a reference data set, weights that torchvision trained on ImageNet may be given: the features of their
ResNet-18 are then fixed, and the other terms train a small network on them.
"""

import copy
import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor, nn

from esad.core.arguments import NOT_NEGATIVE, TRUTH, Rule, is_whole, parameter, with_parameters
from esad.core.arrays import Arrays, Labels, Rows, State
from esad.core.random import MemberRandom
from esad.detectors.base import TrainingScores
from esad.detectors.standard import StandardDetector
from esad.errors import InputError
from esad.io.picture_folder import open_folder
from esad.networks.mlp import StackedMLP
from esad.networks.pretrained import BACKBONE, extract_features, fixed_arrays, read_weights, restore_fixed
from esad.networks.resnet import N_FEATURES, WEIGHTS, ResNet18
from esad.networks.spec import NetworkSpec
from esad.preprocess.image import ImagePreprocessor, as_images
from esad.preprocess.inputs import is_images
from esad.train.autoencoder import AutoencoderObjective
from esad.train.callbacks import Callback
from esad.train.hypersphere import EPS, HypersphereObjective
from esad.train.loop import Settings
from esad.train.objective import Batch, Objective, RowPool, mean_over_rows
from esad.train.runtime import device_for_scoring
from esad.train.transforms import quarter_turns, random_turns, rotate

__all__ = ["TLSAD"]

MAX_CLASSES = 2**20  # of a reference that a model file may claim
_CLASSES = Rule(f"a whole number below {MAX_CLASSES:,}", lambda number: is_whole(number, 0) and number < MAX_CLASSES)


@with_parameters
class TLSAD(StandardDetector):
    """Deep SAD with features learned also from a reference data set, for pictures.

    Parameters
    ----------
    reference : array of pictures, or path of a folder of pictures
        Any pictures; they are resized, and turned grey or RGB, to be like the user's. Not saved with the model.
    reference_classes : sequence, optional
        One class per reference picture. For a folder the names of its sub-folders by default. Without classes the
        network is to tell by how many quarter turns a reference picture was rotated.
    weights : path, optional
        Instead of `reference`: a file with the weights of torchvision's ResNet-18 (.pth or .safetensors).
    eta : float
        Weight of a labelled picture against an unlabelled one.
    mu : float
        Weight of the reference term.
    reweight : bool
        Whether pictures are weighed against pollution, Eqs. (2) to (4), or alike as in Deep SAD.
    network : {"auto", "lenet", "conv"}
        Auto: "lenet". With `weights` a perceptron is trained on the features instead.
    hidden, latent : sequence of int and int, or "auto"
        Channels or hidden widths, and the size of the code. Auto: those of Deep SAD's paper.
    lr : float or "auto"
        Of Adam, with a cosine schedule. Auto: 1e-3; 1e-4 for pictures once they are pretrained.
    pretrain_epochs, n_epochs : int or "auto"
        As an autoencoder, then as TLSAD. Auto: 150 each, less on large data; 0 switches the pretraining off.
    batch_size, labelled_batch_size : int
        Unlabelled (and as many reference) pictures, and labelled pictures per step.
    weight_decay : float
        lambda of the equations.
    ... : those of `StandardDetector`

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> pictures = rng.integers(0, 99, size=(40, 12, 12), dtype=np.uint8)
    >>> others = rng.integers(0, 256, size=(30, 16, 16, 3), dtype=np.uint8)
    >>> detector = TLSAD(reference=others, n_epochs=2, pretrain_epochs=2, random_state=0).fit(pictures)
    >>> detector.anomaly_score(pictures).shape
    (40,)
    """

    summary = "TLSAD: Deep SAD with features learned also from a reference data set"
    takes = ("images",)
    can_stream = False
    learning_rates: ClassVar[dict[str, float]] = {"table": 1e-3, "images": 1e-4}
    settled: ClassVar[dict[str, Rule]] = {"n_classes": _CLASSES}

    reference: Any = None
    reference_classes: Any = None
    weights: Any = None
    eta: float = parameter(default=1.0, allowed=NOT_NEGATIVE)
    mu: float = parameter(default=1.0, allowed=NOT_NEGATIVE)
    reweight: bool = parameter(default=True, allowed=TRUTH)
    n_members: int = 1
    pretrain_epochs: int | str = "auto"
    labelled_batch_size: int = 32
    early_stopping: bool | str = False

    def _fit_rows(self, rows: Rows, y: Labels, callbacks: Sequence[Callback]) -> TrainingScores:
        if (self.reference is None) == (self.weights is None):
            raise InputError(
                "TLSAD needs `reference`, other pictures to learn from, or else `weights`: one of the two."
            )
        self.reference_, self.backbone_ = None, None
        if self.weights is None:
            self.reference_ = Reference.read(self.reference, self.reference_classes, rows.shape[1:])
        else:
            self.backbone_ = ResNet18().eval()
            self.backbone_.load_state_dict(read_weights(self.weights, WEIGHTS))
        self.n_classes_ = 0 if self.reference_ is None else self.reference_.n_classes
        scores = super()._fit_rows(rows, y, callbacks)
        del self.reference_  # as large as the user's data, and no longer needed
        return scores

    def _pretraining_objective(self, spec: NetworkSpec) -> Objective:
        if self.reference_ is None:
            return super()._pretraining_objective(spec)
        return TransferAutoencoder(spec, self.reference_)

    def _objective(self, spec: NetworkSpec) -> Objective:
        return TLSADObjective(
            spec,
            eta=float(self.eta),
            mu=float(self.mu),
            reweight=bool(self.reweight),
            n_classes=self.n_classes_,
            reference=getattr(self, "reference_", None),
        )

    def network_rows(self, rows: Rows) -> Rows:
        """The pictures themselves, or their ResNet-18 features, (n, 512)."""
        if self.backbone_ is None:
            return rows
        return extract_features(self.backbone_.to(device_for_scoring(self.device)), rows, N_FEATURES)

    def _front_in_double(self) -> Callable[[Tensor], Tensor] | None:
        if self.backbone_ is None:
            return None
        front = copy.deepcopy(self.backbone_).to(device_for_scoring(self.device), torch.float64)
        return front.eval().requires_grad_(False)

    def _terms_module(self) -> nn.Module:
        terms = super()._terms_module()
        return terms if self.backbone_ is None else nn.Sequential(copy.deepcopy(self.backbone_).cpu().eval(), terms)

    def _row_shape(self) -> tuple[int, ...]:
        return super()._row_shape() if self.backbone_ is None else (N_FEATURES,)

    def _name_training(self, settings: list[Settings]) -> str:
        own = self.reference_.fingerprint() if self.reference_ is not None else ""
        return hashlib.sha256((super()._name_training(settings) + own).encode()).hexdigest()[:16]

    def plain_parameters(self) -> dict[str, Any]:
        """Without the reference pictures, which are not part of the model, and without paths of this machine."""
        return super().plain_parameters() | {"reference": None, "reference_classes": None, "weights": None}

    def _state(self) -> State:
        arrays, plain = super()._state()
        return arrays | ({} if self.backbone_ is None else fixed_arrays(self.backbone_)), plain

    def _restore(self, arrays: Arrays, plain: Any) -> None:
        self.backbone_ = None
        if any(name.startswith(BACKBONE) for name in arrays):
            self.backbone_, arrays = restore_fixed(lambda: ResNet18().eval(), arrays)
        super()._restore(arrays, plain)


@dataclass(frozen=True)
class Reference:
    """Reference pictures in the form of the user's own.

    Attributes
    ----------
    x : Tensor, (r, channels, H, W)
        In [0, 1].
    classes : Tensor of int64, (r,), or None
        Numbers from 0 on.
    """

    x: Tensor
    classes: Tensor | None

    @classmethod
    def read(cls, given: Any, classes: Any, in_shape: tuple[int, ...]) -> "Reference":
        """From an array or a folder, whose sub-folders are the classes; resized and turned grey or RGB as needed."""
        if isinstance(given, str | os.PathLike):
            folder = open_folder(given).read()
            images, words = folder.images, folder.label_words
            classes = words if classes is None else classes
        elif is_images(given):
            images = as_images(given)
        else:
            raise InputError(f"`reference` must be pictures or a folder of pictures. Got shape {np.shape(given)}.")
        rows = torch.from_numpy(ImagePreprocessor().fit(images).transform(images))
        return cls(_reshape_pictures(rows, in_shape), _number_classes(classes, len(rows)))

    @property
    def n_classes(self) -> int:
        """Classes to tell apart: the pictures' own, or the quarter turns."""
        return len(quarter_turns(tuple(self.x.shape))) if self.classes is None else int(self.classes.max()) + 1

    def fingerprint(self) -> str:
        """Short hash of pictures and classes."""
        digest = hashlib.sha256(self.x.numpy().tobytes())
        digest.update(b"" if self.classes is None else self.classes.numpy().tobytes())
        return digest.hexdigest()[:16]


def _reshape_pictures(x: Tensor, in_shape: tuple[int, ...]) -> Tensor:
    channels, height, width = in_shape
    if x.shape[1] != channels:
        x = x.mean(1, keepdim=True).expand(-1, channels, -1, -1)
    if x.shape[2:] != (height, width):
        x = F.interpolate(x, (height, width), mode="bilinear", antialias=True, align_corners=False)
    return x.contiguous()


def _number_classes(classes: Any, n_rows: int) -> Tensor | None:
    """Classes as numbers from 0 on; one class only has nothing to tell apart."""
    if classes is None:
        return None
    listed = classes if np.iterable(classes) else [classes]
    words: NDArray[Any] = np.asarray(["" if value is None else str(value) for value in listed])
    if words.shape != (n_rows,):
        raise InputError(f"`reference_classes` must hold one class per picture. Got {len(words)} for {n_rows}.")
    names, numbers = np.unique(words, return_inverse=True)
    return torch.from_numpy(numbers.astype(np.int64)) if len(names) > 1 else None


class TransferAutoencoder(AutoencoderObjective):
    """An autoencoder of the user's and the reference pictures together."""

    def __init__(self, spec: NetworkSpec, reference: Reference) -> None:
        super().__init__(spec)
        self.register_buffer("reference", reference.x, persistent=False)

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Both reconstruction errors, each (members,)."""
        n = batch.unlabelled.shape[1]
        drawn = self.get_buffer("reference")[batch.random.integers(len(self.get_buffer("reference")), n)]
        x = torch.cat([batch.unlabelled, drawn], dim=1)
        error = (self.decoder(self.encoder(x)) - x).square().flatten(2).mean(2)
        return {"reconstruction": error[:, :n].mean(1), "reference": error[:, n:].mean(1)}


class TLSADObjective(HypersphereObjective):
    """Eq. (6); the weights' term is the optimiser's weight decay. With 0 classes there is no reference term."""

    def __init__(
        self,
        spec: NetworkSpec,
        *,
        eta: float,
        mu: float,
        n_classes: int,
        reweight: bool = True,
        reference: Reference | None = None,
    ) -> None:
        super().__init__(spec)
        self.eta, self.mu, self.reweight = eta, mu, reweight
        self.head = StackedMLP([spec.n_codes, n_classes], n_members=spec.n_members) if n_classes else None
        if reference is not None:
            self.register_buffer("reference", reference.x, persistent=False)
            self.register_buffer("classes", reference.classes, persistent=False)

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """The terms of Eq. (6), each (members,)."""
        own = self._balance_terms(batch) if self.reweight else self.sum_near_and_far(batch, eta=self.eta)
        if self.head is None:
            return own
        drawn = batch.random.integers(len(self.get_buffer("reference")), max(1, batch.unlabelled.shape[1]))
        x, wanted = self._reference_batch(drawn, batch.random)
        logits = self.head(self.encoder(x))  # (members, r, classes)
        entropy = F.cross_entropy(logits.transpose(1, 2), wanted, reduction="none").mean(1)
        return own | {"reference": self.mu * entropy}

    def _balance_terms(self, batch: Batch) -> dict[str, Tensor]:
        """The first two terms of Eq. (6); a part without pictures drops out, and there is nothing to balance then."""
        near, known = self.measure_batch(batch)
        terms = {"unlabelled": near.sum(1), "labelled": self.eta * mean_over_rows(known)}  # of no rows: 0
        if near.shape[1]:
            everyone = batch.processes.gather_rows(near.detach())
            tau = everyone.median(1, keepdim=True).values + EPS
            weight, weights = tau / (tau + near.detach()), tau / (tau + everyone)  # Eq. (2)
            terms["unlabelled"] = (weight / weights.mean(1, keepdim=True) * near).mean(1)  # Eq. (3)
        if near.shape[1] and known.shape[1]:
            size = batch.processes.mean(terms["unlabelled"].detach())
            terms["labelled"] = terms["labelled"] * size / batch.processes.mean(mean_over_rows(known).detach())
        return terms

    def finish(self, data: RowPool) -> None:
        """Drop the reference pictures: scoring does not need them."""
        for name in ("reference", "classes"):
            self._buffers.pop(name, None)

    def _reference_batch(self, drawn: Tensor, random: MemberRandom) -> tuple[Tensor, Tensor]:
        """Draw reference pictures (members, r, C, H, W) and the classes or turns to predict (members, r)."""
        x = self.get_buffer("reference")[drawn]
        classes = self._buffers["classes"]
        if classes is not None:
            return x, classes[drawn]
        turns = random_turns(x, random, identity=True)
        allowed = torch.tensor(quarter_turns(tuple(x.shape)), device=x.device)
        return rotate(x, turns), torch.searchsorted(allowed, turns)
