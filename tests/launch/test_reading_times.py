"""launch.reading_times, its gains by normal equations, and the table of Natural Stories."""

import csv
import json
import math

import numpy as np
import pytest

import dclm_jax
from configs.reading_times import natural_stories
from dclm_jax.data.documents import Document
from dclm_jax.data.readers import read_documents
from dclm_jax.data.vocabulary import Vocabulary
from dclm_jax.errors import InputError
from dclm_jax.evaluation import significance
from dclm_jax.experiments.reading_times import (
    COMPARISONS,
    DIVERGENCE,
    ENTROPY,
    NO_CONTEXT,
    OF_WORDS,
    SURPRISAL,
    Comparison,
    Gains,
    Words,
    log_likelihoods,
    words_of,
)
from dclm_jax.score_types import DocumentScore, SentenceScore
from tests.launch.support import launch

pytest.importorskip("sentencex")
pytest.importorskip("sacremoses")
STORIES = ("a", "b", "c")


@pytest.fixture
def times(tmp_path):
    """Three stories of 40 words, some of two words of the vocabulary, OOV, or without a time."""
    rng = np.random.default_rng(0)
    rows = []
    for story in STORIES:
        for n in range(40):
            word = f"w{rng.integers(1, 60)}"
            word = "unheard" if (story, n) == ("b", 7) else word
            end = "." if n % 9 == 8 else ""
            time = "" if (story, n) == ("c", 3) else f"{300 + 50 * rng.standard_normal():.3f}"
            rows.append([story, f"{word}{end}", time, f"{rng.standard_normal():.3f}"])
    path = tmp_path / "times.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["story", "text", "time", "length"], *rows])
    return path


def density(time, mean, variance):
    return -0.5 * (math.log(2 * math.pi * variance) + (time - mean) ** 2 / variance)


def held_out(times, predictors, stories):
    """The log densities by normal equations, one story at a time."""
    values = []
    for story, time, row in zip(stories, times, predictors, strict=True):
        fitted = [n for n, other in enumerate(stories) if other != story]
        design = np.array([[1.0, *predictors[n]] for n in fitted])
        targets = np.array([times[n] for n in fitted])
        weights = np.linalg.solve(design.T @ design, design.T @ targets)
        variance = np.mean([(t - d @ weights) ** 2 for t, d in zip(targets, design, strict=True)])
        values.append(density(time, np.array([1.0, *row]) @ weights, variance))
    return values


def test_likelihoods_are_of_stories_that_were_not_fitted():
    rng = np.random.default_rng(1)
    predictors, times = rng.standard_normal((30, 2)), rng.standard_normal(30)
    stories = np.arange(30) % 3
    actual = log_likelihoods(times, predictors, stories)
    np.testing.assert_allclose(actual, held_out(times, predictors, stories), rtol=1e-9)


def test_gains_are_those_of_python(space, times, tmp_path):
    path, plot = times, tmp_path / "gains.png"
    output = tmp_path / "gains.json"
    flags = [f"--workdirs={space.run},{space.rnnlm}", f"--input={path}", "--predictors=length"]
    printed = launch("reading_times", *flags, f"--output={output}", f"--plot={plot}", quiet=False)
    saved = json.loads(output.read_text())
    assert plot.stat().st_size > 1000

    models = [dclm_jax.restore(run) for run in (space.run, space.rnnlm)]
    stories = list(read_documents(path, joined_by=["story"]))
    scores = (lm.score(stories, no_context_too=True, measures=OF_WORDS) for lm in models)
    words = words_of(stories, zip(*scores, strict=True), models[0].vocabulary, "time", ["length"])
    expected = Gains(words, ["ccdclm", "rnnlm"], ["length"]).to_json()
    for gain, expected_gain in zip(saved["gains"], expected["gains"], strict=True):
        assert gain == pytest.approx(expected_gain, abs=2e-5)
    for name in ("words", "stories", "sentences", "omitted"):
        assert saved[name] == expected[name]
    assert sum(saved["omitted"].values()) == 120 - saved["words"]
    # "." is OOV in the vocabulary of `space`, as is the word "unheard".
    assert (saved["stories"], saved["omitted"]["first of a story"]) == (3, 3)
    means = {(gain["label"], gain["comparison"]): gain["mean"] for gain in saved["gains"]}
    beyond = means["rnnlm", "surprisal beyond surprisal, no context"]
    assert beyond == pytest.approx(0, abs=1e-9)
    assert f"{saved['words']} words" in printed.stdout and "ccdclm - rnnlm" in printed.stdout


def made_up(rng, surprisals, offset=0.0, scale=1.0):
    """60 words in 12 sentences of 3 stories, whose times depend on the surprisals of one run."""
    sentences = np.repeat(np.arange(12), 5)
    times = 300 + 40 * surprisals[:, 0] + rng.standard_normal(60)
    shared = {name: rng.standard_normal((60, 2)) for name in ("length", "log frequency")}
    entropy = rng.standard_normal((60, 2))
    measures = {
        SURPRISAL: scale * surprisals + offset,
        NO_CONTEXT: rng.standard_normal((60, 2)),
        ENTROPY: entropy,
        DIVERGENCE: rng.standard_normal((60, 2)),
    }
    other = {**measures, SURPRISAL: entropy}
    by_run = [shared | measures, shared | other]
    return Words(times, sentences % 3, sentences, by_run, {"first": 3})


def test_intervals_draw_sentences_and_runs_are_compared_by_their_surprisal():
    rng = np.random.default_rng(2)
    words = made_up(rng, rng.standard_normal((60, 2)))
    result = Gains(words, ["a", "b"])

    def sums_of_sentences(run, comparison):
        pool = words.by_run[run]
        base = ("length", "log frequency", *comparison.given)
        full, shorter = (
            held_out(words.times_N, np.hstack([pool[name] for name in names]), words.stories_N)
            for names in ((*base, comparison.added), base)
        )
        return np.bincount(words.sentences_N, np.subtract(full, shorter))

    gains = {gain[:2]: gain for gain in result.gains}
    for comparison in COMPARISONS:
        sums_D = sums_of_sentences(0, comparison)
        means = significance.resample(sums_D[:, None], np.full((12, 1), 5.0))
        low, high = np.percentile(means[:, 0], (2.5, 97.5))
        expected = [sums_D.sum() / 60, low, high]
        np.testing.assert_allclose(gains["a", str(comparison)][2:], expected, rtol=1e-6)
    gain = gains["a", "surprisal"]
    assert result.words.counts == {"words": 60, "stories": 3, "sentences": 12}
    (pair,) = result.differences
    expected = gain.mean - sums_of_sentences(1, Comparison(SURPRISAL)).sum() / 60
    assert (pair.a, pair.b) == (0, 1) and pair.difference == pytest.approx(expected)
    row, differences = (
        line for line in result.text().splitlines() if line.startswith("surprisal  ")
    )
    assert f"{1e3 * gain.mean:.1f} [{1e3 * gain.low:.1f}, {1e3 * gain.high:.1f}]" in row
    assert f"a - b {1e3 * pair.difference:+.1f} [" in " ".join(differences.split())
    line = result.figure().lines[0]
    assert [line.y[1], line.low[1], line.high[1]] == pytest.approx([1e3 * x for x in gain[2:]])


def test_units_of_predictors_have_no_effect():
    surprisals = np.random.default_rng(3).standard_normal((60, 2))
    plain, scaled = (
        Gains(made_up(np.random.default_rng(4), surprisals, *unit), ["a", "b"]).gains
        for unit in ((0.0, 1.0), (1.7e12, 1e9))
    )
    for a, b in zip(plain, scaled, strict=True):
        np.testing.assert_allclose(a[2:], b[2:], atol=1e-4)


def test_rows_of_several_words_are_summed_and_follow_their_previous_row():
    """By hand: the rows "b", "aa b.", "unheard", "b", "b", "b", "b" of a story."""
    words = ("<START>", "<END>", "<UNKNOWN>", "aa", "b", ".")
    vocabulary = Vocabulary(words, (0, 0, 0, 2, 5, 13))
    texts = [["b", "aa", "b", "."], ["unheard", "b"], ["b", "b", "b"]]
    rows = [[0, 1, 1, 1], [2, 3], [4, 5, 6]]
    cells = [("", 1), (9, 2), (9, 3), (9, 4), ("", 5), (9, ""), (9, 7)]
    scores = [
        SentenceScore(
            0.0,
            [*words, "<END>"],
            [*(word != "unheard" for word in words), True],
            {
                "surprisal": [1.0 + n for n in range(9)],
                "surprisal_no_context": [10.0 + n for n in range(9)],
                ENTROPY: [20.0 + n for n in range(9)],
                DIVERGENCE: [30.0 + n for n in range(9)],
            },
        )
        for words in texts
    ]
    story = Document("s", texts, rows=[{"time": t, "x": x} for t, x in cells], row_of_word=rows)
    kept = words_of([story] * 2, [[DocumentScore.of("s", scores)]] * 2, vocabulary, "time", ["x"])
    assert kept.omitted == {
        "first of a story": 2,
        "OOV, or after an OOV word": 4,
        "without a reading time": 2,
        "without a predictor of the word or of the word before": 4,
    }
    assert kept.times_N.tolist() == [9, 9] and kept.stories_N.tolist() == [0, 1]
    assert kept.sentences_N.tolist() == [0, 3]
    logs = np.log([2 / 20, 5 / 20])
    expected = {"length": [4, 1], "log frequency": logs, "column of the input: x": [2, 1]}
    expected |= {SURPRISAL: [2 + 3 + 4, 1], NO_CONTEXT: [11 + 12 + 13, 10]}
    expected |= {ENTROPY: [21, 20], DIVERGENCE: [31 + 32 + 33, 30]}
    for name, values in expected.items():
        np.testing.assert_allclose(kept.by_run[0][name][0], values)


def test_wrong_tables_are_refused(space, tmp_path):
    def error_of(*flags):
        """The last line; notes of the format stand before it."""
        arguments = (f"--workdir={space.run}", *flags)
        return launch("reading_times", *arguments, code=2).stderr.splitlines()[-1]

    bad = tmp_path / "bad.csv"
    bad.write_text("story,text,time\na,w1 w2,3\nb,w1,fast\n")
    error = error_of(f"--input={bad}")
    assert "story 'b', row 1: 'fast' in the column 'time' is not a reading time above 0" in error
    bad.write_text("story,text,time\na,w1,3\na,w2,3\n")
    assert "bad.csv has fewer than two stories" in error_of(f"--input={bad}")
    bad.write_text("story,text,time\na,unheard,3\na,unseen,3\nb,unheard,3\nb,unseen,3\n")
    assert "no word remains; omitted: 2 (first of a story), 2 (OOV" in error_of(f"--input={bad}")
    bad.write_text("story,text,time\na,w1,3\na,w2,3\nb,w1,3\nb,w2,3\n")
    problem = "without one of the stories 1 words remain, and the linear model has 7 weights"
    assert problem in error_of(f"--input={bad}")
    with pytest.raises(InputError, match="predicts all reading times exactly"):
        log_likelihoods(
            np.full(12, 3.0), np.random.default_rng(0).random((12, 1)), np.arange(12) % 3
        )
    with pytest.raises(InputError, match="no word counts, which log frequencies require"):
        words_of([], [], Vocabulary(("<START>", "<END>", "<UNKNOWN>", "a"), (0, 0, 0, 0)), "time")


def test_subwords_are_added_to_the_words_that_they_begin_in():
    none = math.nan
    subwords = [
        ("If", none),
        (" you", -1),
        (" we", -2),
        ("re", -0.5),
        (".", -3),
        ("”", -1),
        (" ", -9),
    ]
    surprisals = natural_stories.word_surprisals(["If", "you", "wore.”"], subwords)
    np.testing.assert_allclose(surprisals, [math.nan, 1.0, 6.5])
    for subwords in ([("If", -1)], [("If", -1), (" you", -1), (" we", -1)]):
        with pytest.raises(InputError, match="the text differs in gpt3_surprisal.csv and"):
            natural_stories.word_surprisals(["If", "you"], subwords)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("word\titem\nIt.\t1\n", ":2: there is no column 'zone'; choose from: 'word', 'item'"),
        ("word\tzone\titem\tmeanItemRT\nIt.\tone\t1\t3\n", ":2: 'one' is not a number"),
        ("word\tzone\titem\tmeanItemRT\nIt.\t1\t1\n", ":2: the row has 3 cells, but the header"),
        ("word\tzone\titem\tmeanItemRT\na\t1\t1\t3\nb\t1\t1\t3\n", ":3: zone 1 of story 1 has two"),
    ],
)
def test_damaged_files_are_refused(tmp_path, capsys, rows, message):
    path = tmp_path / natural_stories.TIMES
    path.write_text(rows)
    with pytest.raises(SystemExit):
        natural_stories.main([str(tmp_path), str(tmp_path / "times.tsv")])
    assert f"error: {path}{message}" in capsys.readouterr().err
    assert not (tmp_path / "times.tsv").exists()


def test_rows_of_natural_stories_are_sorted(tmp_path):
    folder = tmp_path / "corpus"
    folder.mkdir()
    header = "word\tzone\titem\tnItem\tmeanItemRT\n"
    rows = "'Ah\t2\t2\t9\t300.5\nwe\t1\t2\t9\t301\nIt.\t1\t1\t9\t310\n"
    (folder / natural_stories.TIMES).write_text(header + rows)
    assert "".join(natural_stories.table(folder)) == (
        "item\tzone\tword\tmeanItemRT\n1\t1\tIt.\t310\n2\t1\twe\t301\n2\t2\t'Ah\t300.5\n"
    )
    subwords = "token,logprob,story\nIt,,0\n.,-1,0\nwe,-2,1\n 'A,-1,1\nh,-0.5,1\n"
    (folder / natural_stories.SUBWORDS).write_text(subwords)
    *_, first, second, third = natural_stories.table(folder)
    assert [first, second, third] == [
        "1\t1\tIt.\t310\t\n",
        "2\t1\twe\t301\t2.000000\n",
        "2\t2\t'Ah\t300.5\t1.500000\n",
    ]
