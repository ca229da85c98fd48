r"""ARNet (Ye et al. 2020): restore a picture whose colour and orientation were erased; anomalies are restored badly.

    x~_t = T_t(grey(x))                                                                                 Eq. (1)
    x^_t = Dec(Enc(x~_t))                                                                               Eq. (2)
    L    = 1/(n k) sum_i sum_t ||x^_it - x_i||^2 / d                                                    Eq. (3)

    S(x) = 1/k sum_t ||x^_t - x||_1 / d                                                                 Eq. (4)

=============  ==============================================================================================
i = 1 .. n     unlabelled and normal pictures; known anomalies are left out
grey           the mean of the channels in every channel
T_1 .. T_k     turned by 0, 90, 180 or 270 degrees; by 0 or 180 where pictures are not square
d              pixels times channels
=============  ==============================================================================================

The encoder sees pixels in [-1, 1]; the decoder's and the errors are in [0, 1]. A step draws one turn for every picture
and mirrors half of them left to right. The paper trains with SGD, this with Adam.
"""

from collections.abc import Callable, Iterator
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from esad.core.arguments import with_parameters
from esad.core.random import MemberRandom
from esad.detectors.deep import Phase
from esad.detectors.standard import StandardDetector
from esad.networks.inference import inference
from esad.networks.spec import NetworkSpec
from esad.preprocess.inputs import Rows
from esad.train.objective import Batch, Objective, Scorer, presumed_normal
from esad.train.transforms import quarter_turns, random_turns, rotate, shift_and_flip, to_grey

__all__ = ["ARNet", "ARNetObjective"]


@with_parameters
class ARNet(StandardDetector):
    """Restoration error of pictures whose colour and orientation were erased.

    Parameters
    ----------
    network : {"auto", "conv", "lenet"}
        Auto: "conv", narrow on a CPU.
    hidden, latent : sequence of int and int, or "auto"
        Channels per level, and channels ("conv") or size ("lenet") of the code.
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

    summary: ClassVar[str] = "Restores erased colour and orientation of pictures: the error (Ye et al. 2020)"
    takes: ClassVar[tuple[str, ...]] = ("images",)
    labels_used: ClassVar[tuple[str, ...]] = ("unlabelled", "normal")
    networks: ClassVar[dict[str, tuple[str, ...]]] = {"images": ("conv", "lenet")}

    n_members: int = 1

    def _objective(self, spec: NetworkSpec) -> Objective:
        return ARNetObjective(spec)

    def _phases(self, rows: Rows, y: NDArray[np.int8], device: torch.device) -> list[Phase]:
        seen = presumed_normal(y)
        objective = self._objective(self._make_network(rows.shape[1:], device))
        return [Phase(objective, self._settings(seen, device, n_epochs=self.n_epochs), seen)]


class ARNetObjective(Objective):
    """An encoder and a decoder that undo turns and greyness."""

    def __init__(self, spec: NetworkSpec) -> None:
        super().__init__()
        self.n_members = spec.n_members
        self.encoder = spec.encoder()
        self.restorer = spec.decoder()

    def reset(self, random: MemberRandom) -> None:
        """Draw the initial weights."""
        self.encoder.reset(random)  # type: ignore[operator]
        self.restorer.reset(random)  # type: ignore[operator]

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Eq. (3) with one turn drawn for every picture, (members,)."""
        x = shift_and_flip(batch.unlabelled, 0, batch.random)
        erased = rotate(to_grey(2 * x - 1), random_turns(x, batch.random, identity=True))
        return {"restoration": (self.restorer(self.encoder(erased)) - x).square().flatten(1).mean(1)}

    def scorer(self) -> Scorer:
        """A function giving Eq. (4), (members, batch)."""
        restored = self._restored()

        def score(x: Tensor) -> dict[str, Tensor]:
            errors = [(one - x).abs().flatten(2).mean(2) for one in restored(x)]
            return {"restoration": torch.stack(errors).mean(0)}

        return score

    def summands(self) -> Scorer:
        """Eq. (4) pixel by pixel."""
        restored = self._restored()
        return lambda x: {"restoration": torch.stack([(one - x).abs() for one in restored(x)]).mean(0) / x[0].numel()}

    def rebuilder(self) -> Callable[[Tensor], Tensor]:
        """A function giving the mean of x^_t over the turns, (members, batch, *features)."""
        restored = self._restored()
        return lambda x: torch.stack(list(restored(x))).mean(0)

    def _restored(self) -> Callable[[Tensor], Iterator[Tensor]]:
        """A function giving Eq. (2) for one turn after the other."""
        encode, restore = inference(self.encoder), inference(self.restorer)

        def each(x: Tensor) -> Iterator[Tensor]:
            grey = to_grey(2 * x - 1)[None]
            for turns in quarter_turns(x.shape):
                yield restore(encode(torch.rot90(grey, turns, dims=(-2, -1))))

        return each
