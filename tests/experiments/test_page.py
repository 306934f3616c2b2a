"""What a page holds: marks, what differs, examples by their rule, and what is missing."""

import base64
import hashlib
import html
import re
import sys
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from dclm_jax.errors import InputError
from dclm_jax.experiments import examples, grouping, page, templates, words
from dclm_jax.experiments.page import Section
from dclm_jax.experiments.report import Table
from dclm_jax.experiments.runs import FinishedRun
from tests.experiments import pages
from tests.experiments.made_up import result


def tables(text):
    """The rows of all tables, and for each cell its element."""
    found = re.findall("<table.*?</table>", text, re.DOTALL)
    return [[list(row) for row in ElementTree.fromstring(one).iter("tr")] for one in found]


def texts(row):
    return ["".join(one.itertext()).strip() for one in row]


def rendered(*parts):
    return page.render("", "", [Section("", "", parts)])


def test_whatever_looks_like_markup_is_text():
    made = pages.text()
    assert pages.HOSTILE not in made and made.count("&lt;script&gt;") > 10
    assert made.count("<script>") == made.count("</script>") == 1
    assert len(made.encode()) < 200_000


def test_the_policy_lets_the_page_s_own_script_run_alone():
    made = pages.text()
    (script,) = re.findall("<script>(.*?)</script>", made, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'\"" in html.unescape(made)


def test_marks_say_how_sure_a_difference_is():
    marks = {
        "0.0400": "▲, better",
        "0.0099": "▲▲, better",
        "< 0.0001": "▲▲▲, better",
        "0.9600": "▼, worse",
        "0.9995": "▼▼▼, worse",
    }
    for column in ("p", "p, rnnlm"):
        (rows,) = tables(rendered(Table("", "", [["model", column], *(["m", p] for p in marks)])))
        for (p, mark), row in zip(marks.items(), rows[1:], strict=True):
            assert texts(row) == ["m", f"{p} {mark} than the baseline"]
    for column, p in (("p", "0.0500"), ("p", "0.9500"), ("p", ""), ("test", "0.0001")):
        (rows,) = tables(rendered(Table("", "", [["model", column], ["m", p]])))
        assert texts(rows[1]) == ["m", p]


def test_options_that_differ_are_apart_and_marked():
    configs = {"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 3}, "c": {"x": 1, "z": 4}}
    differing, common = tables(rendered(page.Configurations(configs)))
    expected = [["option", "a", "b", "c"], ["y", "2", "3", "–"], ["z", "–", "–", "4"]]
    assert list(map(texts, differing)) == expected
    marked = [mark.text for row in differing for cell in row for mark in cell.iter("mark")]
    assert marked == ["3", "–", "4"]
    assert list(map(texts, common)) == [["option", "value"], ["x", "1"]]
    alone = rendered(page.Configurations({"a": {"x": 1}}))
    assert list(map(list, map(texts, *tables(alone)))) == [["option", "value"], ["x", "1"]]
    assert "differs" not in alone
    same = rendered(page.Configurations({"a": {"x": 1}, "b": {"x": 1}}))
    assert "Nothing differs but the seed." in same and "What differs" not in same


def test_examples_are_the_first_and_those_where_the_context_saves_most_and_least():
    rows = pages.rows()
    documents: Any = [[[3]], [[3], [4]], [[5], [6], [7]]]
    for row in rows:
        for one in row.results:
            one["by_token"]["count"] = [[1, 0], [2, 2], [3, 3]]
    # 5, 7 and 6 nats of rnnlm; adclm saves 1.4 of 7 nats in four words and 1.3 of 6 in six, and in
    # a document of one sentence, which is left out, 1.0 in one.
    assert examples.choose(rows, documents, "rnnlm") == [
        (1, "the first document; adclm saves most nats a word against rnnlm: 0.35"),
        (2, "adclm saves least nats a word against rnnlm: 0.20"),
    ]
    firsts = examples.choose(rows[:1], documents, "rnnlm")
    assert firsts == [(1, "one of the first documents"), (2, "one of the first documents")]
    assert examples.choose(rows, documents[:1], "rnnlm") == []


def test_what_was_not_measured_says_what_would_fill_it():
    rows = grouping.rows([{**result(), "coherence": None}])
    sections = {one.title: one.parts for one in page.measured(rows, ("rnnlm",), [], [])}
    (coherence,) = sections["Coherence"]
    assert coherence == page.Missing(
        "Coherence was left out by --bootstrap=0; --bootstrap=1000 fills this in."
    )
    assert sections["Examples"] == [page.Missing("No test document has two sentences.")]
    assert "is not drawn: no row can be compared" in page.render(
        "", "", page.measured(rows, ("rnnlm",), [], [])
    )


def test_the_page_of_runs_that_left_nothing_says_so():
    config = {"model.name": "rnnlm"}
    run = FinishedRun("rnnlm", config, None, None, [], [], None, ["no perplexity.json; `x` fills"])
    made = page.render("", "", page.quick([run], []))
    assert "Learning curves is not drawn: there is no point to draw." in made
    assert "rnnlm: no perplexity.json; `x` fills" in made
    assert made.count("without --quick measures this") == 2 and "--also=blocks" in made
    assert "<svg" not in made


def test_words_carry_their_numbers_and_what_the_sentences_before_change():
    reading = pages.reading("adclm", reads_context=True, attends=True)
    sentence = reading.sentences[1]
    assert sentence.log_probs_no_context is not None
    for word, token, log_prob, alone in zip(
        words.words(sentence, changes=True),
        *(sentence.tokens, sentence.log_probs, sentence.log_probs_no_context),
        strict=True,
    ):
        surprisal, change = (float(text.replace("−", "-")) for text in word.numbers)
        assert word.text == token
        assert surprisal == pytest.approx(-log_prob, abs=0.051)
        assert change == pytest.approx(alone - log_prob, abs=0.051)
        below = sum(alone - log_prob <= bound for bound in (2, 1, 0.25, -0.25, -1, -2))
        assert word.classes == f"d{below}"
    made = rendered(examples.Example(1, "", 3, [reading]))
    first, *_ = tables(made)
    header, *rows = map(texts, first)
    assert header == ["", *sentence.tokens]
    assert [row[0] for row in rows] == reading.attention[1].positions
    shown = np.array([[float(cell or 0) for cell in row[1:]] for row in rows])
    np.testing.assert_allclose(shown, 100 * reading.attention[1].weights.T, atol=0.51)
    assert "Attention of adclm: there is c_0 alone." in made


def test_without_jinja2(monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    templates.environment.cache_clear()
    with pytest.raises(InputError, match=r"HTML needs jinja2: pip install 'dclm_jax\[plots\]'"):
        templates.environment()
