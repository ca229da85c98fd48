"""Every error that esad raises on purpose.

::

    EsadError
    ├── InputError (ValueError)        what was given cannot be used; the command line exits with 2
    │   ├── LabelError                 y holds something other than -1, 0, +1
    │   ├── SchemaError                columns are missing or of another kind than in training
    │   ├── DataFileError              a data file or picture cannot be read
    │   │   ├── LimitError             it would become more than it may
    │   │   └── PictureFileError       a picture cannot be read; the others may be
    │   ├── ModelFileError             a model file is damaged, foreign or too new
    │   │   └── SignatureError         it is not signed by somebody who is trusted
    │   ├── OutputError                a result cannot be written
    │   └── RequestError               a web request is refused; it carries the HTTP status
    ├── TrainingError (RuntimeError)   training diverged
    └── MissingExtraError (ImportError)  an optional package is not installed

And one warning of a kind of its own, LabelWarning: labels that are allowed are often a mistake.
"""

from collections.abc import Mapping


class EsadError(Exception):
    """Base of every error that esad raises on purpose."""


class InputError(EsadError, ValueError):
    """What was given cannot be used: data, options or files."""


class LabelError(InputError):
    """Labels hold something other than -1, 0, +1, or do not fit the rows."""


class LabelWarning(UserWarning):
    """Labels are allowed but often a mistake."""


class SchemaError(InputError):
    """Columns are missing, doubled or of another kind than in training."""


class DataFileError(InputError):
    """A data file or picture cannot be read."""


class LimitError(DataFileError):
    """A data file or picture would take more rows, columns, memory or time than it may."""


class PictureFileError(DataFileError):
    """A picture cannot be read; the others of its folder may be."""


class ModelFileError(InputError):
    """A model file is damaged, foreign or written by a newer version."""


class SignatureError(ModelFileError):
    """A model file is not signed, not by a key that is trusted, or not the file that was signed."""


class OutputError(InputError):
    """A result cannot be written where it was asked for."""


class RequestError(InputError):
    """A web request is refused, with this HTTP status and these headers."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.headers = status, headers


class TrainingError(EsadError, RuntimeError):
    """Training diverged or cannot go on."""


class MissingExtraError(EsadError, ImportError):
    """An optional package is needed and not installed."""
