"""The highest scores of a file or folder with the rows themselves, so that they can be explained."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from esad.cli.source import Block, Source, scored
from esad.detectors.opening import plain_id

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from esad.detectors.base import Detector

__all__ = ["Worst", "worst_rows"]


@dataclass(frozen=True)
class Worst:
    """Rows, the worst first; their ids as they stand in the file, or their numbers."""

    X: Any
    scores: "NDArray[np.float64]"
    rows: "NDArray[np.intp]"
    ids: list[Any]

    @classmethod
    def of(cls, block: Block, scores: "NDArray[np.float64]", *, first_row: int, n_kept: int) -> "Worst":
        """The worst of one block; of equal scores the earlier rows."""
        import numpy as np

        chosen = np.argsort(-scores, kind="stable")[:n_kept]
        rows = first_row + chosen
        ids = rows.tolist() if block.ids is None else [plain_id(block.ids[index]) for index in chosen.tolist()]
        return cls(_take(block.X, chosen), scores[chosen], rows, ids)

    def joined(self, later: "Worst", *, n_kept: int) -> "Worst":
        """The worst of two."""
        import numpy as np

        scores, rows = np.concatenate([self.scores, later.scores]), np.concatenate([self.rows, later.rows])
        chosen = np.lexsort((rows, -scores))[:n_kept]
        ids = [*self.ids, *later.ids]
        return Worst(_take(_concat(self.X, later.X), chosen), scores[chosen], rows[chosen], [ids[i] for i in chosen])


def worst_rows(detector: "Detector", source: Source, n_kept: int) -> Worst:
    """Score everything, block by block, and keep the worst rows."""
    found, n_rows = None, 0
    for block, scores in scored(detector, source):
        worst = Worst.of(block, scores, first_row=n_rows, n_kept=n_kept)
        found = worst if found is None else found.joined(worst, n_kept=n_kept)
        n_rows += block.n_rows
    assert found is not None  # a source has one block at least
    return found


def _take(X: Any, rows: "NDArray[np.intp]") -> Any:
    return X.take(rows) if hasattr(X, "column_names") else X[rows]


def _concat(*parts: Any) -> Any:
    import numpy as np
    import pyarrow as pa

    return pa.concat_tables(parts) if hasattr(parts[0], "column_names") else np.concatenate(parts)
