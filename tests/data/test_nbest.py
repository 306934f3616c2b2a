"""N-best lists of Moses and Kaldi, and what belongs to them; files written by hand."""

import re

import numpy as np
import pytest

from dclm_jax.data import nbest
from dclm_jax.errors import InputError
from tests.fuzzing import attack, value_or_input_error

MOSES = """\
0 ||| the cat sat . ||| LM0= -12.5 TM0= -3 -4.25 ||| -7.5
0 ||| the cat sit . ||| LM0= -13 TM0= -3.5 -4 ||| -8.25 ||| 0-0 1-1
1 ||| it was . ||| LM0= -2 TM0= 0 1e-3 ||| -1
"""
KALDI = {
    "words_text": "utt-a-1 the cat sat\nutt-a-2 the cats at\nutt-b-1 it was\n",
    "acwt": "utt-a-1 312.5\nutt-a-2 311\nutt-b-1 7\n",
    "lmwt.lmonly": "utt-a-1 4\nutt-a-2 5\nutt-b-1 6\n",
}


def write(path, text):
    path.write_text(text)
    return str(path)


def write_kaldi(folder, **changed):
    folder.mkdir(exist_ok=True)
    for name, text in {**KALDI, **changed}.items():
        (folder / name).write_text(text)
    return str(folder)


def test_a_list_of_moses(tmp_path):
    found = nbest.read_nbest(write(tmp_path / "list", MOSES))
    assert found.names == ("score", "LM0", "TM0.1", "TM0.2")
    first, second = found.segments
    assert (first.id, second.id) == ("0", "1")
    assert first.hypotheses == [["the", "cat", "sat", "."], ["the", "cat", "sit", "."]]
    assert first.features_KxF.tolist() == [[-7.5, -12.5, -3, -4.25], [-8.25, -13, -3.5, -4]]
    assert second.features_KxF.tolist() == [[-1, -2, 0, 0.001]]


@pytest.mark.parametrize(
    ("features", "names"),
    [("", ()), ("-1", ("f",)), ("-1 -2", ("f.1", "f.2")), ("lm: -1 w: 3", ("lm", "w"))],
)
def test_features_without_names_and_of_older_lists(tmp_path, features, names):
    found = nbest.read_nbest(write(tmp_path / "list", f"0 ||| a b ||| {features} ||| -1\n"))
    assert found.names == ("score", *names)


def test_a_line_as_it_is_written_is_read_again(tmp_path):
    lines = [nbest.moses_line(0, ["a", "b"], -1.25), nbest.moses_line(0, ["b"], 2)]
    (segment,) = nbest.read_nbest(write(tmp_path / "list", "".join(lines))).segments
    assert segment.hypotheses == [["a", "b"], ["b"]]
    np.testing.assert_array_equal(segment.features_KxF, [[-1.25], [2]])


def test_a_list_of_kaldi_alone_and_with_its_costs(tmp_path):
    folder = write_kaldi(tmp_path / "folder", path="of no interest")
    alone, whole = nbest.read_nbest(f"{folder}/words_text"), nbest.read_nbest(folder)
    assert alone.names == () and whole.names == ("acwt", "lmwt.lmonly")
    for found in (alone, whole):
        assert [segment.id for segment in found.segments] == ["utt-a", "utt-b"]
        assert found.segments[0].hypotheses == [["the", "cat", "sat"], ["the", "cats", "at"]]
    assert alone.segments[0].features_KxF.shape == (2, 0)
    assert whole.segments[0].features_KxF.tolist() == [[-312.5, -4], [-311, -5]]


GOOD = "0 ||| a ||| f= 1 ||| 1\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 ||| a ||| f= 1 ||| 1\n", r":1: the id is '1'; expected 0: ids count"),
        (GOOD + "2 ||| a ||| f= 1 ||| 1\n", r":2: the id is '2'; expected 0 or 1"),
        (GOOD * 2 + "x ||| a ||| f= 1 ||| 1\n", r":3: the id is 'x'; expected 0 or 1"),
        (GOOD + GOOD.replace("0 |", "1 |") + GOOD, r":3: the id is '0'; expected 1 or 2"),
        (GOOD + "0 |||  ||| f= 1 ||| 1\n", r":2: the hypothesis has no words"),
        (GOOD + "\n", r":2: has 1 fields; expected id \|\|\| words"),
        (GOOD + "0 ||| a ||| 1\n", r":2: has 3 fields"),
        (
            GOOD + "0 ||| a ||| f= 1 2 ||| 1\n",
            r":2: has the features score, f.1, f.2; .* score, f$",
        ),
        (GOOD + "0 ||| a ||| g= 1 ||| 1\n", r":2: has the features score, g; expected"),
        (GOOD + "1 ||| a ||| ||| 1\n", r":2: has the features score; expected"),
        ("0 ||| a ||| f= 1 f= 2 ||| 1\n", r":1: two features are called 'f'"),
        ("0 ||| a ||| score= 1 ||| 1\n", r":1: two features are called 'score'"),
        ("0 ||| a ||| f= nan ||| 1\n", r":1: a feature is 'nan'; expected a finite number"),
        ("0 ||| a ||| f= 1 ||| best\n", r":1: a score is 'best'; expected a finite number"),
        ("no list\n", r":1: is 'no list\\n'; expected a segment's id"),
        ("a-1 x\na-3 y\n", r":2: the key is 'a-3'; expected 2 after '-'"),
        ("a-1 x\nb-2 y\n", r":2: the key is 'b-2'; expected 1 after '-'"),
        ("a-1 x\nb-1 y\na-1 z\n", r":3: segment 'a' is here again"),
        ("a-1 x\na-2\n", r":2: the hypothesis has no words"),
        ("a-1 x\n\n", r":2: is '\\n'; expected a segment's id"),
        ("", ": is empty"),
    ],
)
def test_lists_that_are_none_are_refused(tmp_path, text, message):
    path = write(tmp_path / "list", text)
    with pytest.raises(InputError, match=re.escape(path) + message):
        nbest.read_nbest(path)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("acwt", "utt-a-1 1\nutt-a-2 2\n", "acwt: has 2 lines; expected one for each of the 3 of "),
        (
            "acwt",
            KALDI["acwt"] + "utt-b-2 1\n",
            "acwt: has 4 lines; expected one for each of the 3 of ",
        ),
        ("acwt", "utt-a-2 1\n", "acwt:1: the key is 'utt-a-2'; expected 'utt-a-1', as at "),
        ("lmwt.lmonly", "utt-a-1\n", "lmwt.lmonly:1: is 'utt-a-1\\\\n'; expected a key"),
        ("acwt", "utt-a-1 inf\n", "acwt:1: a cost is 'inf'; expected a finite number"),
    ],
)
def test_costs_that_do_not_belong_are_refused(tmp_path, name, text, message):
    folder = write_kaldi(tmp_path / "folder", **{name: text})
    with pytest.raises(InputError, match=message):
        nbest.read_nbest(folder)


def test_a_folder_without_a_list_is_refused(tmp_path):
    with pytest.raises(InputError, match="holds no words_text; expected a folder as Kaldi"):
        nbest.read_nbest(str(tmp_path))
    with pytest.raises(InputError, match="absent: cannot be read"):
        nbest.read_nbest(str(tmp_path / "absent"))


@pytest.fixture
def four(tmp_path):
    lines = [f"{index} ||| a ||| ||| 1\n" for index in range(4)]
    return nbest.read_nbest(write(tmp_path / "list", "".join(lines)))


def test_documents_are_runs_of_segments(tmp_path, four):
    path = write(tmp_path / "documents", "0 x\n1 x\n2 y\n3 z\n")
    assert nbest.read_division(path, four) == [range(2), range(2, 3), range(3, 4)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 x\n1 x\n2 x\n", r": has 3 lines; expected one for each of the 4 segments of .*list"),
        ("0 x\n1 x\n2 x\n3 x\n4 x\n", r":5: is one line too many; .*list has 4 segments"),
        ("0 x\n2 x\n", r":2: names segment '2'; expected '1', which is number 2 of .*list"),
        ("0 x\n1 y\n2 x\n", r":3: document 'x' is here again after another one"),
        ("0 x y\n", r":1: is '0 x y\\n'; expected ID DOCUMENT"),
    ],
)
def test_documents_that_are_not_those_of_the_list_are_refused(tmp_path, four, text, message):
    path = write(tmp_path / "documents", text)
    with pytest.raises(InputError, match=re.escape(path) + message):
        nbest.read_division(path, four)


def test_references_are_a_line_a_segment(tmp_path, four):
    path = write(tmp_path / "references", "a b\nc\nd\n e  f\n")
    assert nbest.read_sentences(path, four) == [["a", "b"], ["c"], ["d"], ["e", "f"]]
    for text, message in (
        ("a\nb\nc\n", ": has 3 lines; expected one for each of the 4 segments"),
        ("a\n\nc\nd\n", ":2: holds no words; expected a sentence a line"),
    ):
        path = write(tmp_path / "references", text)
        with pytest.raises(InputError, match=re.escape(path) + message):
            nbest.read_sentences(path, four)


@pytest.mark.parametrize("text", [MOSES, KALDI["words_text"]])
def test_damaged_lists_are_read_or_refused_in_one_line(tmp_path, text):
    path = tmp_path / "list"

    def check(content: bytes) -> None:
        path.write_bytes(content)
        value_or_input_error(path, lambda: nbest.read_nbest(str(path)))

    attack(check, text.encode(), 60)
