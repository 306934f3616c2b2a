"""launch.score --serve: requests that are answered one by one, whatever the other requests are."""

import io
import json
import signal
import subprocess
import threading
import tracemalloc

import pytest

import dclm_jax
from dclm_jax.data.documents import PLAIN
from dclm_jax.data.text_files import LONGEST_LINE
from dclm_jax.experiments import requests
from tests.exhaustive import also
from tests.launch.support import launch, scored, start
from tests.launch.test_score import assert_scores

REQUESTS = [
    {"id": "a", "sentences": ["w1 w2 w3", ["w4", "unheard"]]},
    {"sentences": ["w6 w7"]},
    {"id": 7, "text": "w1 w2. W3 w4?", "item": 3},
    {"id": "a", "text": " "},
    {"id": "gap", "sentences": ["w1", "", "w2"]},
]


def lines(*records) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


@pytest.mark.parametrize("flags", [["--no_context_too", "--oov=blank", "--lowercase"], *also([[]])])
def test_an_answer_is_the_line_of_a_file_with_this_request(space, flags):
    flags = [f"--workdirs={space.run},{space.rnnlm}", *flags]
    answers = scored("--serve=-", *flags, stdin=lines(*REQUESTS), quiet=False)
    assert [answer["id"] for answer in answers] == ["a", "-:2", "7", "a", "gap"]
    for request, answer in zip(REQUESTS, answers, strict=True):
        file = lines({"id": answer["id"], **request})
        expected = scored("--input=-", "--format=jsonl", *flags, stdin=file, quiet=False)
        assert [answer] == expected


def test_a_text_is_scored_after_its_context(space):
    lm = dclm_jax.restore(space.run)
    context, text = ["w1 w2 w5", "w3 w5"], ["w2 w1 .", "w4 ."]
    asked = [
        {"id": "0", "context": context, "sentences": text},
        {"id": "1", "context": "w1 w2.\n\nW3 w5", "text": "W2 w1.", "item": 1},
        {"id": "2", "context": None, "sentences": text},
        {"id": "3", "context": " ", "sentences": text},
    ]
    answers = scored("--serve=-", f"--workdir={space.run}", "--no_context_too", stdin=lines(*asked))
    documents = [[*context, *text], ["w1 w2 .", "W3 w5", "W2 w1 ."], text, text]
    whole = list(lm.score(documents, no_context_too=True))
    expected = [score.after(n) for score, n in zip(whole, (2, 2, 0, 0), strict=True)]
    assert [len(score.sentences) for score in expected] == [2, 1, 2, 2]
    assert answers[1].pop("columns", None) == {"item": "1"}
    assert_scores(answers, expected)
    assert expected[0].log_prob != pytest.approx(expected[2].log_prob, abs=1e-4)


def test_attention_of_a_text_to_its_context(space):
    request = {"context": ["w1 w2"], "sentences": ["w3"]}
    (answer,) = scored("--serve=-", f"--workdir={space.adclm}", "--attention", stdin=lines(request))
    (sentence,) = answer["sentences"]
    assert sentence["attention"]["positions"] == ["<START>", "w1", "w2"]


def test_a_bad_line_gets_an_error_and_the_others_their_answers(space):
    bad = {
        "{": "-:1: not JSON: ",
        "[]": "-:3: the value is []; expected a JSON object",
        '{"id": "x"}': "-:5: the record has no key 'text' and no 'sentences'",
        '{"id": 2, "text": 5}': "-:7: 'text' is 5; write a string",
        '{"id": "c", "text": "w1", "context": 1}': "-:9: context is 1; write text, or a list",
        '{"text": "\\ud800"}': "-:11: the record has half of a surrogate pair",
        '{"sentences": ["w1"], "context": [3]}': "-:13: a sentence is 3; write a string",
        "[" * 100_000: "-:15: nested too deeply",
        '{"id": [], "text": "w1"}': "-:17: 'id' is []; write a string or a whole number",
        "\u00e9": "-:19: not JSON",
    }
    good = {"id": "good", "sentences": ["w1 w2"]}
    stdin = "".join(f"{line}\n{json.dumps(good)}\n" for line in bad) + "\n \n" + json.dumps(good)
    answers = scored("--serve=-", f"--workdir={space.run}", stdin=stdin)
    (right,) = scored("--serve=-", f"--workdir={space.run}", stdin=lines(good))
    assert answers[1::2] == [right] * len(bad) and answers[-1] == right
    for answer, message in zip(answers[:-1:2], bad.values(), strict=True):
        assert message in answer["error"]
    assert [answer.get("id") for answer in answers[4:9:2]] == ["x", "2", "c"]
    assert all(set(answer) <= {"id", "error"} for answer in answers[:-1:2])


def test_an_autoencoder_has_no_context(space):
    asked = [{"sentences": ["w1"]}, {"sentences": ["w1"], "context": ["w2"]}, {"sentences": []}]
    answers = scored("--serve=-", f"--workdir={space.autoencoder}", stdin=lines(*asked))
    first, second, empty = answers
    assert "log_prob" in first and "needs a language model" in second["error"]
    assert (empty["log_prob"], empty["sentences"]) == (0, [])


class Endless(io.RawIOBase):
    """A line of `left` bytes, then a short line, produced while they are read."""

    def __init__(self, left: int, rest: bytes):
        self.left, self.rest = left, rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        count = min(len(buffer), self.left or len(self.rest))
        buffer[:count] = b"x" * count if self.left else self.rest[:count]
        if self.left:
            self.left -= count
        else:
            self.rest = self.rest[count:]
        return count


def test_a_line_that_is_too_long_gets_an_error_and_takes_little_memory():
    def answers(length: int, rest: bytes = b'\n{"id": "next", "sentences": ["w1"]}\n'):
        stream = io.BufferedReader(Endless(length, rest))
        answered = requests.answers(stream, PLAIN, lambda request: f'"{request.document.id}"')
        return list(map(json.loads, answered))

    tracemalloc.start()
    error, following = answers(20 * LONGEST_LINE)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert error == {"error": "-:1: the line is longer than 16 MiB; send less text per request"}
    assert following == "next" and peak < 3 * LONGEST_LINE
    assert "longer" in answers(LONGEST_LINE + 1)[0]["error"]
    for rest in (b"\n", b""):
        assert "not JSON" in answers(LONGEST_LINE, rest)[0]["error"]


@pytest.mark.parametrize(
    ("ending", "code"), [("pipe", 0), (signal.SIGINT, 130), *also([(signal.SIGTERM, -15)])]
)
def test_every_answer_arrives_before_the_next_request(space, interruptible, ending, code):
    flags = [f"--workdir={space.run}", "--serve=-"]
    process = start("score", *flags, stdin=subprocess.PIPE, PYTHONUNBUFFERED="")
    # An answer that does not arrive ends the test.
    watch = threading.Timer(90, process.kill)
    watch.start()
    stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
    assert stdin and stdout and stderr

    for name in ("first", "second"):
        print(lines({"id": name, "sentences": ["w1 w2"]}), end="", file=stdin, flush=True)
        assert json.loads(stdout.readline())["id"] == name
    if ending == "pipe":
        stdout.close()
        print(lines({"sentences": ["w1"]}), end="", file=stdin, flush=True)
    else:
        process.send_signal(ending)
    assert (process.wait(timeout=60), stderr.read()) == (code, "")
    watch.cancel()
    for stream in (stdin, stdout, stderr):
        stream.close()


def test_no_request_is_no_error(space):
    assert launch("score", f"--workdir={space.run}", "--serve=-", stdin="").stdout == ""
