r"""ARNet (Ye et al. 2020): restore a picture whose colour and orientation were erased; anomalies are restored badly.

    x~_t = T_t(grey(x))                                                                                 Eq. (1)
    x^_t = Dec(Enc(x~_t))                                                                               Eq. (2)
    L    = 1/(n k) sum_i sum_t ||x^_it - x_i||^2 / d                                                    Eq. (3)

    e_t  = 1/n sum_i ||x^_it - x_i||_1 / d,  after training                                             Eq. (4)
    S(x) = 1/k sum_t ||x^_t - x||_1 / (d e_t)                                                           Eq. (5)

=============  ==============================================================================================
i = 1 .. n     unlabelled and normal pictures; known anomalies are left out
grey           the mean of the channels in every channel
T_1 .. T_k     turned by 0, 90, 180 or 270 degrees; by 0 or 180 where pictures are not square
Enc, Dec       "conv": what each level of Enc gives goes to its twin in Dec too
d              pixels times channels
=============  ==============================================================================================

The encoder sees pixels in [-1, 1]; the decoder's and the errors are in [0, 1]. A step draws one turn for every picture
and mirrors half of them left to right. The paper trains with SGD, this with Adam. Eq. (4) takes at most 1,024 pictures.
"""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor

from esad.core.arguments import TRUTH, is_truth, parameter, with_parameters
from esad.detectors.standard import StandardDetector
from esad.errors import ModelFileError
from esad.networks.spec import NetworkSpec
from esad.train.objective import Batch, Objective, RebuildingObjective, RowPool
from esad.train.transforms import quarter_turns, random_turns, rotate, shift_and_flip, to_grey

__all__ = ["ARNet"]

MAX_MEASURED = 1024  # pictures per member that Eq. (4) takes
BLOCK_PICTURES = 256


@with_parameters
class ARNet(StandardDetector):
    """Restoration error of pictures whose colour and orientation were erased.

    Parameters
    ----------
    network : {"auto", "conv", "lenet"}
        Auto: "conv", narrow on a CPU.
    hidden, latent : sequence of int and int, or "auto"
        Channels per level, and channels ("conv") or size ("lenet") of the code.
    skips : bool
        Whether the decoder of "conv" sees what every level of the encoder gives, as in the paper, or the code alone.
    normalize : bool
        Whether errors are divided by those of the training, turn by turn: e_t, as in the paper, or 1.
    ... : those of `StandardDetector`

    Examples
    --------
    >>> import numpy as np
    >>> pictures = np.random.default_rng(0).integers(0, 50, size=(40, 8, 8), dtype=np.uint8)
    >>> pictures[:, :2] += 200                                    # normal: bright at the top
    >>> bright = np.full((1, 8, 8), 225, dtype=np.uint8)
    >>> detector = ARNet(hidden=(4, 4), latent=4, n_epochs=20, random_state=0).fit(pictures)
    >>> bool(detector.anomaly_score(bright)[0] > detector.anomaly_score(pictures).max())
    True
    """

    summary = "Restores erased colour and orientation of pictures: the error (Ye et al. 2020)"
    takes = ("images",)
    labels_used = ("unlabelled", "normal")
    networks: ClassVar[dict[str, tuple[str, ...]]] = {"images": ("conv", "lenet")}

    skips: bool = parameter(default=True, allowed=TRUTH)
    normalize: bool = parameter(default=True, allowed=TRUTH)
    n_members: int = 1

    def _objective(self, spec: NetworkSpec) -> Objective:
        return ARNetObjective(spec, **self.parts_)

    def _make_network(self, in_shape: tuple[int, ...], device: torch.device) -> NetworkSpec:
        spec = super()._make_network(in_shape, device)
        self.parts_ = {"skips": bool(self.skips) and spec.kind == "conv", "normalize": bool(self.normalize)}
        return spec

    def _describe(self) -> dict[str, Any]:
        return super()._describe() | {"parts": self.parts_}

    def _rebuild(self, plain: Any) -> Objective:
        self.parts_ = plain.get("parts", {"skips": False, "normalize": False})  # files from before they were there
        if self.parts_.keys() != {"skips", "normalize"} or not all(map(is_truth, self.parts_.values())):
            raise ModelFileError(f"its parts must be `skips` and `normalize`, true or false. Got {self.parts_!r}")
        return super()._rebuild(plain)


class ARNetObjective(RebuildingObjective):
    """An encoder and a decoder that undo turns and greyness, and how large their errors usually are."""

    error_name = "restoration"
    usual_errors: Tensor | None

    def __init__(self, spec: NetworkSpec, *, skips: bool, normalize: bool) -> None:
        super().__init__()
        self.n_members, self.skips = spec.n_members, skips
        self.encoder = spec.encoder()
        self.restorer = spec.decoder(skips=skips)
        n_turns = len(quarter_turns(spec.in_shape))
        self.register_buffer("usual_errors", torch.ones(spec.n_members, n_turns) if normalize else None)

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Eq. (3) with one turn drawn for every picture, (members,)."""
        x = shift_and_flip(batch.unlabelled, 0, batch.random)
        erased = rotate(to_grey(2 * x - 1), random_turns(x, batch.random, identity=True))
        return {"restoration": (self._restore(erased) - x).square().flatten(1).mean(1)}

    @torch.no_grad()
    def finish(self, data: RowPool) -> None:
        """Eq. (4) on pictures evenly spread over those that a member may draw."""
        if self.usual_errors is None:
            return
        rows = data.unlabelled[:, :: -(-data.n_unlabelled // MAX_MEASURED)]  # (members, n)
        total = torch.zeros_like(self.usual_errors)
        for block in torch.split(rows, BLOCK_PICTURES, dim=1):
            x = data.x[block]
            errors = [(one - x).abs().flatten(2).mean(2).sum(1) for one in self._restore_turns(x)]
            total += torch.stack(errors, dim=1) / rows.shape[1]
        self.usual_errors.copy_(total.clamp(min=torch.finfo(total.dtype).tiny))

    def errors(self) -> Callable[[Tensor], Tensor]:
        """A function giving d times Eq. (5) pixel by pixel, (members, batch, *features)."""

        def measure(x: Tensor) -> Tensor:
            restored = torch.stack(list(self._restore_turns(x.expand(self.n_members, *x.shape))))
            errors = (restored - x).abs()  # (turns, members, batch, *features)
            if self.usual_errors is not None:
                errors = errors / self.usual_errors.T.to(x.dtype)[:, :, None, None, None, None]
            return errors.mean(0)

        return measure

    def rebuilder(self) -> Callable[[Tensor], Tensor]:
        """A function giving the mean of x^_t over the turns, (members, batch, *features)."""
        return lambda x: torch.stack(list(self._restore_turns(x.expand(self.n_members, *x.shape)))).mean(0)

    def _restore_turns(self, x: Tensor) -> Iterator[Tensor]:
        """Yield Eq. (2) of pictures (members, batch, *features) for each turn."""
        grey = to_grey(2 * x - 1)
        for turns in quarter_turns(x.shape):
            yield self._restore(torch.rot90(grey, turns, dims=(-2, -1)))

    def _restore(self, erased: Tensor) -> Tensor:
        return self.restorer(self.encoder.levels_of(erased) if self.skips else self.encoder(erased))  # type: ignore[operator]
