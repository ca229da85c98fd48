"""The command `esad`; `python -m esad` is the same."""

import io
import sys


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        from esad.cli.app import run  # takes a moment, in which Ctrl-C may come
    except KeyboardInterrupt:
        sys.exit(130)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a name that the terminal cannot show is no reason to fail
    sys.exit(run())


if __name__ == "__main__":
    main()
