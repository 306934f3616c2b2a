"""The n-gram baseline against a plain reader of ARPA files.

Neither KenLM's programs nor its Python package need to be there. Where the package is not, the
reader takes its place; where the programs are not, scripts do that only copy a model made here.
"""

import hashlib
import importlib.util
import itertools
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dclm_jax
from dclm_jax import ngram, strings
from dclm_jax.data.corpus import open_corpus
from dclm_jax.data.prepare import prepare
from dclm_jax.data.vocabulary import END, SPECIAL_TOKENS, START, UNKNOWN, Vocabulary
from dclm_jax.errors import InputError
from dclm_jax.scoring.ngrams import NGramScorer, spellings
from dclm_jax.scoring.scorer import Continuation
from tests.data.support import make_corpus, snapshot, write_lines

REPOSITORY = Path(__file__).parents[1]
# Asked before a test puts something in its place.
HAS_KENLM = importlib.util.find_spec("kenlm") is not None
PROGRAMS = ("lmplz", "build_binary")
# KenLM keeps float32 log-probabilities and adds up to five of them.
TOLERANCE = 1e-5
TRICKY = ("<s>", "</s>", "<unk>", "<UNK>", "\\<s>", "\\", "é", "\ufeffx", "1\\/2")
OWN_UNKNOWN = "<?>"

MODEL = """\\data\\
ngram 1=6
ngram 2=4
ngram 3=2

\\1-grams:
-1.5\t<unk>\t0
0\t<s>\t-0.25
-0.75\t</s>\t0
-0.5\ta\t-0.125
-1\tb\t-0.5
-1.25\t<UNKNOWN>\t-0.0625

\\2-grams:
-0.375\t<s> a\t-0.3125
-0.25\ta b\t-0.1875
-0.875\tb </s>\t0
-0.625\ta <UNKNOWN>\t-0.5

\\3-grams:
-0.15625\t<s> a b
-0.21875\ta b </s>

\\end\\
"""

# In the place of lmplz and build_binary; the arguments of lmplz go into a log.
FAKE_LMPLZ = """#!/usr/bin/env bash
echo "$*" >>"$FAKE_LOG"
if [[ -n ${FAKE_FAILURE:-} ]]; then
  echo begun >model.arpa
  echo "$FAKE_FAILURE" >&2
  [[ $* == *" --discount_fallback" && $FAKE_FAILURE == *--discount_fallback* ]] || exit 1
fi
cp train.txt "$FAKE_LOG.text"
cp "$FAKE_MODEL" model.arpa
"""
FAKE_BUILD_BINARY = '#!/usr/bin/env bash\ncp "$3" "$4"\n'


class Arpa:
    """A model read from its ARPA file; probabilities by the definition of back-off."""

    def __init__(self, path):
        self.entries = {}
        for line in Path(path).read_text("utf-8").split("\n"):
            columns = line.split("\t")
            if len(columns) > 1:
                backoff = float(columns[2]) if len(columns) > 2 else 0.0
                self.entries[tuple(columns[1].split(" "))] = float(columns[0]), backoff
        self.order = max(map(len, self.entries))

    def log10(self, context, word):
        if (*context, word) in self.entries:
            return self.entries[*context, word][0]
        return self.entries.get(context, (0.0, 0.0))[1] + self.log10(context[1:], word)

    def sentence(self, words):
        """log10 P of each word and of the end."""
        known = [word if (word,) in self.entries else "<unk>" for word in words]
        read, scores = ("<s>",), []
        for word in [*known, "</s>"]:
            scores.append(self.log10(read[max(0, len(read) - self.order + 1) :], word))
            read = (*read, word)
        return scores


class StandIn:
    """What is used of the package `kenlm`, built for orders up to 6."""

    Config = SimpleNamespace
    State = SimpleNamespace
    ARPALoadComplain = SimpleNamespace(NONE=None)

    class Model:
        def __init__(self, path, options):
            del options
            if (order := Path(path).read_text("utf-8").count("\nngram ")) > 6:
                raise OSError(
                    f"This model has order {order} but KenLM was compiled to support up to 6.  If "
                    "your build system supports changing KENLM_MAX_ORDER, change it there and"
                )
            self.arpa = Arpa(path)

        def BeginSentenceWrite(self, state):
            state.read = ("<s>",)

        def BaseScore(self, state, word, new_state):
            known = word if (word,) in self.arpa.entries else "<unk>"
            read = state.read[max(0, len(state.read) - self.arpa.order + 1) :]
            new_state.read = (*state.read, known)
            return self.arpa.log10(read, known)

        def full_scores(self, text):
            yield from ((score, None, None) for score in self.arpa.sentence(text.split()))


@pytest.fixture(autouse=True)
def package(monkeypatch):
    """KenLM's package, or what stands in for it."""
    if not HAS_KENLM:
        monkeypatch.setitem(sys.modules, "kenlm", StandIn)


def fake_programs(folder: Path, model: str = MODEL) -> dict[str, Any]:
    """Makes programs that make this model of any text; returns the environment that finds them."""
    folder.mkdir()
    for name, text in zip(PROGRAMS, (FAKE_LMPLZ, FAKE_BUILD_BINARY), strict=True):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    (folder / "model").write_text(model)
    paths = {"KENLM_BIN": folder, "FAKE_MODEL": folder / "model", "FAKE_LOG": folder / "log"}
    return {name: str(path) for name, path in paths.items()}


@pytest.fixture
def fakes(tmp_path, monkeypatch) -> Path:
    """Programs that make the model above of any text; returns the log of lmplz's arguments."""
    for name, value in fake_programs(tmp_path / "bin").items():
        monkeypatch.setenv(name, value)
    return tmp_path / "bin" / "log"


@pytest.fixture(scope="module")
def toolkit():
    """Skips the test unless KenLM itself is there, programs and package; pip has the package alone,
    and as source: building the programs needs a C++ compiler, CMake and Boost."""
    if not HAS_KENLM:
        pytest.skip("the package kenlm is not installed: pip install -e '.[ngram]'")
    built = REPOSITORY / ".kenlm" / "bin"
    with pytest.MonkeyPatch.context() as patch:
        if "KENLM_BIN" not in os.environ and built.is_dir():
            patch.setenv("KENLM_BIN", str(built))
        for program in PROGRAMS:
            if shutil.which(program, path=os.environ.get("KENLM_BIN")) is None:
                pytest.skip(f"KenLM's {program} is not there: bash launch/build_kenlm.sh")
        yield


def prepared(folder: Path, documents, **options: Any) -> Path:
    """A prepared corpus whose split train has these documents."""
    text = write_lines(folder / "text.txt", documents)
    make_corpus({"train": text}, folder / "corpus", **options)
    return folder / "corpus"


def natural_documents(seed=0, documents=300):
    """Words whose frequencies fall off as in natural text, many leaning on the word before."""
    rng = np.random.default_rng(seed)
    words = [OWN_UNKNOWN, *TRICKY, *(f"w{number}" for number in range(3000))]
    probabilities = 1 / np.arange(3, 3 + len(words))
    probabilities /= probabilities.sum()

    def sentence():
        ids = rng.choice(len(words), size=rng.integers(1, 12), p=probabilities)
        follows = np.concatenate([[False], rng.random(len(ids) - 1) < 0.5])
        for index in np.flatnonzero(follows):
            ids[index] = (ids[index - 1] * 7 + 1) % len(words)
        return [words[index] for index in ids]

    return [[sentence() for _ in range(rng.integers(1, 8))] for _ in range(documents)]


@pytest.fixture
def tiny(tmp_path) -> Path:
    return prepared(tmp_path / "tiny", [[["a", "b"], ["b", "a", "a"]], [["a"]]])


def vocabulary_of(*words: str) -> Vocabulary:
    return Vocabulary((*SPECIAL_TOKENS, *words), (0,) * (3 + len(words)))


def scorer_of(folder: Path, *words: str) -> NGramScorer:
    """The model above, under a vocabulary of these words."""
    (folder / "model.arpa").write_text(MODEL)
    return NGramScorer(folder / "model.arpa", vocabulary_of(*words))


def in_nats(log10):
    return -math.log(10) * np.array(log10)


def nll(scorer, *sentences):
    ((_, scores),) = scorer.score([[np.array(sentence, np.int32) for sentence in sentences]])
    return scores


def test_scores_by_hand(tmp_path):
    """a b END, the empty sentence, and UNKNOWN, which is not the toolkit's own unknown word."""
    scorer = scorer_of(tmp_path, "a", "b", "c")
    assert (scorer.context_order, scorer.vocab_size) == (0, 6)
    scores = nll(scorer, [3, 4], [], [3, UNKNOWN], [5, 3])
    by_hand = [
        [-0.375, -0.15625, -0.21875],
        [-0.25 - 0.75],
        # Of a <UNKNOWN> after <s>, and of </s> after a <UNKNOWN>.
        [-0.375, -0.3125 - 0.625, -0.5 - 0.0625 - 0.75],
        [-0.25 - 1.5, -0.5, -0.125 - 0.75],
    ]
    assert len(scores) == len(by_hand)
    for score, expected in zip(scores, by_hand, strict=True):
        assert score.dtype == np.float32
        np.testing.assert_allclose(score, in_nats(expected), rtol=TOLERANCE)


def test_a_continuation_is_its_last_sentence(tmp_path):
    scorer = scorer_of(tmp_path, "a", "b")
    document = [np.array([3, 4]), np.array([4, 3, 3])]
    requests = [document, Continuation(document), Continuation([])]
    (scored, whole), (_, last), (_, none) = scorer.score(requests)
    assert scored is document
    assert len(whole) == 2 and len(last) == 1 and none == []
    np.testing.assert_array_equal(last[0], whole[1])


def test_next_words_and_sentences_have_the_same_scores(tmp_path):
    reader = scorer_of(tmp_path, "a", "b")
    state = reader.open(2)
    rows = [np.array([3, 4]), np.array([4, 3])]
    after, nll = reader.read(state, [[rows[0]], [rows[1]]])
    for row, words in enumerate(rows):
        for n in range(3):
            log_probs_BxV = reader.next(after, [words[:n]] * 2)
            assert log_probs_BxV.dtype == np.float32
            np.testing.assert_array_equal(log_probs_BxV[0], log_probs_BxV[1])
            assert log_probs_BxV[0, START] == -np.inf
            target = [*words, END][n]
            np.testing.assert_allclose(-log_probs_BxV[row, target], nll[row][0][n], rtol=1e-5)
    assert reader.next(after.take([1]), rows[:1]).shape == (1, 5)
    assert reader.vectors(state) is None


def test_spellings_are_distinct_and_none_is_reserved():
    pieces = ["\\", "a", "<s>", "</s>", "<unk>", "<UNK>"]
    words = {
        "".join(parts)
        for count in (1, 2, 3, 4)
        for parts in itertools.product(pieces, repeat=count)
    }
    spelled = spellings(vocabulary_of(*sorted(words)))
    assert len(set(spelled)) == len(spelled)
    assert not {"<s>", "</s>", "<unk>", "<UNK>"} & set(spelled)
    unchanged = ("the", "<unk>x", "é")
    assert spellings(vocabulary_of(*unchanged)) == [*SPECIAL_TOKENS, *unchanged]


def test_train_writes_the_text_and_a_whole_workdir(tiny, fakes, tmp_path, caplog):
    counts = ngram.train_ngram(tiny, tmp_path / "runs" / "kn", order=3)
    assert counts == [6, 4, 2]
    workdir = tmp_path / "runs" / "kn"
    names = "config.json model.arpa model.binary text.json vocabulary.tsv"
    assert sorted(path.name for path in workdir.iterdir()) == names.split()
    assert sorted(path.name for path in workdir.parent.iterdir()) == ["kn"]
    text = fakes.with_name("log.text").read_text()
    assert [line.split() for line in text.splitlines()] == [["a", "b"], ["b", "a", "a"], ["a"]]
    assert "-o 3 " in fakes.read_text() and "fallback" not in fakes.read_text()
    assert any(line.split() == ["2-grams:", "4"] for line in caplog.messages)

    lm = dclm_jax.restore(workdir, dclm_jax.LanguageModel)
    assert (lm.facts.name, lm.facts.num_parameters, lm.facts.step) == ("ngram", 12, None)
    assert lm.facts.config == {
        "model": {"name": "ngram", "order": 3},
        "data": {"directory": str(tiny.absolute())},
        "binary": {"sha256": hashlib.sha256((workdir / "model.binary").read_bytes()).hexdigest()},
    }
    assert lm.summary == "ngram, 12 parameters"
    (document,) = lm.score([["a b", "never"]])
    assert document.sentences[1].known == [False, True]
    expected = [in_nats([-0.375, -0.15625, -0.21875]), in_nats([-0.25 - 1.25, -0.0625 - 0.75])]
    assert document.log_prob == pytest.approx(-sum(map(sum, expected)), rel=TOLERANCE)
    measured = lm.perplexity([["a b", "never"]])
    assert measured.nll == pytest.approx(-document.log_prob)
    assert (measured.tokens, measured.oov_words, measured.vocabulary_size) == (5, 1, 5)


def test_fallback_discounts_are_used_and_reported(tiny, fakes, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("FAKE_FAILURE", "rerun with --discount_fallback")
    ngram.train_ngram(tiny, tmp_path / "kn", order=3)
    first, second = fakes.read_text().splitlines()
    assert second == f"{first} --discount_fallback"
    assert any("lmplz uses 0.5, 1 and 1.5" in line for line in caplog.messages)


@pytest.mark.parametrize(
    ("variables", "order", "expected"),
    [
        ({"FAKE_FAILURE": "cannot sort\nno space"}, 3, "lmplz failed with exit code 1: no space"),
        (
            {"FAKE_MODEL": "BIN/long"},
            99,
            "order is 99; the installed .* up to order 6; .*MAX_ORDER=99",
        ),
        ({}, 1, "order is 1; expected at least 2"),
        ({"KENLM_BIN": "BIN/none"}, 3, r"lmplz is not in .*none \(KENLM_BIN\)"),
        ({"KENLM_BIN": "", "PATH": "BIN/none"}, 3, "lmplz is not on the PATH.*build_kenlm.sh"),
    ],
)
def test_a_run_that_cannot_be_made_leaves_nothing(
    tiny, fakes, tmp_path, monkeypatch, variables, order, expected
):
    header = "".join(f"ngram {length}=1\n" for length in range(1, 100))
    fakes.with_name("long").write_text(f"\\data\\\n{header}\n\\1-grams:\n")
    for name, value in variables.items():
        monkeypatch.setenv(name, value.replace("BIN", str(fakes.parent)))
    with pytest.raises(InputError, match=expected) as raised:
        ngram.train_ngram(tiny, tmp_path / "runs" / "kn", order=order)
    assert "\n" not in str(raised.value)
    assert not list(tmp_path.glob("runs/*"))


@pytest.fixture
def run(tiny, fakes, tmp_path) -> Path:
    """A run with the model above."""
    ngram.train_ngram(tiny, tmp_path / "kn", order=3)
    return tmp_path / "kn"


def test_continuations_of_strings_are_refused(run):
    with pytest.raises(InputError, match="ngram scores only the words.*a single neural model"):
        strings.score(dclm_jax.restore(run, dclm_jax.LanguageModel), [("b a\na", " b\n")])


def test_a_workdir_is_reused_or_refused(tiny, fakes, tmp_path, monkeypatch, caplog):
    workdir = tmp_path / "kn"
    workdir.mkdir()

    def train(corpus=tiny, order=3, into=workdir):
        caplog.clear()
        counts = ngram.train_ngram(corpus, into, order=order)
        return counts, list(caplog.messages)

    counts, _ = train()
    before = snapshot(workdir)
    # Nothing is needed of the toolkit any more.
    monkeypatch.setenv("KENLM_BIN", str(tmp_path / "absent"))
    again, lines = train()
    assert again == counts and len(lines) == 1 and "reusing" in lines[0]

    with pytest.raises(InputError, match=r"run \(model\.order: 3 saved, 4 given\)\. Choose"):
        train(order=4)
    other = prepared(tmp_path / "other", [[["a", "b"]]])
    with pytest.raises(InputError, match="a different vocabulary from .*other"):
        train(corpus=other)
    # The same place and words, but another text.
    prepare({"train": tmp_path / "other" / "text.txt"}, tiny, overwrite=True)
    with pytest.raises(InputError, match="different vocabular"):
        train()
    assert snapshot(workdir) == before

    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("keep")
    for into in (tmp_path / "mine", tmp_path / "mine" / "notes"):
        with pytest.raises(InputError, match="choose a new --workdir"):
            train(into=into)
    assert (tmp_path / "mine" / "notes").read_text() == "keep"


def test_a_missing_package_is_one_clear_line(run, tiny, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "kenlm", None)
    for attempt in (
        lambda: dclm_jax.restore(run, dclm_jax.LanguageModel),
        lambda: ngram.train_ngram(tiny, tmp_path / "new"),
    ):
        with pytest.raises(InputError, match=r"pip install 'dclm_jax\[ngram\]'"):
            attempt()
    assert not (tmp_path / "new").exists()


def test_damaged_files_are_refused(run):
    (run / "model.binary").write_bytes(b"something else\n")
    with pytest.raises(InputError, match="model.binary: its checksum differs"):
        dclm_jax.restore(run, dclm_jax.LanguageModel)
    (run / "model.arpa").write_text("something else")
    with pytest.raises(InputError, match="model.arpa: is not an ARPA file"):
        dclm_jax.restore(run, dclm_jax.LanguageModel)
    (run / "model.arpa").unlink()
    with pytest.raises(InputError, match="model.arpa: cannot be read: No such file"):
        dclm_jax.restore(run, dclm_jax.LanguageModel)


@pytest.fixture(scope="module")
def natural(toolkit, tmp_path_factory):
    """A corpus large enough for discounts, and the 5-gram that KenLM makes of it."""
    root = tmp_path_factory.mktemp("natural")
    corpus = prepared(root, natural_documents(), unknown_token=OWN_UNKNOWN)
    lines = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ngram.job_logger, "info", lines.append)
        ngram.train_ngram(corpus, root / "kn5")
    assert lines and not any("too small" in line for line in lines)
    return corpus, root / "kn5"


def some_sentences(vocab_size, count=300):
    rng = np.random.default_rng(1)
    drawn = [rng.integers(UNKNOWN, vocab_size, size=rng.integers(0, 9)) for _ in range(count)]
    return [ids.astype(np.int32) for ids in drawn]


def test_scores_agree_with_a_plain_reader_of_the_model(natural):
    corpus, workdir = natural
    train = open_corpus(corpus, "train")
    lm = dclm_jax.restore(workdir, dclm_jax.LanguageModel)
    arpa = Arpa(workdir / "model.arpa")
    assert arpa.order == 5
    assert lm.facts.num_parameters == len(arpa.entries)
    spelled = spellings(train.vocabulary)
    # All that KenLM has to keep apart is in the text.
    assert {(spelled[train.vocabulary.entries.index(word)],) for word in TRICKY} <= set(
        arpa.entries
    )
    assert ("<UNKNOWN>",) in arpa.entries
    seen = [sentence for index in range(20) for sentence in train.document(index)]
    for sentence in [*seen, *some_sentences(len(train.vocabulary))]:
        (score,) = nll(lm.scorer, sentence)
        expected = in_nats(arpa.sentence([spelled[word] for word in sentence]))
        np.testing.assert_allclose(score, expected, rtol=TOLERANCE, atol=TOLERANCE)


def test_unknown_is_counted_like_any_other_word(natural):
    """Among many rare words UNKNOWN is frequent, where KenLM's own is as rare as can be."""
    corpus, workdir = natural
    vocabulary = open_corpus(corpus, "train").vocabulary
    scorer = dclm_jax.restore(workdir, dclm_jax.LanguageModel).scorer
    (unknown,) = nll(scorer, [UNKNOWN])
    rarest = min(nll(scorer, [word])[0][0] for word in range(END + 1, len(vocabulary)))
    toolkits = in_nats(Arpa(workdir / "model.arpa").entries["<unk>",][0])
    assert vocabulary.counts[UNKNOWN] > 100
    assert unknown[0] < toolkits - 2 and rarest < toolkits


def test_probabilities_add_up_to_one(toolkit, tmp_path):
    """Also where words of the vocabulary, UNKNOWN included, are not in the training text."""
    words = [*SPECIAL_TOKENS, *(f"w{number}" for number in range(40)), "never", "neither"]
    Vocabulary(tuple(words), (0,) * len(words)).save(tmp_path / "words")
    documents = [
        [[word for word in sentence if word in words] for sentence in document]
        for document in natural_documents(documents=400)
    ]
    documents = [list(filter(None, document)) for document in documents]
    corpus = prepared(tmp_path, list(filter(None, documents)), vocabulary=tmp_path / "words")
    ngram.train_ngram(corpus, tmp_path / "kn", order=3)
    lm = dclm_jax.restore(tmp_path / "kn", dclm_jax.LanguageModel)
    vocabulary = lm.vocabulary
    following = [word for word in range(len(vocabulary)) if word not in (START, END)]
    for context in ([], [3], [4, 3], [UNKNOWN], [vocabulary.entries.index("never"), 5]):
        scores = nll(lm.scorer, *([*context, word] for word in following))
        end = nll(lm.scorer, context)[0][-1]
        at = len(context)
        total = math.fsum(math.exp(-score[at]) for score in scores) + math.exp(-end)
        assert total == pytest.approx(1, abs=1e-5)
    never, neither, unknown = (
        nll(lm.scorer, [word])[0][0]
        for word in (
            vocabulary.entries.index("never"),
            vocabulary.entries.index("neither"),
            UNKNOWN,
        )
    )
    assert never == neither == unknown


def test_a_small_corpus_makes_a_model(toolkit, tiny, tmp_path, caplog):
    counts = ngram.train_ngram(tiny, tmp_path / "kn")
    assert len(counts) == 5 and counts[0] == 5
    assert any("too small" in line for line in caplog.messages)
    assert (
        1
        < dclm_jax.restore(tmp_path / "kn", dclm_jax.LanguageModel)
        .perplexity([["a b", "b a a"]])
        .perplexity
        < 5
    )


def test_the_build_script_names_what_is_missing_and_builds_once(tmp_path):
    def build(**variables):
        command = [shutil.which("bash"), REPOSITORY / "launch/build_kenlm.sh", tmp_path / "bin"]
        environment = {**os.environ, **variables}
        return subprocess.run(command, env=environment, capture_output=True, text=True)

    done = build(PATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: cmake is missing; on Debian")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "bin").exists()

    (tmp_path / "bin").mkdir()
    for name in (*PROGRAMS, "query"):
        (tmp_path / "bin" / name).write_text("#!/bin/sh\necho compiled with maximum order 6.\n")
        (tmp_path / "bin" / name).chmod(0o755)
    done = build(PATH=str(tmp_path))
    assert done.returncode == 0 and done.stdout.startswith("already built")
    assert f"export KENLM_BIN={tmp_path / 'bin'}" in done.stdout
    assert build(PATH=str(tmp_path), MAX_ORDER="8").returncode == 2
