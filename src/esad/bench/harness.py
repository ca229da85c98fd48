"""Our detectors in other people's harnesses: ADBench and WSADBench ask for `fit` and `predict_score`.

There 1 is a labelled anomaly and 0 everything else, which nobody has looked at; here those are -1 and 0.
"""

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from esad import labels, registry


class HarnessDetector:
    """A method of ours as ADBench and WSADBench call it.

    Parameters
    ----------
    seed : int
        The harness's seed, which becomes `random_state`.
    model_name : str, optional
        What the harness calls it; not used.
    method : str
        A name of `esad methods`.
    **parameters
        Of the method.

    Attributes
    ----------
    detector_ : Detector
        The fitted method.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = np.vstack([rng.normal(size=(95, 2)), rng.normal(6.0, 1.0, size=(5, 2))])
    >>> y = np.repeat([0, 1], [95, 5])
    >>> harnessed = HarnessDetector(seed=1, method="iforest").fit(X_train=X, y_train=y)
    >>> harnessed.predict_score([[0.0, 0.0], [7.0, 7.0]]).argmax()
    np.int64(1)
    """

    def __init__(self, seed: int, model_name: str | None = None, *, method: str = "esad", **parameters: Any) -> None:
        self.seed, self.model_name, self.method, self.parameters = seed, model_name, method, parameters

    def fit(self, X_train: ArrayLike, y_train: ArrayLike) -> Self:
        """Learn from rows of which some are labelled anomalies (1); of the others (0) nothing is known."""
        y = labels.from_binary(np.asarray(y_train).astype(int), zero="unlabelled")
        detector = registry.method(self.method)(random_state=self.seed, **self.parameters)
        self.detector_ = detector.fit(np.asarray(X_train), y)
        return self

    def predict_score(self, X: ArrayLike) -> NDArray[np.float64]:
        """Scores, one for each row: the higher, the more anomalous."""
        scores: NDArray[np.float64] = self.detector_.anomaly_score(np.asarray(X))
        return scores
