"""TLSAD's reference pictures and losses; `esad.methods.tlsad` states the equations."""

import hashlib
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor

from esad.core.random import MemberRandom
from esad.errors import InputError
from esad.io.images import as_images, is_images, read_folder
from esad.networks.mlp import StackedMLP
from esad.networks.spec import NetworkSpec
from esad.preprocess.image import ImagePreprocessor
from esad.train.autoencoder import AutoencoderObjective
from esad.train.hypersphere import HypersphereObjective
from esad.train.objective import Batch, TrainingData
from esad.train.transforms import quarter_turns, random_turns, rotate

__all__ = ["Reference", "TLSADObjective", "TransferAutoencoder"]


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
            folder = read_folder(given)
            images, words = folder.images, folder.label_words
            classes = words if classes is None else classes
        elif is_images(given):
            images = as_images(given)
        else:
            raise InputError(f"`reference` must be pictures or a folder of pictures. Got shape {np.shape(given)}.")
        rows = torch.from_numpy(ImagePreprocessor().fit(images).transform(images))
        return cls(_reshaped(rows, in_shape), _numbered(classes, len(rows)))

    @property
    def n_classes(self) -> int:
        """Classes to tell apart: the pictures' own, or the quarter turns."""
        return len(quarter_turns(tuple(self.x.shape))) if self.classes is None else int(self.classes.max()) + 1

    def fingerprint(self) -> str:
        """Short hash of pictures and classes."""
        digest = hashlib.sha256(self.x.numpy().tobytes())
        digest.update(b"" if self.classes is None else self.classes.numpy().tobytes())
        return digest.hexdigest()[:16]


def _reshaped(x: Tensor, in_shape: tuple[int, ...]) -> Tensor:
    channels, height, width = in_shape
    if x.shape[1] != channels:
        x = x.mean(1, keepdim=True).expand(-1, channels, -1, -1)
    if x.shape[2:] != (height, width):
        x = F.interpolate(x, (height, width), mode="bilinear", antialias=True, align_corners=False)
    return x.contiguous()


def _numbered(classes: Any, n_rows: int) -> Tensor | None:
    """Classes as numbers from 0 on; one class only has nothing to tell apart."""
    if classes is None:
        return None
    words: NDArray[Any] = np.asarray(["" if value is None else str(value) for value in classes])
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
    """Eq. (4); the weights' term is the optimiser's weight decay. With 0 classes there is no reference term."""

    def __init__(
        self, spec: NetworkSpec, *, eta: float, mu: float, n_classes: int, reference: Reference | None = None
    ) -> None:
        super().__init__(spec)
        self.eta, self.mu = eta, mu
        self.head = StackedMLP([spec.n_codes, n_classes], n_members=spec.n_members) if n_classes else None
        if reference is not None:
            self.register_buffer("reference", reference.x, persistent=False)
            self.register_buffer("classes", reference.classes, persistent=False)

    def reset(self, random: MemberRandom) -> None:
        """Draw the initial weights."""
        super().reset(random)
        if self.head is not None:
            self.head.reset(random)

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """The sums of Eq. (2) and, with a reference, the weighted Eq. (3), each (members,)."""
        if self.head is None:
            return self.near_and_far(batch, eta=self.eta)
        drawn = batch.random.integers(len(self.get_buffer("reference")), max(1, batch.unlabelled.shape[1]))
        x, wanted = self._reference_batch(drawn, batch.random)
        logits = self.head(self.encoder(x))  # (members, r, classes)
        entropy = F.cross_entropy(logits.transpose(1, 2), wanted, reduction="none").mean(1)
        return self.near_and_far(batch, eta=self.eta) | {"reference": self.mu * entropy}

    def finish(self, data: TrainingData) -> None:
        """Let go of the reference pictures: scoring does not need them."""
        for name in ("reference", "classes"):
            self._buffers.pop(name, None)

    def _reference_batch(self, drawn: Tensor, random: MemberRandom) -> tuple[Tensor, Tensor]:
        """Pictures (members, r, C, H, W) and what is to be told of them (members, r)."""
        x = self.get_buffer("reference")[drawn]
        classes = self._buffers["classes"]
        if classes is not None:
            return x, classes[drawn]
        turns = random_turns(x, random, identity=True)
        allowed = torch.tensor(quarter_turns(tuple(x.shape)), device=x.device)
        return rotate(x, turns), torch.searchsorted(allowed, turns)
