"""launch.reading_times, its gains by normal equations, and the table of Natural Stories."""

import csv
import dataclasses
import json
import math

import numpy as np
import pytest

import dclm_jax
from configs.reading_times import natural_stories
from dclm_jax.data.documents import Document, columns
from dclm_jax.data.readers import read_documents
from dclm_jax.data.vocabulary import Vocabulary
from dclm_jax.errors import InputError
from dclm_jax.evaluation import significance
from dclm_jax.experiments.reading_times import (
    COMPARISONS,
    NO_CONTEXT,
    SURPRISAL,
    Words,
    figure,
    gains_of,
    log_likelihoods,
    text,
    words_of,
)
from dclm_jax.language_model import LanguageModel
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
    output, table = tmp_path / "gains.json", tmp_path / "words.tsv"
    flags = [f"--workdirs={space.run},{space.rnnlm}", f"--input={path}", "--predictors=length"]
    flags += [f"--output={output}", f"--words={table}", f"--plot={plot}"]
    printed = launch("reading_times", *flags, quiet=False)
    saved = json.loads(output.read_text())
    assert plot.stat().st_size > 1000

    models = {"ccdclm": dclm_jax.restore(space.run), "rnnlm": dclm_jax.restore(space.rnnlm)}
    stories = list(read_documents(path, joined_by=["story"]))
    words = words_of(models, stories, "time", ["length"])
    expected = gains_of(words, list(models), ["length"]).gains
    for gain, expected_gain in zip(saved["gains"], expected, strict=True):
        assert gain == pytest.approx(expected_gain._asdict(), abs=2e-5)
    assert saved["omitted"] == words.omitted
    assert {name: saved[name] for name in words.counts} == words.counts
    assert sum(saved["omitted"].values()) == 120 - saved["words"]
    # "." is OOV in the vocabulary of `space`, as is the word "unheard".
    assert (saved["stories"], saved["omitted"]["first of a story"]) == (3, 3)
    means = {(gain["label"], gain["comparison"]): gain["mean"] for gain in saved["gains"]}
    beyond = means["rnnlm", "surprisal beyond surprisal, no context"]
    assert beyond == pytest.approx(0, abs=1e-9)
    assert f"{saved['words']} words" in printed.stdout and "ccdclm - rnnlm" in printed.stdout

    # The table of words has what the linear models are fitted to, at the places of the scores.
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    scored = {}
    for score in models["ccdclm"].score(stories, no_context_too=True):
        scored |= {row[:3]: row for row in score.rows()}
    for row in rows:
        token = scored[row["story"], int(row["sentence"]), int(row["position"])]
        assert row["word"] == token.word
        assert float(row["surprisal:ccdclm"]) == pytest.approx(
            token.measures["surprisal"], abs=1e-4
        )
    names = ["length", "log_frequency", "surprisal:rnnlm"]
    names = [f"{name}{end}" for name in names for end in ("", "_before")]
    stories_N, times_N = [row["story"] for row in rows], [float(row["time"]) for row in rows]
    full, shorter = (
        held_out(times_N, [[float(row[name]) for name in predictors] for row in rows], stories_N)
        for predictors in (names, names[:-2])
    )
    assert means["rnnlm", "surprisal"] == pytest.approx(
        np.mean(np.subtract(full, shorter)), abs=1e-5
    )


def made_up(rng, surprisals, offset=0.0, scale=1.0):
    """60 words in 12 sentences of 3 stories, whose times depend on the surprisals of one run."""
    sentences = np.repeat(np.arange(12), 5)
    times = 300 + 40 * surprisals[:, 0] + rng.standard_normal(60)
    predictors = {name: rng.standard_normal((60, 2)) for name in ("length", "log_frequency")}
    entropy = rng.standard_normal((60, 2))
    measures = {
        SURPRISAL: scale * surprisals + offset,
        NO_CONTEXT: rng.standard_normal((60, 2)),
        "entropy": entropy,
        "divergence": rng.standard_normal((60, 2)),
    }
    other = {**measures, SURPRISAL: entropy}
    for run, of_run in (("a", measures), ("b", other)):
        predictors |= {f"{name}:{run}": values for name, values in of_run.items()}
    table = {"story": sentences // 4, "sentence": sentences, "time": times}
    return Words(table, predictors, {"first": 3})


def test_intervals_draw_sentences_and_runs_are_compared_by_their_surprisal():
    rng = np.random.default_rng(2)
    words = made_up(rng, rng.standard_normal((60, 2)))
    result = gains_of(words, ["a", "b"])

    def sums_of_sentences(run, comparison):
        full, shorter = (
            held_out(
                words.table["time"],
                np.hstack([words.predictors[name] for name in names]),
                words.table["story"],
            )
            for measures in (COMPARISONS[comparison], COMPARISONS[comparison][:-1])
            for names in [["length", "log_frequency", *(f"{name}:{run}" for name in measures)]]
        )
        return np.bincount(words.table["sentence"], np.subtract(full, shorter))

    gains = {gain[:2]: gain for gain in result.gains}
    for comparison in COMPARISONS:
        sums_D = sums_of_sentences("a", comparison)
        means = significance.resample(sums_D[:, None], np.full((12, 1), 5.0))
        low, high = np.percentile(means[:, 0], (2.5, 97.5))
        expected = [sums_D.sum() / 60, low, high]
        np.testing.assert_allclose(gains["a", comparison][2:], expected, rtol=1e-6)
    gain = gains["a", "surprisal"]
    assert words.counts == {"words": 60, "stories": 3, "sentences": 12}
    (pair,) = result.differences
    expected = gain.mean - sums_of_sentences("b", "surprisal").sum() / 60
    assert (pair.a, pair.b) == (0, 1) and pair.difference == pytest.approx(expected)
    printed = text(words, result, ["a", "b"]).splitlines()
    row, differences = (line for line in printed if line.startswith("surprisal  "))
    assert f"{1e3 * gain.mean:.1f} [{1e3 * gain.low:.1f}, {1e3 * gain.high:.1f}]" in row
    assert f"a - b {1e3 * pair.difference:+.1f} [" in " ".join(differences.split())
    line = figure(result.gains).lines[0]
    assert [line.y[1], line.low[1], line.high[1]] == pytest.approx([1e3 * x for x in gain[2:]])


def test_units_of_predictors_have_no_effect():
    surprisals = np.random.default_rng(3).standard_normal((60, 2))
    plain, scaled = (
        gains_of(made_up(np.random.default_rng(4), surprisals, *unit), ["a", "b"]).gains
        for unit in ((0.0, 1.0), (1.7e12, 1e9))
    )
    for a, b in zip(plain, scaled, strict=True):
        np.testing.assert_allclose(a[2:], b[2:], atol=1e-4)


def test_rows_of_several_words_are_summed_and_follow_their_previous_row(monkeypatch):
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
                "surprisal": [1.0 + n for n in range(len(words) + 1)],
                "surprisal_no_context": [10.0 + n for n in range(len(words) + 1)],
                "entropy": [20.0 + n for n in range(len(words) + 1)],
                "entropy_no_context": [0.0] * (len(words) + 1),
                "divergence": [30.0 + n for n in range(len(words) + 1)],
            },
        )
        for words in texts
    ]
    lm = dataclasses.replace(dclm_jax.restore("english"), vocabulary=vocabulary)
    monkeypatch.setattr(
        LanguageModel,
        "score",
        lambda lm, documents, **options: (
            DocumentScore.of(document.id, scores, columns(document)) for document in documents
        ),
    )
    story = Document("s", texts, rows=[{"time": t, "x": x} for t, x in cells], row_of_word=rows)
    kept = words_of({"a": lm}, [story, story._replace(id="t")], "time", ["x"])
    assert kept.omitted == {
        "first of a story": 2,
        "OOV, or after an OOV word": 4,
        "without a reading time": 2,
        "without a predictor of the word or of the word before": 4,
    }
    assert {name: column.tolist() for name, column in kept.table.items()} == {
        "story": ["s", "t"],
        "sentence": [1, 1],
        "position": [2, 2],
        "word": ["aa b ."] * 2,
        "time": [9, 9],
    }
    assert kept.sentence_N.tolist() == [0, 1]
    logs = np.log([2 / 20, 5 / 20])
    expected = {"length": [4, 1], "log_frequency": logs, "input_x": [2, 1]}
    expected |= {"surprisal:a": [2 + 3 + 4, 1], "surprisal_no_context:a": [11 + 12 + 13, 10]}
    expected |= {"entropy:a": [21, 20], "divergence:a": [31 + 32 + 33, 30]}
    assert kept.predictors.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(kept.predictors[name][0], values)


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
    assert "the input has fewer than two stories" in error_of(f"--input={bad}")
    bad.write_text("story,text,time\na,unheard,3\na,unseen,3\nb,unheard,3\nb,unseen,3\n")
    assert "no word remains; omitted: 2 (first of a story), 2 (OOV" in error_of(f"--input={bad}")
    bad.write_text("story,text,time\na,w1,3\na,w2,3\nb,w1,3\nb,w2,3\n")
    problem = "without one of the stories 1 words remain, and the linear model has 7 weights"
    assert problem in error_of(f"--input={bad}")
    with pytest.raises(InputError, match="predicts all reading times exactly"):
        log_likelihoods(
            np.full(12, 3.0), np.random.default_rng(0).random((12, 1)), np.arange(12) % 3
        )
    bare = Vocabulary(("<START>", "<END>", "<UNKNOWN>", "a"), (0, 0, 0, 0))
    lm = dataclasses.replace(dclm_jax.restore(space.run), vocabulary=bare)
    stories = [Document(name, [["a"]], rows=[{"time": "3"}]) for name in "ab"]
    with pytest.raises(InputError, match="no word counts, which log frequencies require"):
        words_of({"a": lm}, stories, "time")


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
