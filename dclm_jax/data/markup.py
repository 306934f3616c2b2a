"""HTML in text: tags and character references such as &amp;."""

import html
import re
from collections.abc import Callable, Iterator, Set

from dclm_jax.data.notes import Notes

_BLOCKS = frozenset(
    (
        "address article aside blockquote body canvas caption center col colgroup dd details "
        "dialog dir div dl dt fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 "
        "h6 head header hgroup hr html iframe legend li link main menu meta nav noframes noscript "
        "ol optgroup option p pre script section select style summary table tbody td textarea "
        "tfoot th thead title tr ul"
    ).split()
)
"""Tags of HTML that end a paragraph."""
_INLINE = frozenset(
    (
        "a abbr acronym area audio b base basefont bdi bdo big br button cite code data datalist "
        "del dfn em embed font i img input ins kbd label map mark marquee meter nobr object output "
        "param picture progress q rb rp rt rtc ruby s samp slot small source span strike strong "
        "sub sup svg template time track tt u var video wbr"
    ).split()
)
"""Tags of HTML within sentences and words; of these br ends a line."""
_UNCLOSED = frozenset("br hr img input wbr col p li dt dd td th tr option".split())
"""Tags of HTML that need no end tag."""
_IN_WORDS = frozenset("a b i u s em strong font span small big sub sup tt code".split())
"""Tags that may begin within a word and end in a later text."""
_TAG = re.compile(
    r"<(?P<end>/?)(?P<name>[A-Za-z](?:[\w.:-]*\w)?)"
    r"""(?P<attributes>(?:[\s/](?:=\s*(?:"[^"\n]*"|'[^'\n]*')|[^<>])*+)?)>"""
)
_END = re.compile(r"</([\w.:-]+)\s*>")
_QUOTED_VALUE = re.compile(r"""=\s*["']""")
_ATTRIBUTES = re.compile(
    r"(?:\s+(?:[\w:-]+\s*=\s*[^\s\"'<>=]+|async|autoplay|checked|compact|controls|defer|disabled|hidden|"
    r"ismap|loop|multiple|muted|noshade|novalidate|nowrap|open|readonly|required|selected))*\s*/?"
)
"""Attributes of HTML without quotation marks."""
_REFERENCE = re.compile(r"&(?:#\d+|#[xX][\da-fA-F]+|[a-zA-Z]\w*);")
_DECLARATION = re.compile(r"<![a-zA-Z][^<>]*>")
_PROGRAM = re.compile(r"<(script|style)\b[^>]*>.*?</\1\s*>", re.IGNORECASE | re.DOTALL)
_TOKENS = frozenset("unk unknown oov num bos eos pad mask sep cls".split())
"""Names of tokens that language models write like tags."""


def html_markup(text: str) -> Iterator[str]:
    """The tags of HTML, comments and character references in a text."""
    if "<" in text:
        ended = set(_END.findall(text))
        for tag in _TAG.finditer(text):
            # Tokenized text may mark sentences by <s>.
            if _is_html(tag) and tag["name"] != "s" and _is_tag(tag, ended):
                yield tag[0]
        yield from (text[begin:end] for begin, end in _spans(text, "<!--", "-->"))
    yield from _references(text)


def without_html(text: str, notes: Notes, unknown_token: str | None = None) -> str:
    """A text without tags, comments, scripts and style sheets, with the characters that references
    name.

    A tag that HTML uses between paragraphs becomes a paragraph break, and br a line break. All
    other tags, including tags of XML, are removed without a space, so that a word with a tag inside
    stays one word.

    Args:
      text: the text.
      notes: notes of the text, which count tags that are not HTML's and references that remain.
      unknown_token: token for OOV words, which stays even if it has the form of a tag.
    """

    def replaced(tag: re.Match[str]) -> str:
        if tag[0].lower() == (unknown_token or "").lower() or not _is_tag(tag, ended):
            return tag[0]
        if not _is_html(tag):
            notes.add_tag(tag["name"])
        name = tag["name"].lower()
        return "\n\n" if name in _BLOCKS else "\n" if name == "br" else ""

    if "<" in text:
        text = _without(text, "<![CDATA[", "]]>", html.escape)
        for begin, end in (("<!--", "-->"), ("<?", "?>")):
            text = _without(text, begin, end, lambda content: "")
        text = _DECLARATION.sub("", _PROGRAM.sub("\n\n", text))
        ended = set(_END.findall(text))
        text = _TAG.sub(replaced, text)
    text = html.unescape(text)
    for reference in _references(text):
        notes.add("reference", reference)
    return text


def _spans(text: str, begin: str, end: str) -> Iterator[tuple[int, int]]:
    """The places of the parts of a text from `begin` to `end`; a part without its end is none."""
    at = 0
    while (first := text.find(begin, at)) >= 0 and (last := text.find(end, first)) >= 0:
        at = last + len(end)
        yield first, at


def _without(text: str, begin: str, end: str, written: Callable[[str], str]) -> str:
    """A text in which the content of each part from `begin` to `end` is replaced."""
    parts, at = [], 0
    for first, after in _spans(text, begin, end):
        parts += text[at:first], written(text[first + len(begin) : after - len(end)])
        at = after
    return "".join([*parts, text[at:]])


def _is_html(tag: re.Match[str]) -> bool:
    name = tag["name"].lower()
    return name in _BLOCKS or name in _INLINE


def _is_tag(tag: re.Match[str], ended: Set[str]) -> bool:
    """Whether a match of _TAG is a tag, and no text such as vector<int>, x<y and y>z or <unk>.
    `ended` has the names of the text's end tags."""
    name, attributes = tag["name"], tag["attributes"]
    if tag["end"] or _QUOTED_VALUE.search(attributes):
        return True
    if attributes.strip():
        is_empty = attributes.strip() == "/"
        return is_empty or (_is_html(tag) and bool(_ATTRIBUTES.fullmatch(attributes)))
    if name in ended or (name.lower() in _UNCLOSED):
        return True
    is_in_word = tag.string[tag.start() - 1 : tag.start()].isalnum()
    return name in _IN_WORDS or (not is_in_word and name.lower() not in _TOKENS)


def _references(text: str) -> Iterator[str]:
    """The character references in a text."""
    if "&" in text:
        for reference in _REFERENCE.findall(text):
            if html.unescape(reference) != reference:
                yield reference
