"""TED talks in the format of IWSLT, written by hand."""

import collections

import pytest

from dclm_jax.data.corpora.ted import read_talks
from dclm_jax.data.prepare import prepare
from dclm_jax.data.readers import TextReader
from dclm_jax.errors import InputError
from tests.data.support import empty, ids_of, make_corpus, read, write

TRAIN = "train.tags.zh-en.en"
TEST = "IWSLT14.TED.tst2010.zh-en.en.xml"

TALKS = """\
<url>http://www.ted.com/talks/a</url>
<keywords>talks, art &amp; design</keywords>
<speaker>A. Speaker</speaker>
<talkid>1</talkid>
<title>A. Speaker: Art & design</title>
<description>A talk on both.</description>
<reviewer></reviewer>
<translator href="http://www.ted.com/profiles/1">B. Translator</translator>
Thank you so much, Chris.
 Q&amp;A isn't R&D: 1 &lt; 2 &#38; caf&#xe9; &amp;lt; &copy; &quot;. 

It ends.
<url>http://www.ted.com/talks/b</url>
<talkid>22</talkid>
<url>http://www.ted.com/talks/c</url>
<talkid>23</talkid>
<doc docid="23" genre="lectures">
Only one <strong> line.
</doc>
"""
TALKS_READ = {
    "train/1": [
        "Thank you so much , Chris .",
        "Q & A isn 't R & D : 1 < 2 & café & lt ; & copy ; \" .",
        "It ends .",
    ],
    "train/23": ["Only one < strong > line ."],
}
TEST_SET = """\
<?xml version="1.0" encoding="UTF-8"?>
<mteval>
<refset setid="iwslt2014-tst2010" srclang="chinese" trglang="english" refid="1">
<doc docid="767" genre="lectures">
<url>http://www.ted.com/talks/x</url>
<title>No sentence of the talk</title>
<seg id="1"> Laughter &amp; a caf&#233;.</seg>
<seg id="2">
It goes on.
</seg>
<seg id="3"></seg>
</doc>
<doc docid="785"><seg id="1">The <b>other</b> talk.</seg></doc>
</refset>
</mteval>
"""
TEST_SET_READ = {
    "tst2010/767": ["Laughter & a café .", "It goes on ."],
    "tst2010/785": ["The other talk ."],
}


def write_ted(root, train: str | bytes = TALKS, **tests):
    files = {TRAIN: train, "train.en": "x", "train.tags.zh-en.zh": "x", "README": "x"}
    files |= {TEST.replace("tst2010", name): content for name, content in tests.items()}
    files["IWSLT14.TED.dev2010.zh-en.en.xml"] = files["IWSLT14.TED.tst2010.zh-en.zh.xml"] = "x"
    for name, content in files.items():
        write(root / name, content)
    return root


def talks_of(root):
    """The sentences of each talk, with spaces between words."""
    return {document.id: list(map(" ".join, document.sentences)) for document in read(root, "ted")}


def test_talks_of_both_formats_and_nothing_else(tmp_path):
    root = write_ted(tmp_path / "zh-en", tst2010=TEST_SET, tst2012=TEST_SET.replace("767", "9"))
    first, second = TEST_SET_READ.values()
    later = {"tst2012/9": first, "tst2012/785": second}
    assert talks_of(root) == TALKS_READ | TEST_SET_READ | later
    reader = TextReader()
    list(reader.word_maker.written(read_talks(root)))
    # The second talk has no text; a segment of each test set has none.
    assert empty(reader) == (2, 1)


def test_credits_may_follow_the_text_and_be_those_of_several_people(tmp_path):
    credit = '<translator href="http://www.ted.com/profiles/2">C. Translator</translator>'
    talks = "".join(
        f"<url>u</url>\n{credit}\n{credit}\n<talkid>{i}</talkid>\nTalk {i}.\n{credit}\n"
        for i in (1, 2)
    )
    root = write_ted(tmp_path, talks, tst2010=TEST_SET)
    assert talks_of(root) == {f"train/{i}": [f"Talk {i} ."] for i in (1, 2)} | TEST_SET_READ


def test_windows_line_ends_and_a_byte_order_mark(tmp_path):
    talks, test_set = (f"\ufeff{text}".replace("\n", "\r\n") for text in (TALKS, TEST_SET))
    assert talks_of(write_ted(tmp_path, talks, tst2010=test_set)) == TALKS_READ | TEST_SET_READ


def test_division(tmp_path, caplog):
    talks = "".join(f"<url>u</url>\n<talkid>{i}</talkid>\nTalk {i}.\n" for i in range(20))
    root = write_ted(tmp_path / "ted", talks, tst2010=TEST_SET)
    manifest = prepare(root, tmp_path / "out", collection="ted")
    names = ids_of(tmp_path / "out")
    assert {part: len(ids) for part, ids in names.items()} == {"train": 18, "valid": 2, "test": 2}
    assert names["test"] == ["tst2010/767", "tst2010/785"]
    expected = [f"train/{i}" for i in range(20)]
    assert collections.Counter(names["train"] + names["valid"]) == collections.Counter(expected)
    assert manifest.sources["ted"]["files"] == {"train": 1, "tst2010": 1}
    assert caplog.messages[0].startswith("reading TED talks of IWSLT; train: ")


def talk(*lines):
    return "\n".join(["<url>u</url>", "<talkid>1</talkid>", *lines])


def of_test_set(content):
    return f"<mteval>\n<refset>\n{content}\n</refset>\n</mteval>"


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        ("", TEST_SET, r"train\.tags\.zh-en\.en: is empty"),
        ("\n\n", TEST_SET, r"train\.tags\.zh-en\.en: has no talks"),
        (b"<url>u</url>\n<talkid>1</talkid>\ncaf\xe9\n", TEST_SET, r"zh-en\.en:3: not valid UTF-8"),
        ("Text.\n", TEST_SET, r"zh-en\.en:1: expected tags before the text of a talk"),
        ("\n<url>u</url>\nText.\n", TEST_SET, r"zh-en\.en:2: the talk has no <talkid>"),
        (talk("One.", "<url>v</url>", "Two.", "<url>w</url>"), TEST_SET, r"en:4: .* no <talkid>"),
        (talk("<title>cut off"), TEST_SET, r"zh-en\.en:3: expected text, or one of the tags url,"),
        (talk("<talkid></talkid>", "Text."), TEST_SET, r"zh-en\.en:3: the talk has no <talkid>"),
        (TALKS, "", r"en\.xml: is empty"),
        (TALKS, TEST_SET[:-10], r"en\.xml:15: not well-formed XML: no element found"),
        (TALKS, of_test_set(""), r"en\.xml: has no talks"),
        (TALKS, of_test_set("<doc docid='1'><seg>R&D</seg></doc>"), r"en\.xml:3: not well-formed"),
        (TALKS, b"<mteval>\ncaf\xe9</mteval>", r"en\.xml:2: not valid UTF-8"),
    ],
)
def test_malformed_talks_are_refused_and_nothing_is_left(tmp_path, train, test, message):
    root = write_ted(tmp_path / "zh-en", train, tst2010=test)
    with pytest.raises(InputError, match=message):
        make_corpus(root, tmp_path / "deep" / "out", "ted")
    assert list((tmp_path / "deep").iterdir()) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda root: (root / TRAIN).unlink(), r"zh-en: has no files train\.tags\.\*-\*\.en"),
        (lambda root: (root / "train.tags.de-en.en").touch(), r"zh-en: has 2 files train\.tags"),
        (lambda root: (root / TEST).unlink(), r"zh-en: has no test set; expected files IWSLT"),
        (lambda root: root.rename(root.parent / "other"), r"zh-en: no such folder; expected"),
    ],
)
def test_a_folder_that_is_no_pair_of_languages(tmp_path, change, message):
    root = write_ted(tmp_path / "zh-en", tst2010=TEST_SET)
    change(root)
    with pytest.raises(InputError, match=message):
        talks_of(root)
