"""N-best lists of Moses and Kaldi, and what belongs to them; files written by hand."""

import re
import subprocess

import pytest

from dclm_jax.errors import InputError
from dclm_jax.rescoring import nbest
from tests.data.support import write

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


def write_kaldi(folder, **changed):
    for name, text in {**KALDI, **changed}.items():
        write(folder / name, text)
    return str(folder)


def read(tmp_path, text):
    return nbest.read_nbest(str(write(tmp_path / "list", text)))


FAIRSEQ = """\
S-1\tes war
H-1\t-0.5\tit was
D-1\t-0.5\tit was
P-1\t-0.5 -0.5
S-0\tdie Katze
H-0\t-0.25\tthe cat
H-0\t-1.5\ta cat
"""


@pytest.mark.parametrize("kinds", ["SHDP", "H", "D", "S"])
def test_output_of_fairseq_is_named_with_its_conversion(tmp_path, kinds):
    text = "".join(line for line in FAIRSEQ.splitlines(keepends=True) if line[0] in kinds)
    with pytest.raises(InputError, match=f"list: is output of fairseq, .* '{kinds[0]}-1'; ") as e:
        read(tmp_path, "INFO a line of the log\n" + text)
    if "H" in kinds:
        command = str(e.value).partition("Moses: ")[2].replace("FILE", str(tmp_path / "list"))
        converted = subprocess.run(["bash", "-c", command], capture_output=True, text=True).stdout
        assert converted == (
            "0 ||| the cat ||| ||| -0.25\n0 ||| a cat ||| ||| -1.5\n1 ||| it was ||| ||| -0.5\n"
        )
        assert len(read(tmp_path, converted).segments) == 2


def test_a_list_of_moses(tmp_path):
    lists = read(tmp_path, MOSES)
    assert lists.names == ("score", "LM0", "TM0.1", "TM0.2")
    first, second = lists.segments
    assert (first.id, second.id) == ("0", "1")
    assert first.hypotheses == [["the", "cat", "sat", "."], ["the", "cat", "sit", "."]]
    assert first.features_KxF.tolist() == [[-7.5, -12.5, -3, -4.25], [-8.25, -13, -3.5, -4]]
    assert second.features_KxF.tolist() == [[-1, -2, 0, 0.001]]


USUAL = (("score", "LM", "TM.1", "TM.2"), [-7, -3, -1.5, -2])


@pytest.mark.parametrize(
    ("line", "names", "values"),
    [
        ("0 ||| a b ||| LM= -3.0 TM= -1.5 -2.0 ||| -7\n", *USUAL),
        ("0 ||| a b ||| LM=-3.0 TM=-1.5 -2.0 ||| -7\n", *USUAL),
        ("0 ||| a b ||| LM=-3.0 TM= -1.5 -2.0 ||| -7\n", *USUAL),
        ("0\t|||  a   b |||\tLM=\t-3   TM=-1.5\t -2  |||\t-7 ||| 0-0\r\n", *USUAL),
        ("0 ||| a b ||| a=b= 1 c=d=2 =x=3 ||| 4\n", ("score", "a=b", "c=d", "=x"), [4, 1, 2, 3]),
        ("0 ||| a b\n", (), []),
        ("0 ||| a b ||| f=2 |||\n", ("f",), [2]),
        ("0 ||| a b |||  ||| 2\n", ("score",), [2]),
        (nbest.moses_line(0, ["a", "b"], -1.25), ("score",), [-1.25]),
    ],
)
def test_spellings_of_features(tmp_path, line, names, values):
    lists = read(tmp_path, line * 2)
    assert lists.names == names
    assert lists.segments[0].hypotheses == [["a", "b"]] * 2
    assert lists.segments[0].features_KxF.tolist() == [values] * 2


def test_a_list_of_kaldi_alone_and_with_its_costs(tmp_path):
    folder = write_kaldi(tmp_path / "folder", path="of no interest")
    alone, whole = nbest.read_nbest(f"{folder}/words_text"), nbest.read_nbest(folder)
    assert alone.names == () and whole.names == ("acwt", "lmwt.lmonly")
    for lists in (alone, whole):
        assert [segment.id for segment in lists.segments] == ["utt-a", "utt-b"]
        assert lists.segments[0].hypotheses == [["the", "cat", "sat"], ["the", "cats", "at"]]
    assert alone.segments[0].features_KxF.shape == (2, 0)
    assert whole.segments[0].features_KxF.tolist() == [[-312.5, -4], [-311, -5]]


def test_hypotheses_without_words(tmp_path):
    text = "0 |||  ||| LM= -3 ||| -3\n0 ||| ||| LM= -4 ||| -4\n0 |||||| LM= -5 ||| -5\n"
    (segment,) = read(tmp_path, text).segments
    assert segment.hypotheses == [[], [], []]
    assert segment.features_KxF.tolist() == [[-3, -3], [-4, -4], [-5, -5]]
    first, second = read(tmp_path, "a-1 x y\na-2\nb-1 \n").segments
    assert (first.hypotheses, second.hypotheses) == ([["x", "y"], []], [[]])


def test_features_that_hypotheses_lack_are_0_and_counted(tmp_path, caplog):
    text = (
        "0 ||| a ||| LM= -1 ||| -5\n"
        "0 ||| b ||| TM= -2 -3 LM= -4 ||| -6\n"
        "0 ||| c ||| ||| -7\n"
        "1 ||| d ||| x=9 LM=-8 ||| -8\n"
    )
    lists = read(tmp_path, text)
    assert lists.names == ("score", "LM", "TM.1", "TM.2", "x")
    first, second = lists.segments
    assert first.features_KxF.tolist() == [[-5, -1, 0, 0, 0], [-6, -4, -2, -3, 0], [-7, 0, 0, 0, 0]]
    assert second.features_KxF.tolist() == [[-8, -8, 0, 0, 9]]
    many = [f"0 ||| a ||| f{index}= 1 ||| 1\n" for index in range(8)]
    read(tmp_path, "".join(many))
    read(tmp_path, MOSES)
    few, many = caplog.messages
    assert few.startswith(f"{tmp_path / 'list'}: features that some of the 4 hypotheses lack")
    assert few.endswith(": 'LM' in 1, 'TM' in 3, 'x' in 3")
    assert many.endswith("'f0' in 7, 'f1' in 7, 'f2' in 7, 'f3' in 7, 'f4' in 7 and 3 more")


GOOD = "0 ||| a ||| f= 1 ||| 1\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 ||| a ||| f= 1 ||| 1\n", r":1: the id is '1'; expected 0: ids count"),
        (GOOD + "2 ||| a ||| f= 1 ||| 1\n", r":2: the id is '2'; expected 0 or 1"),
        (GOOD + GOOD.replace("0 |", "1 |") + GOOD, r":3: the id is '0'; expected 1 or 2"),
        (GOOD + "x\n", r":2: has 1 field; expected id \|\|\| words"),
        (GOOD + "0 ||| a ||| f= 1\n", r":2: has no total score, unlike .*list:1; write a total"),
        ("0 ||| a ||| f= 1\n" + GOOD, r":2: has a total score, unlike .*list:1; write a total"),
        (
            GOOD + "0 ||| a ||| T=1 2 ||| 1\n0 ||| a ||| T= 1 ||| 1\n",
            r":3: the number of values of the feature 'T' is 1; expected 2, as at .*list:2$",
        ),
        ("0 ||| a ||| f= g= 1 ||| 1\n", r":1: the feature 'f' has no value; write a number"),
        ("0 ||| a ||| -1 f=1 ||| 1\n", r":1: '-1' has no name; write NAME= before it"),
        ("0 ||| a ||| f=1 f= 2 ||| 1\n", r":1: two features are called 'f'"),
        ("0 ||| a ||| f.1= 1 f= 1 2 ||| 1\n", r": two features are called 'f.1'; rename one"),
        ("0 ||| a ||| f=inf ||| 1\n", r":1: a feature is 'inf'; expected a finite number"),
        ("0 ||| a ||| f= 1 ||| best\n", r":1: a score is 'best'; expected a finite number"),
        ("no list\n", r":1: is 'no list\\n'; expected a segment's id"),
        ("a-1 x\na-3 y\n", r":2: the key is 'a-3'; expected 2 after '-'"),
        ("a-1 x\nb-2 y\n", r":2: the key is 'b-2'; expected 1 after '-'"),
        ("a-1 x\nb-1 y\na-1 z\n", r":3: segment 'a' is divided; put"),
        ("\n \n", ": has no line of text; expected one per hypothesis"),
        ("", ": is empty"),
    ],
)
def test_lists_that_are_none_are_refused(tmp_path, text, message):
    with pytest.raises(InputError, match=re.escape(str(tmp_path / "list")) + message):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("acwt", "utt-a-1 1\nutt-a-2 2\n", "acwt: has 2 lines; expected one for each of the 3 of "),
        ("acwt", "utt-a-2 1\n", "acwt:1: is 'utt-a-2 1.*; expected 'utt-a-1', as at .*, and a nu"),
        ("lmwt.lmonly", "utt-a-1\n", "lmwt.lmonly:1: is 'utt-a-1.*; expected 'utt-a-1', as at"),
        ("acwt", "utt-a-1 inf\n", "acwt:1: a cost is 'inf'; expected a finite number"),
    ],
)
def test_costs_that_do_not_belong_are_refused(tmp_path, name, text, message):
    folder = write_kaldi(tmp_path / "folder", **{name: text})
    with pytest.raises(InputError, match=message):
        nbest.read_nbest(folder)


def test_a_folder_without_a_list_is_refused(tmp_path):
    with pytest.raises(InputError, match="has no file words_text; choose a folder"):
        nbest.read_nbest(str(tmp_path))
    with pytest.raises(InputError, match="absent: cannot be read"):
        nbest.read_nbest(str(tmp_path / "absent"))


@pytest.fixture
def four(tmp_path):
    return read(tmp_path, "".join(f"{index} ||| a ||| ||| 1\n" for index in range(4)))


def test_documents_are_runs_of_segments(tmp_path, four):
    path = str(write(tmp_path / "documents", "0 x\n1 x\n2 y\n3 z\n"))
    assert nbest.read_division(path, four) == [range(2), range(2, 3), range(3, 4)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0 x\n1 x\n2 x\n", r": has 3 lines; expected one for each of the 4 segments of .*list"),
        ("0 x\n2 x\n", r":2: is '2 x\\n'; expected '1' DOCUMENT, for segment 2 of .*list"),
        ("0 x\n1 y\n2 x\n", r":3: document 'x' continues after another document"),
        ("\n", ": has no line of text; expected one per segment"),
    ],
)
def test_documents_that_are_not_those_of_the_list_are_refused(tmp_path, four, text, message):
    path = str(write(tmp_path / "documents", text))
    with pytest.raises(InputError, match=re.escape(path) + message):
        nbest.read_division(path, four)


def test_references_are_a_line_a_segment(tmp_path, four):
    path = str(write(tmp_path / "references", "a b\nc\nd\n e  f\n"))
    assert nbest.read_outputs(path, four) == [["a", "b"], ["c"], ["d"], ["e", "f"]]
    path = str(write(tmp_path / "references", "a\n\n \nd\n"))
    assert nbest.read_references(path, four) == [["a"], [], [], ["d"]]
    path = str(write(tmp_path / "references", "\n\n\n\n"))
    assert nbest.read_outputs(path, four) == [[], [], [], []]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\nb\nc\n", ": has 3 lines; expected one for each of the 4 segments"),
        ("\n \n\n\n", ": all 4 references are empty, so that there is no error rate; add"),
    ],
)
def test_references_that_are_not_those_of_the_list_are_refused(tmp_path, four, text, message):
    path = str(write(tmp_path / "references", text))
    with pytest.raises(InputError, match=re.escape(path) + message):
        nbest.read_references(path, four)
