"""HTML in text: tags and character references such as &amp;."""

import html.entities
import html.parser
import re
from collections.abc import Iterator

_TAGS = (
    "a abbr b big blockquote body br center code dd del div dl dt em font footer form h1 h2 h3 h4 "
    "h5 h6 head header hr html i iframe img input ins label li link meta nav ol option p pre q "
    "script section small span strike strong style sub sup table tbody td th thead title tr tt u "
    "ul"
).split()
"""Usual tags of HTML. No text marks sentences or OOV words by these tags."""
_MARKUP = re.compile(
    rf"</?(?:{'|'.join(_TAGS)})(?:\s[^<>]*)?/?>|<!--|&(?:#\d+|#[xX][\da-fA-F]+|[a-zA-Z]\w*);",
    re.IGNORECASE,
)
_INLINE = {
    *"a abbr acronym b bdi bdo big cite code del dfn em font i ins kbd label mark q s samp".split(),
    *"small span strike strong sub sup time tt u var wbr".split(),
}
"""Tags within sentences and words; any other tag ends a paragraph, except br, which ends a line."""
_PROGRAM = re.compile(r"<(script|style)\b[^>]*>.*?</\1\s*>", re.IGNORECASE | re.DOTALL)


def html_markup(text: str) -> Iterator[str]:
    """The tags and character references of HTML in a text."""
    if "<" in text or "&" in text:
        for match in _MARKUP.finditer(text):
            markup = match[0]
            if markup[0] == "<" or markup[1] == "#" or markup[1:] in html.entities.html5:
                yield markup


def without_html(text: str, unknown_token: str | None = None) -> str:
    """A text without tags, comments, scripts and style sheets, with the characters that references
    name. A tag that is not within a sentence becomes a paragraph break, and br a line break.

    Args:
      text: the text.
      unknown_token: token for OOV words, which stays even if it has the form of a tag.
    """
    parser = _Parser(unknown_token)
    # The parser refuses some declarations that begin like this.
    parser.feed(_PROGRAM.sub("\n\n", text).replace("<![", "&lt;!["))
    parser.close()
    return "".join(parser.pieces)


class _Parser(html.parser.HTMLParser):
    """Collects the text of HTML in `pieces`."""

    def __init__(self, unknown_token: str | None):
        super().__init__(convert_charrefs=True)
        self.pieces: list[str] = []
        self._unknown_token = (unknown_token or "").lower()

    def set_cdata_mode(self, elem: str, **options: bool) -> None:
        """Keeps reading: without its end a tag such as <style> would hide the rest of the text."""

    def handle_data(self, data: str) -> None:
        self.pieces.append(data)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        spelling = self.get_starttag_text() or ""
        if spelling.lower() == self._unknown_token:
            self.pieces.append(spelling)
        else:
            self._end(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        self._end(tag)

    def _end(self, tag: str) -> None:
        self.pieces.append("" if tag in _INLINE else "\n" if tag == "br" else "\n\n")
