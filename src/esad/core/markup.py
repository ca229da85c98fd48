"""HTML as a tree of elements, so that no text can become markup, whatever it holds."""

import xml.etree.ElementTree as ET
from typing import Any
from unicodedata import category

Element = ET.Element
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"  # nothing is fetched, nothing is run


def new(tag: str, *children: "Element | str | None", **attributes: Any) -> Element:
    """An element with children and attributes; `class_` is the class, `stroke_width` becomes stroke-width.

    Examples
    --------
    >>> ET.tostring(new("p", "1 < 2", new("b", "&"), class_="soft"), encoding="unicode", method="html")
    '<p class="soft">1 &lt; 2<b>&amp;</b></p>'
    """
    names = {name: name.rstrip("_").replace("_", "-") for name in attributes}
    element = ET.Element(tag, {names[name]: _clean(value) for name, value in attributes.items()})
    return add(element, *children)


def add(element: Element, *children: "Element | str | None") -> Element:
    """Append text and elements; None is left out."""
    for child in children:
        if isinstance(child, ET.Element):
            element.append(child)
        elif child is not None and len(element):
            element[-1].tail = (element[-1].tail or "") + _clean(child)
        elif child is not None:
            element.text = (element.text or "") + _clean(child)
    return element


def break_at_underscores(name: str) -> Element:
    """A name such as kind_of_payment, which may go on in the next line after an underscore.

    Examples
    --------
    >>> ET.tostring(break_at_underscores("x_1"), encoding="unicode", method="html")
    '<span>x_<wbr>1</span>'
    """
    first, *others = name.split("_")
    made = new("span", first)
    for other in others:
        add(made, "_", new("wbr"), other)
    return made


def table(heads: list[str], rows: list[list["Element | str"]], *, numbers: tuple[str, ...] = ()) -> Element:
    """A table that scrolls by itself where it is too wide; columns named in `numbers` are set right."""
    classes = ["number" if head in numbers else "" for head in heads]
    marked = [{"class_": name} if name else {} for name in classes]
    head = new("thead", new("tr", *(new("th", text, **how) for text, how in zip(heads, marked, strict=True))))
    body = new("tbody")
    for row in rows:
        body.append(new("tr", *(new("td", cell, **how) for cell, how in zip(row, marked, strict=True))))
    return new("div", new("table", head, body), class_="scroll")


def legend(entries: dict[str, str]) -> Element:
    """Names with the swatch of their colour: one, two, three or four."""
    items = (new("li", new("i", "", class_=f"swatch-{colour}"), name) for name, colour in entries.items())
    return new("ul", *items, class_="legend")


def to_html(*parts: "Element | str") -> str:
    """A piece of a page as text, for a cell of a notebook.

    Examples
    --------
    >>> to_html(new("b", "1 < 2"), "!")
    '<div><b>1 &lt; 2</b>!</div>'
    """
    return ET.tostring(new("div", *parts), encoding="unicode", method="html")


def render(title: str, css: str, *parts: Element) -> str:
    """The whole page."""
    head = new(
        "head",
        new("meta", charset="utf-8"),
        new("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        new("meta", name="viewport", content="width=device-width, initial-scale=1"),
        new("meta", name="color-scheme", content="light dark"),
        new("title", title),
        new("style", css),
    )
    page = new("html", head, new("body", *parts), lang="en")
    return "<!DOCTYPE html>\n" + ET.tostring(page, encoding="unicode", method="html") + "\n"


def _clean(value: object) -> str:
    """Text without characters that HTML cannot hold or that turn the reading order around."""
    text = str(value)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" or category(c) == "Zs" else "\ufffd" for c in text)
