r"""P-KDGAN (Zhang et al. 2020): what a large adversarial encoder-decoder-encoder knows, in a small one that scores.

    z = Enc1(x),   x^ = tanh(Dec(z)),   z^ = Enc2(x^)      of the teacher (T) and of the student (S)    Eq. (1)
    D(x)  = sigmoid(Head(f(x)))                            one judge for each                           Eq. (2)

    L_D   = - 1/n sum_i [log D(x_i) + log(1 - D(x^_i))]                                                 Eq. (3)
    L_G   = 1/n sum_i [||f(x_i) - f(x^_i)||^2 / d_f + lambda_context ||x_i - x^_i||_1 / d
                       + lambda_encoding ||z_i - z^_i||^2 / d_z]                                        Eq. (4)
    L_K   = 1/n sum_i [lambda_codes (||z_i^S - z_i^T||^2 + ||z^_i^S - z^_i^T||^2) / d_z
                       + lambda_pictures ||x^_i^S - x^_i^T||_1 / d]                                     Eq. (5)

    S(x)  = ||z^S - z^^S||^2 / d_z                                                                      Eq. (6)

==================  =========================================================================================
i = 1 .. n          unlabelled and normal pictures; known anomalies are left out
d, d_z, d_f         pixels times channels, numbers in a code and in f
==================  =========================================================================================

Three phases: the teacher alone on L_G (half of the training); the student on L_G + L_K with the teacher fixed (a
quarter); then both, the teacher on its L_G + L_K too (a quarter). Every network has its judge, which moves before it.
Pixels are in [-1, 1]. Only the student is kept.

The paper gives the losses (codes by L2, pictures by L1) and the two ways of distilling, one after the other. Its
weights, networks and code are not published. Chosen here: GANomaly's terms and weights for L_G, DCGAN's networks, a
student with a quarter of the teacher's channels, weights 1 and 10 for L_K, and the lengths of the phases.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from esad.core.arguments import NOT_NEGATIVE, parameter, with_parameters
from esad.core.arrays import Labels, Rows
from esad.detectors.deep import Phase
from esad.detectors.standard import AdversarialDetector
from esad.networks.dcgan import DCGANEncoder
from esad.networks.spec import NetworkSpec
from esad.train.adversarial import judge_loss
from esad.train.objective import Batch, Move, Objective, Scorer

__all__ = ["PKDGAN"]

STAGES = {"teacher": 0.5, "student": 0.25, "both": 0.25}  # shares of the training
WEIGHTS = ("context", "encoding", "codes", "pictures")  # terms with a `lambda_`


@with_parameters
class PKDGAN(AdversarialDetector):
    """Distance of the codes of a picture and of its reconstruction by a small network that a large one has taught.

    Parameters
    ----------
    lambda_context, lambda_encoding : float
        Weights of the errors of pictures and of codes against the judge's features.
    lambda_codes, lambda_pictures : float
        Weights of what the student is to have in common with the teacher.
    hidden, latent : sequence of int and int, or "auto"
        Channels of the teacher's levels, of which the student has a quarter, and the size of the code. Auto: (64, 128,
        256), a quarter of that on a CPU; 100.
    lr : float or "auto"
        Of Adam. Auto: 2e-4.
    n_epochs : int or "auto"
        Of all phases together. Auto: 100, less on large data.
    ... : those of `AdversarialDetector`

    Examples
    --------
    >>> import numpy as np
    >>> pictures = np.random.default_rng(0).integers(0, 50, size=(40, 8, 8), dtype=np.uint8)
    >>> detector = PKDGAN(hidden=(8,), latent=4, n_epochs=4, random_state=0).fit(pictures)
    >>> detector.anomaly_score(pictures).shape
    (40,)
    """

    summary = "P-KDGAN: a small adversarial network taught by a large one (Zhang et al. 2020)"
    auto_hidden = (64, 128, 256)
    auto_latent = 100
    auto_epochs = 100

    lambda_context: float = parameter(default=50.0, allowed=NOT_NEGATIVE)
    lambda_encoding: float = parameter(default=1.0, allowed=NOT_NEGATIVE)
    lambda_codes: float = parameter(default=1.0, allowed=NOT_NEGATIVE)
    lambda_pictures: float = parameter(default=10.0, allowed=NOT_NEGATIVE)
    batch_size: int = 64

    def _objective(self, spec: NetworkSpec, stage: str = "both") -> Objective:
        return PKDGANObjective(spec, {name: float(getattr(self, f"lambda_{name}")) for name in WEIGHTS}, stage=stage)

    def _phases(self, rows: Rows, y: Labels, device: torch.device) -> list[Phase]:
        (whole,) = super()._phases(rows, y, device)
        phases = []
        for stage, share in STAGES.items():
            settings = replace(whole.settings, n_steps=max(1, round(share * whole.settings.n_steps)))
            phases.append(replace(whole, objective=self._objective(self.network_, stage), settings=settings))
        return phases


class _Generator(nn.Module):
    """A generator of Eq. (1)."""

    def __init__(self, spec: NetworkSpec) -> None:
        super().__init__()
        self.encoder_1, self.decoder, self.encoder_2 = spec.encoder(), spec.decoder(), spec.encoder()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """z, x^, z^, all (members, batch, ...), of pixels in [-1, 1]."""
        code = self.encoder_1(x)
        rebuilt = self.decoder(code).tanh()
        return code, rebuilt, self.encoder_2(rebuilt)


class PKDGANObjective(Objective):
    """A student, which scores, and until the training has ended a teacher and their judges; `stage` is the phase."""

    for_training = ("teacher", "teacher_judge", "student_judge")

    def __init__(self, spec: NetworkSpec, weights: dict[str, float], *, stage: str) -> None:
        super().__init__()
        self.n_members, self.weights, self.stage = spec.n_members, weights, stage
        small = replace(spec, hidden=tuple(max(1, width // 4) for width in spec.hidden))
        self.student, self.teacher = _Generator(small), _Generator(spec)
        self.student_judge, self.teacher_judge = (
            DCGANEncoder(one.picture, one.hidden, (1,), n_members=one.n_members) for one in (small, spec)
        )

    def inherit(self, previous: Objective) -> None:
        """Go on with the weights of the phase before."""
        self.load_state_dict(previous.state_dict())

    def moves(self) -> tuple[Move, ...]:
        """Return the moves of a judge and its generator; in the last phase, of both pairs."""
        moves: list[Move] = []
        for name in ("teacher", "student") if self.stage == "both" else (self.stage,):
            player, judge = self._pair(name)
            moves += [
                Move(partial(self.judge_loss, name=name), (judge,)),
                Move(partial(self.loss, name=name), (player,)),
            ]
        return tuple(moves)

    def _pair(self, name: str) -> tuple[nn.Module, DCGANEncoder]:
        return getattr(self, name), getattr(self, f"{name}_judge")

    def judge_loss(self, batch: Batch, *, name: str) -> dict[str, Tensor]:
        """Eq. (3) of the teacher or the student, (members,)."""
        x, (player, judge) = 2 * batch.unlabelled - 1, self._pair(name)
        return {f"{name}_judge": judge_loss(judge(x), judge(player(x)[1]))}

    def loss(self, batch: Batch, *, name: str = "student") -> dict[str, Tensor]:
        """Eq. (4) of the teacher or the student and, unless the teacher is alone, Eq. (5), each (members,)."""
        x, (player, judge) = 2 * batch.unlabelled - 1, self._pair(name)
        self.teacher.train(self.stage != "student")  # one that is fixed keeps its statistics of batch norm too
        code, rebuilt, second_code = player(x)
        mismatch = judge.features_and_code(x)[0] - judge.features_and_code(rebuilt)[0]
        terms = {
            "adversarial": mismatch.square(),
            "context": (rebuilt - x).abs(),
            "encoding": (second_code - code).square(),
        }
        if self.stage != "teacher":
            others_code, others_rebuilt, others_second = (self.teacher if name == "student" else self.student)(x)
            terms["codes"] = (code - others_code).square() + (second_code - others_second).square()
            terms["pictures"] = (rebuilt - others_rebuilt).abs()
        weights = {"adversarial": 1.0} | self.weights
        return {f"{name}_{term}": weights[term] * value.flatten(1).mean(1) for term, value in terms.items()}

    def scorer(self) -> Scorer:
        """A function giving Eq. (6), (members, batch)."""

        def score(x: Tensor) -> dict[str, Tensor]:
            code, _, second_code = self.student((2 * x - 1).expand(self.n_members, *x.shape))
            return {"encoding": (second_code - code).square().mean(2, dtype=x.dtype)}

        return score

    def rebuilder(self) -> Callable[[Tensor], Tensor]:
        """A function giving the student's x^, pixels in [0, 1] again, (members, batch, *features)."""
        return lambda x: (self.student((2 * x - 1).expand(self.n_members, *x.shape))[1] + 1) / 2
