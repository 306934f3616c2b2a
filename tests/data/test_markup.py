"""HTML in text: counted, or removed."""

import json
import time

import pytest

from dclm_jax.data.documents import TextOptions
from dclm_jax.data.markup import html_markup, without_html
from dclm_jax.data.notes import Notes
from dclm_jax.data.readers import read_documents
from tests.data.support import read, sentences_of, write

REVIEW = 'It rained.<br /><br />"We" waited &amp; <i>slept</i>.<P class="x">She left&#46;</P>'
SENTENCES = [
    ["It", "rained", "."],
    ['"', "We", '"', "waited", "&", "slept", "."],
    ["She", "left", "."],
]


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("<b>bold</b>ness", "boldness"),
        ("a<br>b", "a\nb"),
        ("a<BR/>b<hr>c", "a\nb\n\nc"),
        ("<div>a</div>", "\n\na\n\n"),
        ("&lt;3 &eacute;&#233;&#xE9; AT&T", "<3 \u00e9\u00e9\u00e9 AT&T"),
        ("a < b, c > d, <3 and <", "a < b, c > d, <3 and <"),
        ("a<script>x < 1</script>b<style>p {}</style>", "a\n\nb\n\n"),
        ("the <style> of it", "the \n\n of it"),
        ("a<!-- b -->c", "ac"),
        ("a <![x b", "a <![x b"),
        ("the <unk> left<b>", "the <unk> left"),
    ],
)
def test_html_is_removed(text, plain):
    assert without_html(text, Notes(), "<unk>") == plain


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        # Tags of the BNC and of TEI.
        (
            '<s n="1"><w c5="AT0" hw="the">The </w><w c5="NN1">river </w><c c5="PUN">.</c></s>',
            "The river .",
        ),
        ("the <name>River <hi rend='it'>Th</hi>ames</name>", "the River Thames"),
        ("yes <laughter> no <vocal desc='cough'/>", "yes  no "),
        ('a<img alt="a > b">b <nobr>c</nobr> <ruby>d<rt>e</rt></ruby>', "ab c de"),
        ('<TEI xmlns="http://x.org"><div1>a</div1><p>b</p>', "a\n\nb\n\n"),
        ('<?xml version="1.0"?><!DOCTYPE html>a<![CDATA[b < <i>c</i>]]>', "ab < <i>c</i>"),
        ('<td width="10%"">a<a href="x"title="y">b</a>', "\n\nab"),
        ('<img alt="x < y" src="a">word <a href="x?a<b">t</a>', "word t"),
        ("<?php if ($a > 3) ?>x", "x"),
        ("<td nowrap align=left>a<b>now", "\n\nanow"),
        ("<SCRIPT>a</SCRIPT><kbd>x<b>y</b></kbd>", "\n\nxy"),
    ],
)
def test_tags_that_are_not_blocks_join(text, plain):
    assert without_html(text, Notes()) == plain


@pytest.mark.parametrize(
    "text",
    [
        "x<y and y>z",
        "if a<b with n=20 and c>d then",
        "x<i and j=0; k>2",
        "score<mark and x>y, width<small and h>big",
        "List<Object>, T<U> x, Foo<Section>",
        "an <?php without its end",
        "a<b and c>d",
        "a vector<string> of <unk> and <UNK>",
        "mail <ann@x.org> or <http://x.org/a>",
        "if x<y then",
        "a <- b, <3, c -> d and <p class='x",
        "<!-- open",
    ],
)
def test_what_is_no_tag_stays(text):
    assert without_html(text, Notes()) == text


def test_tags_of_other_xml_and_remaining_references_are_said(tmp_path, caplog):
    pytest.importorskip("sacremoses")
    text = "<u>The<w>x</w> <W>y</W></u> <pause/>fish&amp;nbsp;and &amp;amp; chips.\n"
    path = write(tmp_path / "t.txt", text)
    read(path, "prose", strip_html=True)
    assert caplog.messages == [
        f"{path}: character references that remain: 2, such as &nbsp;; the text was escaped twice: "
        "unescape it once, such as by html.unescape of Python, before it is read",
        f"{path}: removed tags that are not HTML's: 5, most often <w> 2, <W> 2, <pause> 1; "
        "they leave no space; if such tags divide words or sentences, replace them by spaces or "
        "blank lines",
    ]


def test_html_is_found():
    text = 'a<br/><P x="1">&amp;&nbsp;&#39;</p><!-- x --><unk> <s> a<y & c>d AT&T; <3 &what;'
    markup = ["<br/>", '<P x="1">', "</p>", "<!-- x -->", "&amp;", "&nbsp;", "&#39;"]
    assert list(html_markup(text)) == markup


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.jsonl", "t.txt"])
def test_raw_text_with_html_is_warned_of_and_read_without_it(tmp_path, name, caplog):
    pytest.importorskip("sacremoses")
    quoted = '"' + REVIEW.replace('"', '""') + '"'
    texts = {
        "t.csv": f"text\n{quoted}\n",
        "t.tsv": f"text\n{REVIEW}\n",
        "t.jsonl": json.dumps({"text": REVIEW}),
        "t.txt": REVIEW,
    }
    path = write(tmp_path / name, texts[name])
    assert sentences_of(path, "prose", strip_html=True) == [SENTENCES]
    assert "HTML" not in caplog.text
    read(path, "prose")
    assert "HTML tags and character references: 8 in " in caplog.text
    assert "add --strip_html" in caplog.text and "warning" in caplog.text.lower()


def test_tokenized_text(tmp_path, caplog):
    path = write(tmp_path / "t.txt", "a <br /> b &amp; <unk>\n<p> c </p>\n")
    assert sentences_of(path, strip_html=True, unknown_token="<unk>") == [
        [["a", "b", "&", "<unk>"], ["c"]]
    ]
    read(path)
    assert "HTML tags and character references: 4 in 9 words, such as <br />;" in caplog.text
    words = write(tmp_path / "t.jsonl", '{"sentences": ["a <br /> b", ["c", "&amp;"]]}')
    assert sentences_of(words, strip_html=True) == [[["a", "b"], ["c", "&"]]]


def test_rare_html_is_not_warned_of(tmp_path):
    rare = "word " * 2_000 + "\n"
    assert read(write(tmp_path / "t", f"a <br> b\n{2 * rare}<b> &amp;\n"))


def test_regions_of_a_document_know_their_rows_without_html(tmp_path):
    pytest.importorskip("sacremoses")
    path = write(tmp_path / "t.csv", "id,r,text\n1,x,<b>He said</b>\n1,y,yes &amp; no.\n")
    options = TextOptions("csv", strip_html=True)
    (document,) = read_documents(path, options, joined_by=["id"])
    assert document.sentences == [["He", "said", "yes", "&", "no", "."]]
    assert document.row_of_word == [[0, 0, 1, 1, 1, 1]]


@pytest.mark.parametrize("begin", ["<!-- ", "<![CDATA[", "<? ", '<a b="', "<a b="])
def test_unclosed_markup_takes_linear_time(begin):
    start = time.process_time()
    assert without_html(begin * 20_000, Notes()) == begin * 20_000
    assert not list(html_markup(begin * 20_000))
    assert time.process_time() - start < 5
