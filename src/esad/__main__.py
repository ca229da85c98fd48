"""The command `esad`; `python -m esad` is the same."""

import io
import sys

from esad.cli.app import run

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit with its code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a name that the terminal cannot show is no reason to fail
    sys.exit(run())


if __name__ == "__main__":
    main()
