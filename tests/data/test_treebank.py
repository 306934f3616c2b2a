"""Sentences written for these tests, in the formats of corpora that cannot be handed out."""

import bz2
import re
import sys
from collections.abc import Iterable

import numpy as np
import pytest

from dclm_jax.data.corpora import COLLECTIONS, treebank
from dclm_jax.data.corpus import open_corpus
from dclm_jax.data.documents import Document
from dclm_jax.data.prepare import divide, prepare
from dclm_jax.data.readers import TextReader
from dclm_jax.data.text_files import read_lines
from dclm_jax.errors import InputError
from tests.data.support import empty, ids_of, make_corpus, read, sentences_of, write


def words(*sentences: str) -> list[list[str]]:
    return [sentence.split() for sentence in sentences]


# As the Penn Treebank is laid out: a tree over several lines, no label at its root, white space
# anywhere.
PARSED = r"""

( (S
    (NP-SBJ-1 (DT The) (NNP -LRB-Grey) (NN cat) )
    (, ,)
    (SBAR (WHNP-2 (WDT which) )
      (S
        (NP-SBJ (-NONE- *T*-2) )
        (VP (VBD ate)
          (NP (CD 3\/4) (NN pie)) (NP (NNS M\*A\*S\*H)))))
    (VP (VBD was) (VP (VBN said)
	(S (NP-SBJ (-NONE- *-1)) (VP (TO to) (VP (VB purr))))
	(SBAR (-NONE- 0) (S (-NONE- *T*-3)))))
    (. .) ))
( (S (`` ``) (INTJ (UH No)) ('' '') (-LRB- -LRB-) (: --) (-RRB- -RRB-) ))   ( (X (NN Milk) (. ?)))
( (S (-NONE- *)))
"""
PARSED_WORDS = words(
    "The -LRB-Grey cat , which ate 3/4 pie M*A*S*H was said to purr .",
    "`` No '' -LRB- -- -RRB-",
    "Milk ?",
)
PARSED_TAGS = words(
    "DT NNP NN , WDT VBD CD NN NNS VBD VBN TO VB .",
    "`` UH '' -LRB- : -RRB-",
    "NN .",
)


def write_sections(folder, content, sections: Iterable[int] = range(25), files=2):
    for section in sections:
        for number in range(files):
            write(folder / f"{section:02}" / f"wsj_{section:02}{number + 7:02}.mrg", content)
    return folder


def nbest(name, words, scores=("-8.5 -90.125", "-9.25 -91")):
    """An n-best list of which only the first parse has these words."""
    lines = [f"{len(scores)} {name}"]
    for rank, score in enumerate(scores):
        leaves = " ".join(f"(X{rank} {word if rank == 0 else 'other'})" for word in words.split())
        lines += [score, f"(S1 (S {leaves}))"]
    return "\n".join(lines) + "\n"


# Trees.


def trees_of(path):
    return list(treebank.read_trees(read_lines(path), str(path)))


def test_words_and_tags_of_trees(tmp_path):
    trees = trees_of(write(tmp_path / "trees", PARSED))
    # The last tree holds a trace alone.
    assert trees == [*zip(PARSED_WORDS, PARSED_TAGS, strict=True), ([], [])]
    path = write(tmp_path / "x.mrg", "\ufeff((NN A))(NN c)\r\n")
    assert trees_of(path) == [(["A"], ["NN"]), (["c"], ["NN"])]


OUTSIDE = "outside of all trees; expected trees such as (S (NP (PRP It)) (VP (VBD slept)))"
INSIDE = "expected (TAG WORD) or (LABEL (...) (...)), got"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", ": is empty; expected text"),
        ("\n(S\n(NN a)\n\n", ":2: the tree that begins here does not end; add the missing )"),
        ("(NN a)\n(NN b))", f":2: ')' is {OUTSIDE}"),
        ("(NN a)\n\nthe (NN b)", f":3: 'the' is {OUTSIDE}"),
        ("the cat sat\n", f":1: 'the' is {OUTSIDE}"),
        ("(S (NP the cat))", f":1: {INSIDE} '(NP the cat)'"),
        ("(S\n(NP the\n(NN cat)\n))", f":4: {INSIDE} '(NP the (...))'"),
        ("(S\n(NP (NN cat) sat))", f":2: {INSIDE} '(NP (...) sat)'"),
        ("(S (NN))", f":1: {INSIDE} '(NN)'"),
        ("()", f":1: {INSIDE} '()'"),
        # The first tree lacks a bracket, so that the second one is inside of it.
        ("( (S (NN a))\n( (S (NN b))))\n", f":2: {INSIDE} '((...))'"),
    ],
)
def test_bad_trees_are_named(tmp_path, content, message):
    path = write(tmp_path / "trees", content)
    with pytest.raises(InputError, match=f"^{re.escape(f'{path}{message}')}$"):
        trees_of(path)


# The Penn Treebank.


def test_documents_of_the_sections_and_nothing_else(tmp_path):
    write_sections(tmp_path, PARSED)
    # Sections that are others', and files that are no documents.
    write(tmp_path / "25" / "wsj_2501.mrg", b"\xff")
    for name in ("wsj_0007.pos", "wsj_0009.mrg~", ".wsj_0007.mrg", "readme", "wsj_0009", "ab.mrg"):
        write(tmp_path / "00" / name, b"\xff")
    assert read(tmp_path, "ptb") == [
        Document(f"{section:02}/wsj_{section:02}{number}", PARSED_WORDS, PARSED_TAGS)
        for section in range(25)
        for number in ("07", "08")
    ]


def test_files_of_before_utf_8(tmp_path):
    text = "( (X (NN café)) )"
    write_sections(tmp_path, text)
    write(tmp_path / "00" / "wsj_0007.mrg", text.encode("latin-1"))
    assert sentences_of(tmp_path, "ptb") == 50 * [[["café"]]]


def test_the_first_folder_with_sections_is_read(tmp_path):
    for folder in ("combined/wsj", "parsed/mrg/wsj"):
        write_sections(tmp_path / folder, f"(NN {folder})")
        assert sentences_of(tmp_path, "ptb")[0] == [[folder]]


@pytest.mark.parametrize("package", ["sentencex", "sacremoses"])
def test_only_raw_text_needs_the_packages_for_prose(tmp_path, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    path = write(tmp_path / "text", "It slept.")
    with pytest.raises(InputError, match=rf"needs {package}: pip install 'dclm_jax\[text\]'$"):
        read(path, "prose")
    assert sentences_of(write_sections(tmp_path, PARSED), "ptb")[0] == PARSED_WORDS


def test_split_and_vocabulary_of_the_treebank(tmp_path, caplog):
    root = write_sections(tmp_path / "in", "(NN A)", files=1)
    for section, word in ((20, "train"), (21, "first"), (22, "b"), (23, "c"), (24, "last")):
        write(root / f"{section}" / f"wsj_{section}07.mrg", f"(S (NN A) (NN {word}))")
    manifest = prepare(root, tmp_path / "out", collection="ptb")
    assert ids_of(tmp_path / "out") == {
        "train": [f"{section:02}/wsj_{section:02}07" for section in range(21)],
        "valid": ["21/wsj_2107", "22/wsj_2207"],
        "test": ["23/wsj_2307", "24/wsj_2407"],
    }
    vocabulary = open_corpus(tmp_path / "out", "train").vocabulary
    # Words of the training sections alone, by their frequency.
    assert vocabulary.entries[3:] == ("A", "train")
    assert (vocabulary.counts[3:], manifest.options["vocab_size"]) == ((21, 1), 10_000)
    assert manifest.sources["ptb"]["files"] == {"train": 21, "valid": 2, "test": 2}
    assert manifest.options["collection"] == "ptb"
    assert caplog.messages[0] == "reading the Penn Treebank; train: 21; valid: 2; test: 2"
    assert caplog.messages[2:5] == 3 * ["  A"]
    # Other files beside the documents make no difference.
    write(root / "00" / "readme", "x")
    assert make_corpus(root, tmp_path / "out", "ptb") == manifest


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ([], "ROOT: has no sections of the Penn Treebank; .* parsed/mrg/wsj or combined/wsj$"),
        ([*range(13), *range(15, 25)], "ROOT: has only some sections .* missing 13 14$"),
        (range(25), r"ROOT/13: has no files called wsj_NNNN\.mrg$"),
    ],
)
def test_folders_that_are_no_treebank_are_named(tmp_path, sections, message):
    root = tmp_path / "in"
    root.mkdir()
    write_sections(root, "(NN a)", sections, files=1)
    if 13 in sections:
        (root / "13" / "wsj_1307.mrg").rename(root / "13" / "wsj_1307")
    with pytest.raises(InputError, match=message.replace("ROOT", str(root))):
        read(root, "ptb")


# BLLIP North American News Text.


def test_documents_of_nbest_lists_go_on_in_the_next_file(tmp_path):
    first = nbest("lw940524.0001_0", "It slept") + nbest("lw940524.0001_1", "-LRB-")
    # As it may be printed, with blank lines and with fewer parses.
    first += "\n" + nbest("lw940524.0002_0", r"The 1\/2 cat", ["-7"]).replace("\n", "\n\n")
    second = nbest("lw940524.0002_1", "purred .") + "0 lw940524.0002_2\n" + nbest("nyt1_p_0", "End")
    folder = tmp_path / "disk1of4" / "data" / "000"
    write(folder / "00000-lw940524-0-2.bz2", bz2.compress(first.encode()))
    write(folder / "00001-lw940524-3-5.bz2", bz2.compress(second.encode()))
    write(tmp_path / "disk1of4" / "index.html", "<html>")
    reader = TextReader()
    assert list(reader.word_maker.written(treebank.read_nant(tmp_path))) == [
        Document("lw940524.0001", words("It slept", "-LRB-"), words("X0 X0", "X0")),
        Document("lw940524.0002", words("The 1/2 cat", "purred ."), words("X0 X0 X0", "X0 X0")),
        Document("nyt1", [["End"]], [["X0"]]),
    ]
    # The sentence that has no parse.
    assert empty(reader) == (1, 0)


def test_files_that_are_not_compressed(tmp_path):
    path = write(tmp_path / "in" / "a", nbest("x_0", "It slept"))
    for root in (path, tmp_path / "in"):
        assert read(root, "nant") == [Document("x", [["It", "slept"]], [["X0", "X0"]])]


GOOD = nbest("x_0", "It slept")
HEADER = "expected the number of parses .*, got"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", ": is empty"),
        ("<html>\n", f":1: {HEADER} '<html>'"),
        (GOOD + "(NN more)\n", rf":6: {HEADER} '\(NN more\)'"),
        (GOOD + "50\n", f":6: {HEADER} '50'"),
        ("1" + GOOD[1:], f":4: {HEADER} '-9.25 -91'"),
        ("3" + GOOD[1:], ":1: expected 3 parses, .* but the file ends after 2"),
        ("3" + GOOD[1:] + GOOD, ":7: expected parse 3 of 3, got '-8.5 -90.125'"),
        (GOOD.replace("-8.5 -90.125\n", ""), ":3: expected parse 1 of 2, got '-9.25 -91'"),
        (GOOD.replace("(S1 (S (X1", "S1 (S (X1"), r":5: expected parse 2 of 2, got 'S1 \(S"),
        ("1 x_0\n-1\n(S (NN a)\n(NN b))\n", ":3: the tree that begins here does not end"),
        ("1 x_0\n-1\n(NN a) (NN b)\n", ":3: expected one parse, got several"),
        ("(NN a)\n1 x_0\n-1\n(NN b)\n", rf":1: {HEADER} '\(NN a\)'"),
        ("1 0\n-1\n(NN a)\n", rf":1: {HEADER} '1 0'"),
    ],
)
def test_bad_nbest_lists_are_named(tmp_path, content, message):
    path = write(tmp_path / "00000-lw-0-1.bz2", bz2.compress(content.encode()))
    with pytest.raises(InputError, match=f"^{path}{message}"):
        read(tmp_path, "nant")


def test_news_divided_in_the_proportions_of_the_paper(tmp_path, caplog):
    """Table 1 of Ji et al. (2015)."""
    collection = COLLECTIONS["nant"]
    parts = divide(np.arange(29_363), collection.fractions, 3, "nant")
    assert np.bincount(parts).tolist() == [26_462, 148, 2_753]
    text = "".join(nbest(f"d{i}_{j}", f"It slept {i}") for i in range(200) for j in range(2))
    root = write(tmp_path / "in" / "000" / "0-x-0-399.bz2", bz2.compress(text.encode())).parent
    manifest = prepare(root, tmp_path / "out", collection="nant")
    ids = ids_of(tmp_path / "out")
    # 0.901202 and 0.906243 of 200 documents are 180.2 and 181.2.
    assert [len(ids[split]) for split in ("train", "valid", "test")] == [180, 1, 19]
    assert sorted(sum(ids.values(), [])) == sorted(f"d{i}" for i in range(200))
    assert manifest.splits["test"].sentences == 38
    assert caplog.messages[0] == "reading BLLIP North American News Text; files: 1"
