"""launch.reading_times, its gains by normal equations, and the table of Natural Stories."""

import csv
import dataclasses
import json
import math
import re

import numpy as np
import pytest

import dclm_jax
from configs.reading_times import natural_stories
from dclm_jax.data.documents import Document, columns
from dclm_jax.data.readers import read_documents
from dclm_jax.data.vocabulary import Vocabulary
from dclm_jax.errors import InputError
from dclm_jax.evaluation import significance
from dclm_jax.evaluation.reading_times import (
    COMPARISONS,
    fitted,
    gains_of,
    log_likelihoods,
    word_table,
)
from dclm_jax.evaluation.stories import read_stories
from dclm_jax.language_model import LanguageModel
from dclm_jax.scoring.other_contexts import OtherContexts
from dclm_jax.scoring.score_types import DocumentScore, SentenceScore
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


def held_out_by(words, names):
    """`held_out` of a table of words, with the named predictors and those of the word before."""
    names = ["length", "log_frequency", *names]
    columns = [words[f"{name}{end}"] for name in names for end in ("", "_before")]
    return held_out(words["time"], np.array(columns, float).T, words["document"])


def test_gains_are_those_of_the_words(space, times, tmp_path):
    output, table = tmp_path / "gains.json", tmp_path / "words.tsv"
    flags = [f"--workdirs={space.run},{space.rnnlm}", f"--input={times}", "--predictors=length"]
    printed = launch("reading_times", *flags, f"--metrics={output}", f"--words={table}").stdout
    saved = json.loads(output.read_text())
    # Standard output has only the JSON, if the JSON is written there.
    piped = launch("reading_times", *flags, "--metrics=-", quiet=False)
    assert json.loads(piped.stdout) == saved and printed in piped.stderr
    gains = {(gain["comparison"], gain["label"]): gain["mean"] for gain in saved["gains"]}
    assert gains["surprisal beyond surprisal, no context", "rnnlm"] == pytest.approx(0, abs=1e-9)

    # The table of words has what the linear models are fitted to, at the places of the scores.
    with table.open(newline="") as file:
        lines = list(csv.DictReader(file, delimiter="\t"))
    assert [line["row"] for line in lines] == [str(n) for n in range(1, 121)]
    assert sum(line["known"] == "0" for line in lines) == saved["oov_rows"]
    assert [line["input_story"] for line in lines] == [
        story for story in STORIES for _ in range(40)
    ]
    rows = [line for line in lines if line["fitted"] == "1"]
    lm = dclm_jax.restore(space.run)
    with times.open(newline="") as file:
        texts = [row["text"].removesuffix(".") for row in csv.DictReader(file)]
    known = {*lm.vocabulary.entries[3:]}
    ends = sum(n % 40 % 9 == 8 for n in range(120)) if "." not in known else 0
    oov = sum(text not in known for text in texts) + ends
    assert saved["words"] == len(rows) and (saved["rows"], saved["oov_rows"]) == (120, oov)
    assert f"\n{len(rows)} of 120 words; OOV words: {oov}\n" in printed
    scored = {}
    stories = read_documents(times, joined_by=["story"])
    for score in dclm_jax.restore(space.run).score(stories, other_contexts=OtherContexts(2)):
        scored |= {row[:3]: row for row in score.rows()}
    for row in rows:
        token = scored[row["document"], int(row["sentence"]), int(row["position"])]
        assert row["word"] == token.word
        surprisal = token.measures["surprisal"]
        assert float(row["surprisal:ccdclm"]) == pytest.approx(surprisal, abs=1e-4)
        other = token.measures["surprisal_other_context"]
        assert float(row["surprisal_other_context:ccdclm"]) == pytest.approx(other, abs=1e-4)
    words = {name: [row[name] for row in rows] for name in rows[0]}
    words["time"] = list(map(float, words["time"]))
    for (comparison, label), names in {
        ("surprisal", "rnnlm"): ["surprisal:rnnlm"],
        ("divergence beyond surprisal", "ccdclm"): ["surprisal:ccdclm", "divergence:ccdclm"],
        ("column of the input", "length"): ["input_length"],
    }.items():
        gain = np.subtract(held_out_by(words, names), held_out_by(words, names[:-1])).mean()
        assert gains[comparison, label] == pytest.approx(gain, abs=1e-6)
        assert re.search(rf"^{comparison} +{label} +{1e3 * gain:.1f} \[", printed, re.MULTILINE)
    (pair,) = saved["differences"]
    difference = gains["surprisal", "ccdclm"] - gains["surprisal", "rnnlm"]
    assert pair["difference"] == pytest.approx(difference, abs=1e-9)
    text = rf"ccdclm - rnnlm +{1e3 * difference:.1f} \[.*\] +{pair['p_holm']:.4f}"
    assert re.search(text, printed)


def test_intervals_draw_sentences():
    rng = np.random.default_rng(2)
    sentences = np.repeat(np.arange(12), 5)
    words: dict[str, np.ndarray] = {"document": sentences // 4, "sentence": sentences}
    measures = ("surprisal", "surprisal_no_context", "surprisal_other_context")
    measures = (*measures, "entropy", "divergence")
    for name in ("length", "log_frequency", *(f"{name}:a" for name in measures)):
        words |= {f"{name}{end}": rng.standard_normal(60) for end in ("", "_before")}
    words["time"] = 300 + 40 * words["surprisal:a"] + rng.standard_normal(60)
    gains, differences = gains_of(words, ["a"], "time")
    assert [gain["comparison"] for gain in gains] == list(COMPARISONS) and not differences
    for gain in gains:
        names = [f"{name}:a" for name in COMPARISONS[gain["comparison"]]]
        gain_N = np.subtract(held_out_by(words, names), held_out_by(words, names[:-1]))
        sums_D = np.bincount(sentences, gain_N)
        means = significance.resample(sums_D[:, None], np.full((12, 1), 5.0))
        expected = [gain_N.mean(), *np.percentile(means[:, 0], (2.5, 97.5))]
        actual = [gain[name] for name in ("mean", "low", "high")]
        np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_stories_with_one_first_sentence_have_no_contexts_of_other_stories(caplog):
    lm = dclm_jax.restore("english")
    words = ["The", "cat", "sat", ".", "It", "was", "late", "."]
    rows = [{"time": str(300 + n)} for n in range(8)]
    places = [[0, 1, 2, 3], [4, 5, 6, 7]]
    lower = [word.lower() for word in words]
    stories = [
        Document(
            name,
            [lower[:4], lower[4:]],
            rows=[row | {"n": name} for row in rows],
            row_of_word=places,
        )
        for name in "st"
    ]
    table = word_table({"a": lm}, read_stories(stories, ["n"], None, ["time"]))
    assert "surprisal:a" in table and "surprisal_other_context:a" not in table
    assert "no story has another first sentence" in caplog.text
    other = stories[1]._replace(sentences=[["a", *lower[1:4]], lower[4:]])
    table = word_table({"a": lm}, read_stories([stories[0], other], ["n"], None, ["time"]))
    assert "surprisal_other_context:a" in table


def test_units_and_origins_of_predictors_have_no_effect():
    rng = np.random.default_rng(4)
    words: dict[str, np.ndarray] = {"document": np.repeat(np.arange(3), 20)}
    for name in ("length", "log_frequency", "stamp", "constant"):
        words |= {f"{name}{end}": rng.standard_normal(60) for end in ("", "_before")}
        if name == "constant":
            words |= {f"{name}{end}": np.full(60, 0.1) for end in ("", "_before")}
    words["time"] = 300 + 40 * words["stamp"] + rng.standard_normal(60)
    names = ["length", "log_frequency", "stamp", "constant"]
    expected = log_likelihoods(words, names)
    np.testing.assert_allclose(expected, log_likelihoods(words, names[:-1]), atol=1e-9)
    assert expected.mean() > log_likelihoods(words, names[:2]).mean() + 2
    for scale, origin in ((1e3, 1.6e9), (1e-9, 0.0), (-1.0, -1e6)):
        changed = dict(words)
        for name in ("stamp", "stamp_before", "constant"):
            changed[name] = origin + scale * words[name]
        np.testing.assert_allclose(log_likelihoods(changed, names), expected, atol=1e-9)


def test_rows_of_several_words_are_summed_and_follow_their_previous_row(monkeypatch, caplog):
    """By hand: the rows "b", "aa b.", "unheard", "b", "b", "b", "b" of a story."""
    words = ("<START>", "<END>", "<UNKNOWN>", "aa", "b", ".")
    vocabulary = Vocabulary(words, (0, 0, 0, 2, 5, 13))
    texts = [["b", "aa", "b", "."], ["unheard", "b"], ["b", "b", "b"]]
    rows = [[0, 1, 1, 1], [2, 3], [4, 5, 6]]
    cells = [("", 1), (9, 2), (9, 3), (9, 4), ("", 5), (9, ""), (9, 7)]
    scores = [
        SentenceScore(
            [*words, "<END>"],
            [*(word != "unheard" for word in words), True],
            {
                "surprisal": [1.0 + n for n in range(len(words) + 1)],
                "surprisal_other_context": [40.0 + n for n in range(len(words) + 1)],
                "surprisal_other_context_sd": [0.0] * (len(words) + 1),
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
            DocumentScore(document.id, scores, columns(document)) for document in documents
        ),
    )
    story, other = (
        Document(
            name, texts, rows=[{"n": name, "time": t, "x": x} for t, x in cells], row_of_word=rows
        )
        for name in "st"
    )
    other = other._replace(sentences=[["B", *texts[0][1:]], *texts[1:]])
    stories = read_stories([story, other], ["n"], None, ["time", "x"])
    table = word_table({"a": lm}, stories, ["x"])
    assert table["known"].tolist() == [1, 1, 0, 1, 1, 1, 1] * 2
    kept = fitted(table)
    assert kept.pop("fitted").tolist() == kept.pop("known").tolist() == [1, 1]
    # Rows 3 and 4 are OOV or follow an OOV word, row 5 has no time, and 6 and 7 have no x, or the
    # row before has none.
    places = {name: kept.pop(name).tolist() for name in list(kept)[:5]}
    assert places == {
        "document": ["s", "t"],
        "sentence": [1, 1],
        "position": [2, 2],
        "word": ["aa b ."] * 2,
        "time": [9, 9],
    }
    logs = np.log([2 / 20, 5 / 20])
    expected = {"length": [4, 1], "log_frequency": logs, "input_x": [2, 1]}
    expected |= {"surprisal:a": [2 + 3 + 4, 1], "surprisal_no_context:a": [11 + 12 + 13, 10]}
    expected |= {"surprisal_other_context:a": [41 + 42 + 43, 40]}
    expected |= {"entropy:a": [21, 20], "divergence:a": [31 + 32 + 33, 30]}
    assert set(kept) == {f"{name}{end}" for name in expected for end in ("", "_before")}
    for name, values in expected.items():
        np.testing.assert_allclose([kept[name][0], kept[f"{name}_before"][0]], values)


STORY = "".join(f"a,w{n + 1},3\n" for n in range(20))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("a,w1 w2,3\nb,w1,fast\n", "row 2 of --input: could not convert string to float: 'fast'"),
        (STORY, "the reading times of 17 words in 1 stories are too few for linear"),
        (
            STORY.replace(",3", ",0") + STORY.replace("a,", "b,").replace(",3", ",0"),
            "the reading times in the column 'time' are equal in all stories other than 'a', so",
        ),
        (
            "".join(f"a,unheard{n},3\n" for n in range(9))
            + "".join(STORY.splitlines(True)[:9]).replace("a,", "b,"),
            "the reading times of 8 words in 1 stories",
        ),
    ],
)
def test_wrong_tables_are_refused(space, tmp_path, rows, message):
    table = tmp_path / "bad.csv"
    table.write_text(f"story,text,time\n{rows}")
    done = launch("reading_times", f"--workdir={space.run}", f"--input={table}", code=2)
    # Notes of the format stand before the error.
    assert message in done.stderr.splitlines()[-1]


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


def of_subjects(condition: str = "x") -> list[str]:
    """Rows of two stories, each read by two subjects; s2 lacks the times of some words."""
    rng = np.random.default_rng(5)
    rows = []
    for story in "ab":
        words = [f"w{n}" for n in rng.integers(1, 60, 30)]
        for subject in ("s1", "s2"):
            for n, word in enumerate(words):
                time = "" if subject == "s2" and n % 7 == 3 else f"{rng.integers(200, 500)}"
                rows.append(f"{story},{subject},{condition},{word},{time}\n")
    return ["story,subject,condition,text,time\n", *rows]


def test_times_of_subjects_are_averaged_and_all_rows_written(space, tmp_path):
    rows = of_subjects()
    table, lines, means = tmp_path / "t.csv", tmp_path / "lines.tsv", tmp_path / "means.csv"
    table.write_text("".join(rows))
    flags = ["reading_times", f"--workdir={space.run}", "--subject=subject"]
    printed = launch(*flags, f"--input={table}", f"--words={lines}", "--metrics=-", quiet=False)
    with lines.open(newline="") as file:
        written = list(csv.DictReader(file, delimiter="\t"))
    cells = [row.strip("\n").split(",") for row in rows[1:]]
    assert [line["input_subject"] for line in written] == [row[1] for row in cells]
    assert [line["input_time"] for line in written] == [row[4] for row in cells]
    # The means, and the gains of a table that has them.
    expected = []
    for n, row in enumerate(cells):
        other = cells[n + 30] if row[1] == "s1" else cells[n - 30]
        expected.append(np.mean([float(time) for time in (row[4], other[4]) if time]))
    assert [float(line["time"]) for line in written] == pytest.approx(expected)
    of_one = [
        f"{row[0]},{row[3]},{mean}\n"
        for row, mean in zip(cells, expected, strict=True)
        if row[1] == "s1"
    ]
    means.write_text("story,text,time\n" + "".join(of_one))
    options = ["reading_times", f"--workdir={space.run}", f"--input={means}", "--metrics=-"]
    again = json.loads(launch(*options, quiet=False).stdout)
    assert json.loads(printed.stdout)["gains"] == again["gains"]


def test_several_texts_in_a_story_are_refused_with_the_column_that_is_missing(space, tmp_path):
    table = tmp_path / "t.csv"

    def message(rows: list[str], *flags: str) -> str:
        table.write_text("".join(rows))
        options = ["reading_times", f"--workdir={space.run}", f"--input={table}", *flags]
        return launch(*options, code=2).stderr.splitlines()[-1]

    rows = of_subjects()
    assert "add --subject=subject if subjects read one text" in message(rows)
    shortened = [row for n, row in enumerate(rows) if n != 40]
    assert "has its text several times" in message(shortened)
    assert "row 40 of --input: word 10 of the story 'a' is" in message(
        shortened, "--subject=subject"
    )
    assert "write the same words for every subject" in message(shortened, "--subject=subject")
    # One word after another, each by all subjects.
    by_word = [row for pair in zip(rows[1:31], rows[31:61], strict=True) for row in pair]
    assert "the column 'subject' tells the copies apart" in message([rows[0], *by_word])
    # Two conditions of one story that differ in every fourth word.
    first = [row for row in rows[1:] if ",s1," in row]
    other = [row.replace(",x,", f",y,{'un' * (n % 4 == 0)}") for n, row in enumerate(first)]
    both = sorted([*first, *other], key=lambda row: row.split(",")[:3:2])
    assert "the column 'condition' tells the copies apart" in message([rows[0], *both])


def test_a_story_with_a_refrain_is_warned_of_and_read(space, tmp_path, caplog):
    table = tmp_path / "t.csv"
    words = [
        f"w{n}"
        for n in (
            1,
            2,
            3,
            4,
            5,
            6,
            7,
            8,
            9,
            14,
            15,
            1,
            2,
            3,
            4,
            10,
            11,
            12,
            13,
            16,
            17,
            1,
            2,
            3,
            4,
            18,
        )
    ]
    rows = [
        f"{story},{n // 10},{word},{300 + 7 * n % 50}\n"
        for story in "ab"
        for n, word in enumerate(words)
    ]
    table.write_text("".join(["story,sentence,text,time\n", *rows]))
    done = launch("reading_times", f"--workdir={space.run}", f"--input={table}", quiet=False)
    warning = "warning: the story 'a' repeats much of its text; if it has several texts"
    assert warning in done.stderr
    # Copies that no column tells apart.
    table.write_text(f"story,text,time\n{STORY}{STORY}")
    flags = [f"--workdir={space.run}", f"--input={table}"]
    assert warning in launch("reading_times", *flags, code=2).stderr
