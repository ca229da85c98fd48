"""All rows of files or of a folder in memory, with their labels and names, checked against a model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from esad.cli.source import open_source
from esad.cli.training import Reading, check_column, column_labels, table_files
from esad.detectors.opening import open_table, plain_id
from esad.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from esad.detectors.base import Detector

__all__ = ["RowsRead", "read_rows"]


@dataclass(frozen=True)
class RowsRead:
    """All rows of the file, in memory."""

    X: Any
    y: "NDArray[np.int8]"
    ids: Sequence[Any] | None
    id_name: str
    label_column: str | None = None
    broken: Mapping[str, str] = field(default_factory=dict)  # pictures that were left out, and why

    def name(self, row: int) -> Any:
        """What a row is called: its id or its number."""
        return row if self.ids is None else self.ids[row]


def read_rows(path: Path, detector: "Detector", reading: Reading) -> RowsRead:
    """Rows, labels and ids, checked against the model."""
    import numpy as np

    label_column, id_column = reading.label_column, reading.id_column
    files = table_files(path, reading) if detector.inputs_.kind == "table" else ()
    if files and files[0].is_file():
        label_column, id_column = _columns(files[0], detector, reading)
        if label_column is None and (reading.anomaly_value or reading.normal_value) is not None:
            raise InputError("--anomaly-value and --normal-value are about a label column. Give --label-column too.")
    elif label_column is not None:
        raise InputError("--label-column is for a table. Pictures are labelled by sub-folder or --labels-csv.")
    source = open_source(
        files[0] if files else path,
        detector,
        id_column=id_column,
        truth_column=label_column,
        labels_csv=reading.labels_csv,
        set_aside=reading.skip_broken,
    )
    blocks = list(source.blocks)
    for file in files[1:]:
        blocks += open_table(file, detector, id_column=source.id_name, truth_column=label_column).blocks
    ids = [plain_id(cell) for block in blocks for cell in block.ids] if blocks[0].ids is not None else None
    y = np.zeros(sum(block.n_rows for block in blocks), dtype=np.int8)
    if blocks[0].truth is not None:
        words = np.concatenate([np.asarray(block.truth, dtype=object) for block in blocks])
        y = column_labels(words, reading, name=label_column or "sub-folder")
    X = _joined([block.X for block in blocks])
    return RowsRead(X, y, ids, source.id_name or "row", label_column, source.broken)


def _columns(path: Path, detector: "Detector", reading: Reading) -> tuple[str | None, str | None]:
    """The columns of labels and ids: as given, or else those of the training where the file has them."""
    from esad.io.files import column_names

    names = column_names(path)
    check_column(reading.label_column, names, path, "--label-column")
    known = {name: detector.notes_.get(name) for name in ("label_column", "id_column")}
    present = {name: column if column in names else None for name, column in known.items()}
    return reading.label_column or present["label_column"], reading.id_column or present["id_column"]


def _joined(parts: Sequence[Any]) -> Any:
    """Blocks of one table, or of pictures, as one."""
    import numpy as np
    import pyarrow as pa

    if isinstance(parts[0], pa.Table):
        return pa.concat_tables(parts, promote_options="permissive")
    return np.concatenate(parts)
