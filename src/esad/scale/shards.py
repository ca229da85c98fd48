"""Which files are shards, what they are called, and where their scores go."""

import glob
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from esad.core.text import count_text
from esad.errors import DataFileError, InputError, OutputError
from esad.io.files import SUFFIXES, is_table

RECORDS_FOLDER = "_esad"  # folder below the scores; readers of whole folders skip names that begin so
FORMATS = {"csv": ".csv", "parquet": ".parquet", "xlsx": ".xlsx"}


@dataclass(frozen=True)
class Shard:
    """One file to score.

    Attributes
    ----------
    name : str
        Its path below the folder that all shards share, with forward slashes.
    path, target : str
        The file, and where its scores go.
    """

    name: str
    path: str
    target: str


def plan_shards(data: Iterable[str | os.PathLike[str]], out: Path, *, form: str | None = None) -> list[Shard]:
    """The shards that files, folders and patterns stand for, in the order of their names.

    Parameters
    ----------
    data : iterable of path-like
        A folder stands for all tables in it and below. A pattern may have `*`, `?`, `[...]` and `**`. What begins with
        "." or "_" and what lies in `out` is left out.
    out : Path
        Folder of the scores.
    form : {"csv", "parquet", "xlsx"}, optional
        Format of the scores; that of the shard by default.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     day = Path(folder, "day=1")
    ...     day.mkdir()
    ...     for name in ("a.csv", "b.tsv", "_SUCCESS"):
    ...         _ = (day / name).write_text("x")
    ...     [shard.name for shard in plan_shards([folder], Path(folder, "scores"))]
    ['day=1/a.csv', 'day=1/b.tsv']
    """
    if form is not None and form not in FORMATS:
        raise InputError(f"The format must be one of {', '.join(FORMATS)}. Got {form!r}.")
    files = _find_files([os.fspath(item) for item in data], Path(os.path.realpath(out)))
    shards = [Shard(name, path, str(out / _name_scores(name, form))) for name, path in sorted(files.items())]
    _check_targets(shards)
    return shards


def _find_files(data: Sequence[str], out: Path) -> dict[str, str]:
    """Find the files, and return their paths by name."""
    single = [item for item in data if os.path.isfile(item)]
    shared = os.path.commonpath([os.path.dirname(os.path.abspath(item)) for item in single]) if single else ""
    found: dict[str, str] = {}
    for item in data:
        if os.path.isfile(item):
            if not item.lower().endswith(SUFFIXES):
                raise DataFileError(f"Cannot read {item!r}: its name must end in one of {', '.join(SUFFIXES)}.")
            files = {os.path.relpath(os.path.abspath(item), shared): item}
        elif os.path.isdir(item):
            files = _list_folder(item, out)
        elif glob.has_magic(item):
            files = _list_matching(item, out)
        else:
            raise DataFileError(f"Cannot read {item!r}: no such file.")
        for name, path in files.items():
            name = Path(name).as_posix()
            if name in found and not os.path.samefile(found[name], path):
                raise InputError(f"{found[name]!r} and {path!r} would have the same name. Give the folder above them.")
            found[name] = path
    return found


def _list_folder(folder: str, out: Path) -> dict[str, str]:
    found = _select_tables(Path(folder).rglob("*"), Path(folder), out)
    if not found:
        raise DataFileError(f"The folder {folder!r} holds no table. Their names end in one of {', '.join(SUFFIXES)}.")
    return found


def _list_matching(pattern: str, out: Path) -> dict[str, str]:
    root = Path()
    for part in Path(pattern).parts[:-1]:
        if glob.has_magic(part):
            break
        root /= part
    found = _select_tables(map(Path, glob.glob(pattern, recursive=True)), root, out)
    if not found:
        raise DataFileError(f"No table matches {pattern!r}. Their names end in one of {', '.join(SUFFIXES)}.")
    return found


def _select_tables(paths: Iterable[Path], root: Path, out: Path) -> dict[str, str]:
    """Select the files that are tables, not hidden, and not scores of an earlier run."""
    has_scores = Path(os.path.realpath(root)) in out.parents  # the folder of the scores lies in that of the shards
    return {
        str(path.relative_to(root)): str(path)
        for path in paths
        if is_table(path, root) and not (has_scores and out in Path(os.path.realpath(path)).parents)
    }


def _name_scores(name: str, form: str | None) -> str:
    """The name of the scores: that of the shard, with the suffix of the format."""
    suffix = max((known for known in SUFFIXES if name.lower().endswith(known)), key=len)
    stem = name[: -len(suffix)]
    return stem + (suffix.replace(".tsv", ".csv").replace(".xlsm", ".xlsx") if form is None else FORMATS[form])


def _check_targets(shards: Sequence[Shard]) -> None:
    """Refuse scores that would take the place of other scores or of what is read."""
    seen: dict[str, str] = {}
    for shard in shards:
        if shard.target in seen:
            raise InputError(
                f"The scores of {seen[shard.target]!r} and {shard.name!r} would both go to {shard.target!r}. "
                "Score them into two folders."
            )
        seen[shard.target] = shard.name
    inputs = {os.path.realpath(shard.path) for shard in shards}
    clash = [shard.target for shard in shards if os.path.realpath(shard.target) in inputs]
    if clash:
        raise OutputError(
            f"Cannot write {clash[0]!r}: it is a file being read ({count_text(len(clash), 'such file')}). "
            "Choose another folder."
        )
