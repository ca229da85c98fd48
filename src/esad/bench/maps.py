"""Maps of codes: where test rows lie in the space that a method has learned, laid flat by t-SNE."""

import numpy as np
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE

from esad.datasets.scenario import Scenario
from esad.detectors.deep import DeepDetector
from esad.preprocess.inputs import Rows

__all__ = ["code_maps"]

N_COMPONENTS = 50  # t-SNE begins with as many principal components, as its authors advise


def code_maps(detector: DeepDetector, rows: Scenario, n_rows: int, seed: int) -> dict[str, list[float]]:
    """Places of some test rows, half of them anomalies, on a map of every code of the first member.

    `map row` numbers the test rows, `map truth` is 1 for anomalies, `map score` the anomaly score; `map z x` and
    `map z y` are the places by the code z.
    """
    rng = np.random.default_rng(seed)
    kinds = [np.flatnonzero(rows.truth_test == kind) for kind in (False, True)]
    chosen = np.sort(np.concatenate([rng.permutation(kind)[: n_rows // 2] for kind in kinds]))
    found = {
        "map row": chosen,
        "map truth": rows.truth_test[chosen],
        "map score": detector.anomaly_score(rows.X_test[chosen]),
    }
    for name, codes in detector.codes(rows.X_test[chosen]).items():
        places = _flat(codes, seed)
        found |= {f"map {name} x": places[:, 0], f"map {name} y": places[:, 1]}
    return {name: values.astype(float).tolist() for name, values in found.items()}


def _flat(codes: Rows, seed: int) -> Rows:
    n_components = min(N_COMPONENTS, *codes.shape)
    reduced = PCA(n_components, random_state=seed).fit_transform(codes)
    perplexity = min(30.0, (len(codes) - 1) / 3)
    flat: Rows = TSNE(2, perplexity=perplexity, init="pca", random_state=seed).fit_transform(reduced)
    return flat
