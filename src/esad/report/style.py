"""The look of the report, one column that fits a phone, light and dark; its colours are those of every page."""

from importlib import resources

_FILES = resources.files("esad.report")
COLOURS = (_FILES / "colours.css").read_text(encoding="utf-8")
CSS = COLOURS + (_FILES / "report.css").read_text(encoding="utf-8")
