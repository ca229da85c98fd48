"""The model being served: where it came from, and how a new file takes its place."""

import datetime as dt
import functools
import hashlib
import logging
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from esad import registry
from esad.core.extras import require
from esad.detectors.base import Detector
from esad.detectors.model_file import load
from esad.errors import EsadError, ModelFileError
from esad.serve.metrics import Metrics

__all__ = ["Models", "Outcome", "Served"]

_LOG = logging.getLogger(__name__)

Outcome = Literal["replaced", "unchanged", "failed"]
Signature = tuple[int, int, int]


@dataclass(frozen=True, eq=False)
class Served:
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
    """

    detector: Detector
    file: str
    version: str
    loaded_at: str

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
    def takes_numbers(self) -> bool:
        """Whether all columns hold numbers."""
        schema = self.detector.inputs_.schema
        return schema is not None and set(schema.kinds) == {"number"}

    def identity(self) -> dict[str, Any]:
        """What every answer says of the model."""
        return {"file": self.file, "version": self.version, "method": self.method, "loaded_at": self.loaded_at}


class Models:
    """A model file and the model read from it; a file that cannot be read leaves the model as it was.

    Attributes
    ----------
    current : Served
    problem : str or None
        Why the file as it lies there now is not being served.
    """

    def __init__(self, path: Path, metrics: Metrics) -> None:
        self._path, self._metrics = path, metrics
        self._lock = threading.Lock()
        self._seen = self._signature()
        self.problem: str | None = None
        self.current = self._read()
        self._tell()

    def changed(self) -> bool:
        """Whether the file is another one than when it was last read, or tried to be."""
        signature = self._signature()
        return signature is not None and signature != self._seen

    def reload(self) -> Outcome:
        """Read the file again; requests under way keep the model they began with."""
        with self._lock:
            self._seen = self._signature()
            outcome: Outcome
            try:
                new = self._read()
            except (EsadError, MemoryError) as error:
                reason = str(error) or "there is not enough memory for it"
                self.problem = reason.replace(str(self._path), self._path.name)  # folders are nobody's business
                outcome = "failed"
                _LOG.error("the new model file is not used, version %s stays: %s", self.current.version, reason)
            else:
                outcome = "unchanged" if new.version == self.current.version else "replaced"
                self.problem = None
                if outcome == "replaced":
                    old, self.current = self.current, new
                    _LOG.warning("model version %s takes the place of %s", new.version, old.version)
            self._metrics.reloads.labels(outcome).inc()
            self._tell()
            return outcome

    def _tell(self) -> None:
        self._metrics.serves(self.current.version, self.current.method, self.current.file)
        self._metrics.stale.set(self.problem is not None)

    def _read(self) -> Served:
        """Read the file, once more if it is replaced meanwhile."""
        for _ in range(3):
            before = self._digest()
            detector = load(self._path)
            if detector.inputs_.kind == "images":
                require("PIL.Image", extra="image")
            if self._digest() == before:
                now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
                return Served(detector, self._path.name, before[:16], now)
        raise ModelFileError(f"The model file {str(self._path)!r} keeps changing while it is read.")

    def _digest(self) -> str:
        if not self._path.is_file():  # opening a named pipe would wait for ever
            return ""
        try:
            with self._path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError:
            return ""  # `load` says what is wrong

    def _signature(self) -> Signature | None:
        """What changes when a file is written or replaced; None if there is none."""
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns, status.st_size
