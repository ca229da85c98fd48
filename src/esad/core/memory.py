"""How much memory data may take on this machine."""

import os

__all__ = ["data_limit"]

_SHARE = 0.125  # of the machine's memory; a fit takes several times what its rows take


def data_limit() -> float:
    """Bytes that rows to learn from may take at once: more are read in parts, or refused.

    Examples
    --------
    >>> data_limit() > 2**20
    True
    """
    try:
        return _SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return _SHARE * 8 * 2**30
