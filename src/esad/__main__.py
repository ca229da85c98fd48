"""The command `esad`; `python -m esad` is the same."""

import sys

from esad.cli.app import run

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit with its code."""
    sys.exit(run())


if __name__ == "__main__":
    main()
