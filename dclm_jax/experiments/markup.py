"""HTML as trees of elements: what stands in a text stays text, whatever it looks like."""

from collections.abc import Iterable, Sequence
from importlib import resources
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

Child = Element | str | None


def element(tag: str, *children: Child, **attributes: str | float | None) -> Element:
    """An element. What is None is left out. In the names of attributes an underscore is a hyphen
    (`aria_label`), at the end it is nothing (`class_`)."""
    given = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
    made = Element(tag, {name: str(value) for name, value in given.items() if value is not None})
    for child in children:
        if isinstance(child, Element):
            made.append(child)
        elif child and len(made):
            made[-1].tail = (made[-1].tail or "") + child
        elif child:
            made.text = (made.text or "") + child
    return made


def elements(
    tag: str, children: Iterable[Child], **attributes: str | float | None
) -> list[Element]:
    """An element of that kind around each child."""
    return [element(tag, child, **attributes) for child in children]


def table(caption: str, cells: Sequence[Sequence[Child]], class_: str | None = None) -> Element:
    """A table whose first row and first column are headers, in a region of its own that scrolls,
    by keyboard as well, where the page is too narrow for it. A cell may be its own `td`."""
    header, *body = cells
    rows = [
        element("tr", element("th", first, scope="row"), *map(_cell, rest)) for first, *rest in body
    ]
    made = element(
        "table",
        element("caption", caption),
        element("thead", element("tr", *map(_heading, header))),
        element("tbody", *rows),
        class_=class_,
    )
    region = {"role": "region", "aria_label": caption, "tabindex": 0}
    return element("div", made, class_="wide", **region)


def _heading(content: Child) -> Element:
    # A corner that says nothing heads no column.
    return element("td") if content == "" else element("th", content, scope="col")


def _cell(content: Child) -> Element:
    if isinstance(content, Element) and content.tag == "td":
        return content
    return element("td", content)


def disclosure(summary: str, *children: Child) -> Element:
    """A `details` element: the children are shown when its summary is clicked."""
    return element("details", element("summary", summary), *children)


def head(title: str, *more: Element) -> Element:
    """The head of a page, with page.css, the look of all pages."""
    return element(
        "head",
        element("meta", charset="utf-8"),
        *more,
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", packed("page.css")),
    )


def packed(name: str) -> str:
    """The text of a file that is installed beside this module, such as page.css."""
    return resources.files("dclm_jax.experiments").joinpath(name).read_text("utf-8")


def written(*made: Element) -> str:
    """Elements as HTML."""
    return "".join(ElementTree.tostring(one, encoding="unicode", method="html") for one in made)
