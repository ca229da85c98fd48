"""Pages of an application: templates, styles and scripts of its package, and those that all pages share."""

from collections.abc import Mapping
from importlib import resources

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from starlette.responses import Response

from esad.errors import RequestError
from esad.web.answers import MAX_SHOWN

PageFiles = Mapping[str, tuple[str, str]]
_MEDIA_TYPES = {"css": "text/css", "js": "text/javascript"}


def load_templates(package: str, folder: str) -> Environment:
    """The templates in a folder of a package; `document.html`, which they extend, is the one of all pages."""
    loader = ChoiceLoader([PackageLoader(package, folder), PackageLoader("esad.web", "static")])
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined)


def read_files(package: str, folder: str, *, colours: str) -> PageFiles:
    """Return text and media type, by name, of the scripts and styles in a package's folder and of `basics.js`.

    A style begins with the colours and what the style of all pages says.
    """
    folders = resources.files("esad.web") / "static", resources.files(package) / folder
    texts = {file.name: file.read_text(encoding="utf-8") for place in folders for file in place.iterdir()}
    before = {"css": colours + texts.pop("base.css"), "js": ""}
    kinds = {name: name.rpartition(".")[2] for name in texts}
    return {
        name: (before[kind] + texts[name], _MEDIA_TYPES[kind]) for name, kind in kinds.items() if kind in _MEDIA_TYPES
    }


def send_file(files: PageFiles, name: str) -> Response:
    """Return one of the files as an answer."""
    if name not in files:
        raise RequestError(404, f"There is no file {name[:MAX_SHOWN]!r} here.")
    text, media_type = files[name]
    return Response(text, media_type=media_type)
