r"""DIF (Ouardini et al. 2019): an Isolation Forest on what a network trained on ImageNet sees in pictures.

    f(x) = the mean over pixels of what a layer of Inception-ResNet-v2 gives                            Eq. (1)

    S(x) = 2^(-E[h(f(x))] / c(n))                                                                       Eq. (2)

=============  ====================================================================================
h, c           depth in a tree and its mean, see `esad.methods.iforest`
=============  ====================================================================================

The layer is the last one, "conv2d_7b", one of those before it, or all of them side by side, "concat". Pictures are
resized to 299 x 299. The sources choose the layer by labelled anomalies; nothing is chosen here.
"""

from collections.abc import Sequence
from typing import Any

import torch

from esad.core.arguments import Rule, check, find_parameters, is_whole, parameter, with_parameters
from esad.core.arrays import Arrays, Labels, Rows, State
from esad.core.random import seed_from
from esad.detectors.base import TrainingScores
from esad.detectors.solved import ShallowDetector
from esad.networks.inception import LAYERS, MAX_SIDE, MIN_SIDE, WEIGHTS, InceptionResNetV2
from esad.networks.pretrained import FEATURES, extract_features, fill_weights, fixed_arrays, hide_path, restore_fixed
from esad.solvers.trees import ForestArguments, ForestModel
from esad.train.callbacks import Callback
from esad.train.runtime import device_for_scoring, resolve_device

__all__ = ["DIF"]

_SIDE = Rule(
    f"a whole number from {MIN_SIDE} to {MAX_SIDE}", lambda value: is_whole(value, MIN_SIDE) and value <= MAX_SIDE
)
BLOCK_PICTURES = 16  # pictures per forward pass, whose activations need much memory


@with_parameters
class DIF(ForestArguments, ShallowDetector):
    """Isolation Forest on fixed features of pictures.

    Parameters
    ----------
    features : {"imagenet", "random"} or path
        Weights of the Inception-ResNet-v2: the published ones, downloaded once into the data folder; none, which is a
        stand-in of other results; or a file with the published ones (.pth or .safetensors).
    pooled : str
        "conv2d_7b", another of the network's layers, or "concat" for all of them.
    side : int
        Pixels a side that pictures are resized to, 75 to 1,024. The published weights expect 299; less is quicker.
    device : str
        Of the network: "auto", "cpu", "cuda", ...
    ... : those of `ForestArguments` and `ShallowDetector`

    Examples
    --------
    >>> import numpy as np
    >>> pictures = np.random.default_rng(0).integers(0, 99, size=(40, 8, 8), dtype=np.uint8)
    >>> bright = np.full((1, 8, 8), 255, dtype=np.uint8)
    >>> detector = DIF(features="random", pooled="conv2d_1a", side=75, random_state=0).fit(pictures)
    >>> bool(detector.anomaly_score(bright)[0] > detector.anomaly_score(pictures).max())
    True
    """

    summary = "DIF: an Isolation Forest on features of Inception-ResNet-v2 (Ouardini et al. 2019)"
    takes = ("images",)
    labels_used = ("unlabelled", "normal")
    solver = ForestModel
    can_export = False
    not_exported = (
        "its score jumps where a feature crosses a cut, and features that another runtime has convolved differ in "
        "their last digits"
    )

    features: Any = parameter(default="imagenet", allowed=FEATURES)
    pooled: str = parameter(default="conv2d_7b", allowed=(*LAYERS, "concat"))
    side: int = parameter(default=299, allowed=_SIDE)
    device: str = "auto"

    def _make_backbone(self) -> InceptionResNetV2:
        """The network with weights still to be filled."""
        check(self.get_params(deep=False), find_parameters(self))
        return InceptionResNetV2(self.pooled, int(self.side)).eval().requires_grad_(False)

    def _fit_rows(self, rows: Rows, y: Labels, callbacks: Sequence[Callback]) -> TrainingScores:
        self._model()  # refuses wrong arguments before anything is computed
        backbone = self._make_backbone()
        fill_weights(backbone, WEIGHTS, self.features, seed=seed_from(self.random_state))
        self.backbone_ = backbone.to(resolve_device(self.device))
        return super()._fit_rows(rows, y, callbacks)

    def model_rows(self, rows: Rows) -> Rows:
        """Eq. (1), (n, features)."""
        return extract_features(self.backbone_, rows, self.backbone_.n_features, block=BLOCK_PICTURES)

    def plain_parameters(self) -> dict[str, Any]:
        """Without paths of this machine."""
        return super().plain_parameters() | {"features": hide_path(self.features)}

    def _state(self) -> State:
        arrays, plain = super()._state()
        return arrays | fixed_arrays(self.backbone_), plain

    def _restore(self, arrays: Arrays, plain: Any) -> None:
        backbone, solved = restore_fixed(self._make_backbone, arrays)
        self.backbone_ = backbone.to(device_for_scoring(self.device), torch.float32)
        self.model_ = self._model().restore(solved, plain, n_features=backbone.n_features)
