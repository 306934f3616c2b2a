"""Pages of coloured words: what a reader of them finds, parsed as browsers do."""

import html.parser
import math
import re

import numpy as np
import pytest

from dclm_jax.experiments import surprisal_html, templates
from dclm_jax.language_model import DocumentScore, SentenceAttention, SentenceScore

TOKENS = ["<script>alert('&')</script>", "a&amp;b", '"\u202e', "<END>"]
VOID = {"meta", "input"}


class Parsed(html.parser.HTMLParser):
    """The elements with their attributes, and the text in each of them but those within."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open = [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        element = (tag, dict(attrs), [])
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        if self.open:
            self.open[-1][2].append(data)

    def all(self, tag):
        return [(attrs, "".join(text)) for name, attrs, text in self.elements if name == tag]


def score(log_probs, alone=None, known=(True, False, True, True)):
    total = math.fsum(log_probs)
    sentence = SentenceScore(total, TOKENS, list(log_probs), list(known), alone)
    return DocumentScore("<b>&name", total, [sentence, sentence])


def page(scores, attention=(), labels=("one", "<i>")):
    parts = [
        surprisal_html.head("<title> & all", compared=scores[0].sentences[0].log_probs_no_context),
        surprisal_html.document(labels[: len(scores)], scores, attention),
        surprisal_html.foot(),
    ]
    return Parsed("".join(parts))


def test_words_have_their_numbers_and_come_out_as_text():
    parsed = page([score([-0.5, -3.25, math.nan, -12.0])])
    assert [text for _, text in parsed.all("title")] == ["<title> & all"]
    assert [text for _, text in parsed.all("h2")] == ["<b>&name"]
    # What would turn the line around is named.
    shown = [token.replace("\u202e", r"\u202e") for token in TOKENS]
    assert [text for _, text in parsed.all("ruby")] == [*shown, *shown]
    of_words = [attrs for attrs, _ in parsed.all("ruby")][:4]
    assert [one["class"] for one in of_words] == ["s0", "s2 unknown", "unscored", "s6"]
    assert [one["title"] for one in of_words] == [
        "0.50 nats",
        "3.25 nats; not in the vocabulary",
        "not scored",
        "12.00 nats",
    ]
    assert [text for _, text in parsed.all("rt")][:4] == ["0.5", "3.2", "–", "12.0"]
    assert "6 tokens, 5.25 nats a token" in [text for _, text in parsed.all("p")]
    assert len(parsed.all("script")) == 1


def test_what_the_context_saves_is_shown_where_it_is_compared():
    parsed = page([score([-1.0, -3.0, -2.0, -2.0], [-3.5, -1.0, -2.01, math.nan])] * 2)
    of_words = [attrs for attrs, _ in parsed.all("ruby")]
    assert [one["class"] for one in of_words[:3]] == ["d6", "d1 unknown", "d3"]
    assert of_words[0]["title"] == "1.00 nats, alone 3.50: the context saves 2.50 nats"
    assert of_words[1]["title"].startswith("3.00 nats, alone 1.00: the context costs 2.00 nats")
    assert [text for _, text in parsed.all("rt")][:3] == ["+2.5", "−2.0", "+0.0"]
    # Each sentence stands there once for each run.
    assert len(of_words) == 4 * 2 * 2
    assert [text for _, text in parsed.all("b")] == ["one", "<i>"] * 3
    assert len(parsed.all("li")) == 2 + 7


def test_attention_is_a_table_with_the_words_at_its_sides():
    weights = np.array([[0.25, 0.75], [0.5, 0.5], [0, 1], [0.125, 0.875]], np.float32)
    alone = SentenceAttention(TOKENS, ["c_0"], np.ones((4, 1), np.float32))
    both = SentenceAttention(TOKENS, ["<START>", "&"], weights)
    parsed = page([score([-1.0] * 4)], [[alone, both]])
    assert len(parsed.all("table")) == 1
    assert [text for _, text in parsed.all("summary")] == ["attention of sentence 2"]
    heads = [(attrs["scope"], text) for attrs, text in parsed.all("th")]
    columns, rows = (
        [("col", token.replace("\u202e", r"\u202e")) for token in TOKENS],
        [("row", "<START>"), ("row", "&")],
    )
    assert heads == [*columns, *rows]
    cells = [text for _, text in parsed.all("td")]
    # The first is the corner.
    assert cells == ["", "25", "50", "0", "12", "75", "50", "100", "88"]
    assert parsed.all("td")[1][0]["style"] == "--a:0.25"


def luminance(colour):
    """WCAG 2's, of #rgb or #rrggbb."""
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_every_colour_can_be_read_and_nothing_is_loaded():
    light, dark = templates.source("page.css").split("@media (prefers-color-scheme: dark)")
    for style in (light, dark):
        rules = re.findall(r"\.([sd]\d)\{background:(#\w+);color:(#\w+)\}", style)
        assert {name for name, *_ in rules} == {f"{kind}{i}" for kind in "sd" for i in range(7)}
        for name, background, ink in rules:
            low, high = sorted(map(luminance, (background, ink)))
            assert (high + 0.05) / (low + 0.05) >= 4.5, name
    whole = surprisal_html.head("", compared=True) + surprisal_html.foot()
    assert not re.search(r"\b(src|href|url|import|https?)\b", whole)
    assert 'name="viewport" content="width=device-width' in whole


@pytest.mark.parametrize("compared", [False, True])
def test_the_legend_has_every_class_and_the_unit(compared):
    parsed = Parsed(surprisal_html.head("", compared=compared) + surprisal_html.foot())
    kind = "d" if compared else "s"
    assert [attrs["class"] for attrs, _ in parsed.all("li")] == [f"{kind}{i}" for i in range(7)]
    assert "in nats" in parsed.all("p")[0][1]
    texts = [text for _, text in parsed.all("li")]
    assert texts[0] == ("below −2" if compared else "below 1")
    assert texts[3] == ("−0.25 to 0.25" if compared else "4 to 6")
