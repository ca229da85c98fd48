"""The model being served: where it came from, and how a new file takes its place."""

import contextlib
import datetime as dt
import functools
import logging
import shutil
import tempfile
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from esad import registry
from esad.core.atomic import hash_file, stamp_of
from esad.core.machine import require
from esad.core.text import list_text
from esad.detectors.base import Detector
from esad.detectors.model_file import load
from esad.errors import EsadError, InputError, ModelFileError, RequestError, SchemaError
from esad.explain.reasons import plain_cell
from esad.io.dialect import Reading
from esad.io.notes import Notes
from esad.persist.signature import signature_path, trusted_keys, trusted_keys_path, verify
from esad.serve.metrics import Metrics

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class ServedModel:
    """A model and what tells it from others.

    Parameters
    ----------
    detector : Detector
    file : str
        Name of the model file.
    version : str
        The first 16 hexadecimal digits of the file's SHA-256.
    loaded_at : str
        When it was read, in ISO 8601.
    signed_by : str or None
        Fingerprint of the key that signed the file, where that was asked for.
    """

    detector: Detector
    file: str
    version: str
    loaded_at: str
    signed_by: str | None = None

    @property
    def method(self) -> str:
        """The method's name, as in `esad methods`."""
        return registry.method_name(type(self.detector))

    @functools.cached_property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of training; none for pictures."""
        schema = self.detector.inputs_.schema
        return () if schema is None else schema.names

    @functools.cached_property
    def described_columns(self) -> tuple[tuple[str, str], ...]:
        """Names and kinds of the columns in order; of pictures their shape."""
        inputs = self.detector.inputs_
        if inputs.schema is None:
            return (("pictures", " x ".join(map(str, inputs.shape))),)
        return tuple((column.name, column.kind) for column in inputs.schema.columns)

    @functools.cached_property
    def reading(self) -> Reading:
        """How numbers and dates were written in the training data; cached, since every request needs it."""
        return Notes.from_json(self.detector.notes_).add_reading()

    @property
    def id_name(self) -> str | None:
        """The column that names rows, where the training had one."""
        name: str | None = self.detector.notes_.get("id_column")
        return name

    @functools.cached_property
    def takes_numbers(self) -> bool:
        """Whether all columns hold numbers."""
        schema = self.detector.inputs_.schema
        return schema is not None and set(schema.kinds) == {"number"}

    def description(self) -> dict[str, Any]:
        """Return a description of the model for its clients."""
        detector = self.detector
        inputs, counts = detector.inputs_, detector.label_counts_
        columns = None
        if inputs.schema is not None:
            typical = (plain_cell(column[0]) for column in inputs.cells(inputs.typical[None]))
            columns = [
                {"name": name, "kind": kind, "typical": cell}
                for (name, kind), cell in zip(self.described_columns, typical, strict=True)
            ]
        return {
            "model": self.identity(),
            "summary": detector.summary,
            "threshold": detector.threshold_,
            "threshold_rule": None if detector.applied_ is None else str(detector.applied_),
            "calibration": None if detector.calibration_ is None else str(detector.calibration_),
            "labels": {"anomaly": counts.n_anomaly, "normal": counts.n_normal, "unlabelled": counts.n_unlabelled},
            "columns": columns,
            "shape": None if columns else list(inputs.shape),
        }

    def identity(self) -> dict[str, Any]:
        """Return the fields that name the model in every answer."""
        return {"file": self.file, "version": self.version, "method": self.method, "loaded_at": self.loaded_at}


class ModelFile:
    """A model file and the model read from it; a file that cannot be used leaves the model as it was.

    Parameters
    ----------
    path : pathlib.Path
    metrics : Metrics
    accept_new_columns : bool
        Whether a new file may ask for other columns than the model that serves.
    require_signature : bool
        Whether a file counts only with a signature by a trusted key.

    Attributes
    ----------
    current : ServedModel
    previous : ServedModel or None
        What served before it.
    problem : str or None
        Why the file as it lies there now is not being served.
    """

    def __init__(
        self, path: Path, metrics: Metrics, *, accept_new_columns: bool = False, require_signature: bool = False
    ) -> None:
        self._path, self._metrics, self._accept_new_columns = path, metrics, accept_new_columns
        self._require_signature = require_signature
        self._lock = threading.Lock()
        self._last_stamps = self._stamps()
        self.problem: str | None = None
        self.current = self._read()
        self.previous: ServedModel | None = None
        self._left: str | None = None  # the version of the file, while a rollback keeps it from serving
        self._update_metrics()

    def has_changed(self) -> bool:
        """Whether the file was changed or removed since it was last read, or since the last try."""
        return self._stamps() != self._last_stamps

    def reload(self, *, by_watch: bool = False) -> Literal["replaced", "unchanged", "failed"]:
        """Read the file again; requests under way keep the model they began with.

        `by_watch`: nobody asked for it, so that a rollback stands where the model file itself is as it was.
        """
        with self._lock:
            before, self._last_stamps = self._last_stamps, self._stamps()
            outcome: Literal["replaced", "unchanged", "failed"]
            try:
                new = self._read()
                if not self._accept_new_columns:
                    _check_columns(new, self.current)
                is_same_file = before[0] == self._last_stamps[0] and new.version == self._left
                stays = by_watch and is_same_file and self._is_trusted(self.current)
            except (EsadError, MemoryError) as error:
                reason = self.problem = str(error) or "there is not enough memory for it"
                for path in self._paths():  # folders are nobody's business
                    self.problem = self.problem.replace(str(path), path.name)
                outcome = "failed"
                _LOG.error("the new model file is not used, version %s stays: %s", self.current.version, reason)
            else:
                outcome = "unchanged" if stays or new.version == self.current.version else "replaced"
                if outcome == "replaced":
                    self._replace(new)
                self._keep_rollback(self._left if stays else None)
            self._metrics.reloads.labels(outcome).inc()
            self._update_metrics()
            return outcome

    def roll_back(self) -> None:
        """Serve the model before this one, until the file changes or is read again; a second call undoes it."""
        with self._lock:
            if self.previous is None:
                raise RequestError(409, "No other model has served since the start.")
            try:
                is_trusted = self._is_trusted(self.previous)
            except InputError as error:
                raise RequestError(409, "The trusted keys cannot be read.") from error
            if not is_trusted:
                raise RequestError(409, "The key that signed the model before is not trusted any more.")
            left = self.current.version
            self._replace(self.previous)
            is_of_file = _digest(self._path)[:16] == self.current.version  # a rollback was taken back
            self._keep_rollback(None if is_of_file else left)
            self._metrics.reloads.labels("rolled back").inc()
            self._update_metrics()

    def _keep_rollback(self, left: str | None) -> None:
        """Note which version of the file does not serve because of a rollback; None without one."""
        self._left = left
        self.problem = left and f"Rolled back: version {left} was left for {self.current.version}."

    def _is_trusted(self, model: ServedModel) -> bool:
        """Whether the key that signed a model is trusted now, or no signature is asked for."""
        return not self._require_signature or model.signed_by in {key.fingerprint for key in trusted_keys()}

    def _replace(self, new: ServedModel) -> None:
        self.previous, self.current = self.current, new
        _LOG.warning("model version %s takes the place of %s", new.version, self.previous.version)

    def _update_metrics(self) -> None:
        self._metrics.name_model(self.current.version, self.current.method, self.current.file)
        self._metrics.stale.set(self.problem is not None)

    def _read(self) -> ServedModel:
        """Read the file, once more if it is replaced meanwhile."""
        if self._require_signature:
            return self._read_signed()
        for _ in range(3):
            before = _digest(self._path)
            detector = load(self._path)
            if _digest(self._path) == before:
                return self._make_served(detector, before)
        raise ModelFileError(f"The model file {str(self._path)!r} keeps changing while it is read.")

    def _read_signed(self) -> ServedModel:
        """Read a copy that nobody else can write to: what was verified is what is loaded."""
        with tempfile.TemporaryDirectory(prefix="esad-") as folder:
            copy, signed_by = Path(folder) / self._path.name, None
            if self._path.is_file():  # otherwise `load` says what is wrong
                with contextlib.suppress(OSError):
                    shutil.copyfile(self._path, copy)
                signed_by = verify(copy, beside=self._path).key.fingerprint
            try:
                return replace(self._make_served(load(copy), _digest(copy)), signed_by=signed_by)
            except ModelFileError as error:
                raise ModelFileError(str(error).replace(str(copy), str(self._path))) from error

    def _make_served(self, detector: Detector, digest: str) -> ServedModel:
        if detector.inputs_.kind == "images":
            require("PIL.Image", extra="image")
        now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
        return ServedModel(detector, self._path.name, digest[:16], now)

    def _stamps(self) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(map(stamp_of, self._paths()))

    def _paths(self) -> list[Path]:
        """Return the model file and, where signatures are required, its signature and the trusted keys."""
        return [self._path, *([signature_path(self._path), trusted_keys_path()] if self._require_signature else [])]


def _digest(path: Path) -> str:
    if not path.is_file():  # opening a named pipe would wait for ever
        return ""
    try:
        return hash_file(path)
    except OSError:
        return ""  # `load` says what is wrong


def _check_columns(new: ServedModel, current: ServedModel) -> None:
    """Refuse a model whose columns differ from those that clients send for the current one."""
    if new.described_columns == current.described_columns:
        return
    described = dict(new.described_columns), dict(current.described_columns)
    added, lost = (sorted(set(one) - set(other)) for one, other in (described, described[::-1]))
    told = [f"new: {list_text(added)}"] * bool(added) + [f"gone: {list_text(lost)}"] * bool(lost)
    raise SchemaError(
        f"The new model file takes other columns ({'; '.join(told) or 'in another order or of another kind'}), which "
        "requests made for the present one do not have. Start the service again, or with --accept-new-columns."
    )
