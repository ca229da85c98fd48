"""Words that messages are made of: names in quotes, counts, near misses."""

from collections.abc import Iterable, Sequence

_MAX_LISTED = 8


def as_names(names: Sequence[str]) -> tuple[str, ...]:
    """Several names, or one alone.

    Examples
    --------
    >>> as_names("amount"), as_names(["amount", "age"])
    (('amount',), ('amount', 'age'))
    """
    return (names,) if isinstance(names, str) else tuple(names)


def list_text(names: Sequence[object]) -> str:
    """Names in quotes, the first few of them.

    Examples
    --------
    >>> list_text(["size", "colour"])
    "'size', 'colour'"
    """
    shown = ", ".join(repr(name) for name in names[:_MAX_LISTED])
    return shown + (f", ... ({len(names)} in all)" if len(names) > _MAX_LISTED else "")


def hint(word: str, known: Iterable[str]) -> str:
    """The nearest known word as a question, or nothing.

    Examples
    --------
    >>> hint("colour", ["size", "color"])
    " Did you mean 'color'?"
    """
    from difflib import get_close_matches

    names = list(known)
    folded = {name.casefold().strip(): name for name in reversed(names)}
    near = get_close_matches(word.casefold().strip(), list(folded), n=1, cutoff=0.6)
    return f" Did you mean {folded[near[0]]!r}?" if near else ""


def count_text(number: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun: 1 row, 2,000 rows.

    Examples
    --------
    >>> count_text(2000, "row")
    '2,000 rows'
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def one_line(error: Exception) -> str:
    r"""Message of a foreign error, short and without line ends.

    Examples
    --------
    >>> one_line(ValueError("not a\n number."))
    'not a number'
    """
    return " ".join(str(error).split())[:200].rstrip(".")


def first_line(error: Exception) -> str:
    r"""The first line of a foreign error's message that says something, else the name of its kind.

    Examples
    --------
    >>> first_line(RuntimeError("\n no such device \nat line 3")), first_line(KeyError())
    ('no such device', 'KeyError')
    """
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def percent(share: float) -> str:
    """A share for people.

    Examples
    --------
    >>> percent(0.0625)
    '6.2 %'
    """
    return f"{100 * share:.1f} %"


def size_text(n_bytes: int) -> str:
    """A file size for people.

    Examples
    --------
    >>> size_text(900), size_text(1536), size_text(300 * 2**20)
    ('900 bytes', '1.5 KiB', '300 MiB')
    """
    size, unit = float(n_bytes), "bytes"
    for larger in ("KiB", "MiB", "GiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.0f} {unit}" if unit == "bytes" or size >= 100 else f"{size:.1f} {unit}"
