"""The content of HTML files: options that differ, examples, and what is missing."""

import dataclasses
import html
import html.parser
import re
import types
from typing import Any
from xml.etree import ElementTree

import numpy as np

from dclm_jax.data.encoding import Encoded
from dclm_jax.report import page as pages_of
from dclm_jax.report.results import RunResults
from dclm_jax.report.rows import Row, rows_of
from dclm_jax.scoring.distributions import OTHER_COLUMNS, SURPRISAL, SURPRISAL_NO_CONTEXT
from dclm_jax.scoring.score_types import DocumentScore, SentenceScore
from dclm_jax.tables import Column, Table
from tests.report import pages
from tests.report.made_up import facts, result


def rendered(**changes):
    """A report with other content."""
    return pages_of.report(**{**pages.content(examples=False), **changes})


def rows_with(**configs):
    """Rows with these configurations by their labels."""
    return [Row(label, config, [result()]) for label, config in configs.items()]


def tables(text):
    """The rows of all tables, and for each cell its element."""
    tables = re.findall("<table.*?</table>", text, re.DOTALL)
    return [[list(row) for row in ElementTree.fromstring(table).iter("tr")] for table in tables]


def texts(row):
    return ["".join(cell.itertext()).strip() for cell in row]


def test_whatever_looks_like_markup_is_text():
    made = pages.text()
    assert pages.HOSTILE not in made and made.count("&lt;script&gt;") > 10
    assert "<script" not in made
    assert "default-src 'none'" in made
    assert made.count('<img src="data:image/png;base64,') == len(pages.content()["plots"])


def test_the_page_has_every_table():
    content = pages.content()
    new = Table.of("A new table", "About it.", [Column("model", [["x"]])])
    content["tables"] = {**content["tables"], "new": new}
    page = pages_of.report(**content)
    captions = re.findall("<caption>(.*?)</caption>", page)
    titles = [table.title for table in content["tables"].values()]
    assert sorted(titles) == sorted(set(titles) & set(map(html.unescape, captions)))
    assert "<h2>Other measures</h2>" in page and "About it." in page
    assert "<h2>Other measures</h2>" not in pages.text()


def test_options_that_differ_are_apart():
    rows = rows_with(a={"x": 1, "y": 2}, b={"x": 1, "y": 3}, c={"x": 1, "z": 4})
    differing, common, *_ = tables(rendered(rows=rows))
    expected = [["option", "a", "b", "c"], ["y", "2", "3", "–"], ["z", "–", "–", "4"]]
    assert list(map(texts, differing)) == expected
    assert list(map(texts, common)) == [["option", "value"], ["x", "1"]]
    alone = rendered(rows=rows_with(a={"x": 1}))
    assert list(map(texts, tables(alone)[0])) == [["option", "value"], ["x", "1"]]
    assert "Options that differ" not in alone


def test_examples_are_the_first_documents_with_two_or_more_sentences():
    all_rows, two, nine = pages.rows(), [np.array([3]), np.array([4])], [np.array([5])] * 9
    requested: list[dict[str, Any]] = []
    models: Any = [
        types.SimpleNamespace(
            vocabulary=types.SimpleNamespace(decode=lambda ids: list(map(str, ids))),
            score=lambda documents, **kinds: requested.append(kinds) or iter(documents),
            facts=types.SimpleNamespace(workdir=row.facts.workdir),
        )
        for row in all_rows
    ]
    named = [
        Encoded(sentences, id=name)
        for name, sentences in zip("abcde", [two[:1], two, nine, two, two], strict=True)
    ]
    read: Any = pages_of.example_scores(all_rows, models, named)
    assert [[score.id for score in scores] for scores in read] == [
        # Two of the three models have context.
        ["b"] * 2,
        ["c, the first 8 of 9 sentences"] * 2,
        ["d"] * 2,
    ]
    assert [len(scores[0].sentences) for scores in read] == [2, 8, 2]
    # The other test documents give contexts, if there are any.
    for kinds in requested:
        pool = kinds["other_contexts"].documents.sentences
        assert [len(document) for document in pool] == [1, 2, 9, 2, 2]
    requested.clear()
    assert len(list(pages_of.example_scores(all_rows, models, [named[1], named[3]]))) == 2
    assert [kinds["other_contexts"] for kinds in requested] == [None] * 4
    assert [row.label for row in pages_of.example_rows(all_rows[:1])] == ["rnnlm"]


def test_what_is_not_measured_says_what_would_measure_it():
    bare = RunResults(facts=dataclasses.replace(facts(), curve=[]))
    report = pages_of.report(**pages.content(rows_of([bare]), examples=False))
    for message in (
        "(Ji et al. 2015, Figure 3) is not drawn: no run has a value.",
        "The context ablation is not measured yet; launch.report --measure measures it.",
        "Perplexity by group of targets is not measured yet; launch.report --measure measures it.",
        "Coherence accuracy is not measured; launch.report --measure --bootstrap=1000 measures it.",
        "No test document with two or more sentences was read.",
    ):
        assert message in report
    assert report.count("launch.report --measure") == 3 and "<img" not in report
    alone = pages_of.report(**pages.content(rows_of([result()]), examples=False))
    assert "is not drawn: no row can be compared" in alone


# Documents of coloured words.

TOKENS = ["<script>alert('&')</script>", "a&amp;b", '"\u202e', "<END>"]
VOID = {"meta"}


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


def score(log_probs, alone=None, other=None, known=(True, False, True, True)):
    measures = {SURPRISAL: np.negative(log_probs).tolist()}
    if other is not None:
        measures[OTHER_COLUMNS[0]] = np.negative(other).tolist()
    if alone is not None:
        measures[SURPRISAL_NO_CONTEXT] = np.negative(alone).tolist()
    sentence = SentenceScore(TOKENS, list(known), measures)
    return DocumentScore("<b>&name", [sentence, sentence])


def document_page(scores, labels=("one", "<i>")):
    parts = [
        pages_of.head("<title> & all", scores[0].sentences[0].measures),
        pages_of.document(labels[: len(scores)], scores),
        pages_of.foot(),
    ]
    return Parsed("".join(parts))


def test_words_have_their_numbers_and_come_out_as_text():
    parsed = document_page([score([-0.5, -3.25, -2.0, -12.0])])
    assert [text for _, text in parsed.all("title")] == ["<title> & all"]
    assert [text for _, text in parsed.all("h2")] == ["<b>&name"]
    # What would turn the line around is named.
    tokens = [token.replace("\u202e", r"\u202e") for token in TOKENS]
    assert [text for _, text in parsed.all("ruby")] == [*tokens, *tokens]
    of_words = [attrs for attrs, _ in parsed.all("ruby")][:4]
    assert [word["class"] for word in of_words] == ["s0", "s2 unknown", "s2", "s6"]
    assert [word["title"] for word in of_words] == [
        "0.50 nats",
        "3.25 nats; not in the vocabulary",
        "2.00 nats",
        "12.00 nats",
    ]
    assert [text for _, text in parsed.all("rt")][:4] == ["0.5", "3.2", "2.0", "12.0"]
    assert "8 targets, 4.44 nats per target" in [text for _, text in parsed.all("p")]
    assert not parsed.all("script")


def test_what_the_context_saves_is_shown_where_it_is_compared():
    parsed = document_page([score([-1.0, -3.0, -2.0, -2.0], [-3.5, -1.0, -2.01, -2.0])] * 2)
    of_words = [attrs for attrs, _ in parsed.all("ruby")]
    assert [word["class"] for word in of_words[:3]] == ["d6", "d1 unknown", "d3"]
    assert of_words[0]["title"] == "1.00 nats, no context 3.50; surprisal reduction 2.50 nats"
    assert of_words[1]["title"].startswith(
        "3.00 nats, no context 1.00; surprisal reduction −2.00 nats"
    )
    numbers = ["1.0", "+2.5", "3.0", "−2.0", "2.0", "+0.0"]
    assert [text for _, text in parsed.all("rt")][:6] == numbers
    # Each sentence stands there once for each run.
    assert len(of_words) == 4 * 2 * 2
    assert [text for _, text in parsed.all("b")] == ["one", "<i>"] * 3
    assert len(parsed.all("li")) == 2 + 7


def test_the_effect_of_this_context_is_shown_before_the_reduction_against_no_context():
    values = [-1.0, -3.0, -2.0, -2.0], [-3.5, -1.0, -2.01, -2.0], [-1.5, -2.9, -4.5, -2.0]
    parsed = document_page([score(*values)])
    of_words = [attrs for attrs, _ in parsed.all("ruby")]
    assert [word["class"] for word in of_words[:3]] == ["d4", "d3 unknown", "d6"]
    assert of_words[0]["title"] == (
        "1.00 nats, contexts of other documents 1.50, no context 3.50; effect of this context 0.50 "
        "nats"
    )
    assert [text for _, text in parsed.all("rt")][:4] == ["1.0", "+0.5", "3.0", "−0.1"]
    (mean,) = [text for _, text in parsed.all("p") if "targets" in text]
    assert mean == (
        "8 targets, 2.00 nats per target, contexts of other documents 2.73, no context 2.13; "
        "effect of this context 0.73 nats per target"
    )


def test_nothing_is_loaded():
    whole = pages_of.head("", [OTHER_COLUMNS[0]]) + pages_of.foot()
    assert not re.search(r"(src=|href=|url\(|@import|https?:)", whole)
    assert 'name="viewport" content="width=device-width' in whole
