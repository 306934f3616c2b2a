"""Output documents against input documents: by hand, by definition and from Lin's own example."""

import collections
import itertools

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU as SacreBleu

from dclm_jax.data.documents import Document, TextOptions
from dclm_jax.data.readers import read_documents
from dclm_jax.errors import InputError
from dclm_jax.metrics import reconstruction
from dclm_jax.metrics.reconstruction import (
    align,
    coherence_penalty,
    evaluate_files,
    rouge_w,
    summarize,
    weighted_lcs,
)

INPUT = """\
the/DT dog/NN chased/VBD the/DT cat/NN ./.
a/DT bird/NN sang/VBD a/DT song/NN ./.
the/DT farmer/NN opened/VBD the/DT door/NN ./.

A/DT cat/NN sat/VBD ./.
"""


def document(sentences, tags=None):
    return Document("", [list(words) for words in sentences], tags)


def tagged(sentences):
    """A document of words that say their own tags: dog/NN."""
    return document(sentences, [[word.split("/")[1] for word in words] for words in sentences])


def measure(output, reference):
    return reconstruction.measure_output(tagged(output), tagged(reference))


def counters(*sentences):
    return [collections.Counter(sentence.split()) for sentence in sentences]


def wlcs_by_recursion(x, y, exponent):
    """The recurrence of Lin (2004), 3.3, by its definition."""

    def cell(i, j):
        if not i or not j:
            return 0.0, 0
        if x[i - 1] == y[j - 1]:
            value, run = cell(i - 1, j - 1)
            return value + (run + 1) ** exponent - run**exponent, run + 1
        return max(cell(i - 1, j)[0], cell(i, j - 1)[0]), 0

    return cell(len(x), len(y))[0]


def test_the_worked_example_of_lin():
    # Lin (2004), 3.3: f(k) = k^2; both have an LCS of 4 words, one of them in a row.
    reference = [*"ABCDEFG"]
    assert weighted_lcs(reference, [*"ABCDHIK"], 2) == 16
    assert weighted_lcs(reference, [*"AHBKCID"], 2) == 4
    for output, expected in (("ABCDHIK", 0.571), ("AHBKCID", 0.286)):
        rouge = rouge_w([*output], reference, 2)
        assert rouge.recall == pytest.approx(100 * expected, abs=0.05)
        assert rouge.f1 == pytest.approx(rouge.recall)


def test_rouge_w_by_hand():
    # "b c" in a row and "e": 2^1.2 + 1, of 5 words in the reference and 4 in the output.
    rouge = rouge_w([*"bcxe"], [*"abcde"])
    length = (2**1.2 + 1) ** (1 / 1.2)
    recall, precision = length / 5, length / 4
    assert rouge.recall == pytest.approx(100 * recall)
    assert rouge.f1 == pytest.approx(100 * 2 * recall * precision / (recall + precision))
    assert rouge_w([*"abc"], [*"abc"]) == pytest.approx((100, 100))
    assert rouge_w([*"xyz"], [*"abc"]) == rouge_w([], ["a"]) == (0, 0)


def test_weighted_lcs_is_that_of_the_recurrence():
    rng = np.random.default_rng(0)
    for _ in range(40):
        x, y = (["abc"[k] for k in rng.integers(0, 3, rng.integers(0, 7))] for _ in range(2))
        for exponent in (1.0, 1.2, 2.0):
            expected = wlcs_by_recursion(x, y, exponent)
            assert weighted_lcs(x, y, exponent) == pytest.approx(expected, rel=1e-12)


def test_rouge_n_counts_matches_as_often_as_both_have_them():
    output = [["a/X", "b/X", "a/X", "a/X"], ["c/X"]]
    reference = [["a/X", "b/X"], ["a/X", "c/X", "d/X", "e/X"]]
    measures = measure(output, reference)
    # a twice, b, c: 4 of 6 and 4 of 5.
    assert measures.rouge_1 == pytest.approx((100 * 4 / 6, 100 * 8 / 11))
    # "a b", "b a" and, over the end of a sentence, "a c": 3 of 5 and 3 of 4.
    assert measures.rouge_2 == pytest.approx((100 * 3 / 5, 100 * 6 / 9))
    assert (measures.bleu_statistics[:2].tolist(), measures.sentences) == ([5, 6], 2)
    # Words are taken as they are, whatever their case and signs.
    assert measure([["U.S./X", "?!/X"]], [["u.s./X", "?!/X"]]).rouge_1.recall == 50


def test_bleu_is_that_of_the_corpus():
    rng = np.random.default_rng(1)
    outputs, inputs = (
        [[[f"{w}/X" for w in rng.integers(0, 4, 8)] for _ in range(2)] for _ in range(6)]
        for _ in range(2)
    )
    summary = summarize([measure(a, b) for a, b in zip(outputs, inputs, strict=True)])
    lines = [
        [" ".join(itertools.chain(*document)) for document in text] for text in (outputs, inputs)
    ]
    expected = SacreBleu(tokenize="none").corpus_score(lines[0], [lines[1]]).score
    assert summary["bleu"] == pytest.approx(expected, rel=1e-12)


def test_sentences_are_aligned_by_f1():
    inputs = counters("dog cat", "bird song song", "farmer door", "dog cat farmer")
    # F1: 2/2 with the first; of "song" 2/4, and "song song" 4/5; of "farmer" 2/3 against 2/4.
    outputs = counters("dog cat", "song", "song song", "farmer")
    positions, f1 = align(outputs, inputs)
    assert positions == [0, 1, 1, 2]
    assert f1 == pytest.approx([1, 2 / 4, 4 / 5, 2 / 3])


def test_of_equals_the_nearest_is_taken_and_the_earlier_of_two():
    inputs = counters("x", "a", "y", "a", "z")
    # From 2 both are as near; 3 has it beside; what is not there stays where it is.
    assert align(counters("a", "q", "a", "q", "a", "q", ""), inputs) == (
        [1, 1, 1, 3, 3, 4, 4],
        [1, 0, 1, 0, 1, 0, 0],
    )


def test_coherence_penalty_is_equation_18():
    # Reversed: |1 - (-1)|, |2 - (-2)|, |1 - (-1)|; all to one: |1 - 0|, |2 - 0|, |1 - 0|.
    assert coherence_penalty([2, 1, 0]) == pytest.approx((2 + 4 + 2) / 3)
    assert coherence_penalty([1, 1, 1]) == pytest.approx(4 / 3)
    assert coherence_penalty([3, 4, 5, 6]) == 0
    assert coherence_penalty([5]) is coherence_penalty([]) is None
    rng = np.random.default_rng(2)
    for _ in range(20):
        positions = rng.integers(0, 9, rng.integers(2, 9)).tolist()
        number = len(positions)
        total = sum(
            abs((j - i) - (positions[j - 1] - positions[i - 1]))
            for i in range(1, number)
            for j in range(i + 1, number + 1)
        )
        assert coherence_penalty(positions) == pytest.approx(2 / (number * (number - 1)) * total)


def test_verbs_and_nouns_are_features():
    words = "dog/NN dogs/NNS Rex/NNP run/VB ran/VBD the/DT can/MD UNK/UNC ././."
    (counts,) = reconstruction.content_words(tagged([words.split()]))
    assert sorted(counts) == ["Rex/NNP", "dog/NN", "dogs/NNS", "ran/VBD", "run/VB"]


def test_the_measures_of_a_document_by_hand():
    reference = [["dog/NN", "ran/VBD"], ["cat/NN", "sat/VBD"], ["bird/NN", "sang/VBD"]]
    output = [["bird/NN", "sang/VBD"], ["the/DT", "end/X"], ["dog/NN", "sat/VBD"]]
    measures = measure(output, reference)
    # Aligned with 2, 1 (none, so the nearest) and 1 (as close as 0, and nearer): |1 + 1|, |2 + 1|,
    # |1 - 0|.
    assert measures.alignment == (pytest.approx((2 + 3 + 1) / 3), 1)
    assert measures.rouge_1 == pytest.approx((100 * 4 / 6, 100 * 4 / 6))


def test_means_are_over_documents_and_l_over_those_that_have_it():
    reference = [["dog/NN", "ran/VBD"], ["cat/NN", "sat/VBD"]]
    swapped = [reference[1], reference[0]]
    summary = summarize(
        [measure(output, reference) for output in (swapped, [["dog/NN", "ran/VBD"]], [])]
    )
    assert (summary["documents"], summary["coherence_documents"], summary["sentences"]) == (3, 1, 3)
    assert summary["coherence"] == 2
    assert summary["rouge_1"]["recall"] == pytest.approx(100 * (1 + 1 / 2 + 0) / 3)
    assert summary["rouge_2"]["recall"] == pytest.approx(100 * (2 / 3 + 1 / 3 + 0) / 3)
    assert (summary["words"], summary["input_words"]) == (6, 12)
    alone = summarize([measure([], reference)])
    assert (alone["bleu"], alone["coherence"]) == (0, None)
    assert alone["rouge_1"] == {"recall": 0, "f1": 0}
    assert alone["coherence_documents"] == alone["unaligned"] == 0


def test_documents_without_tags_have_no_penalty():
    reference = tagged([["dog/NN", "ran/VBD"], ["cat/NN", "sat/VBD"]])
    swapped = tagged([["cat/NN", "sat/VBD"], ["dog/NN", "ran/VBD"]])
    without = document(swapped.sentences)
    for measures in (
        reconstruction.measure_output(without, reference),
        reconstruction.measure_output(swapped, document(reference.sentences)),
    ):
        assert measures[1:5] == reconstruction.measure_output(swapped, reference)[1:5]
        assert measures.alignment is None
        summary = summarize([measures])
        assert (summary["coherence"], summary["unaligned"]) == (None, None)
        table = reconstruction.reconstruction_table("a", summary)
        assert "no L without tags" in table.splitlines()[-1]
    # The share is of the sentences of documents with tags.
    unaligned = reconstruction.measure_output(tagged([["a/X"], ["dog/NN"]]), reference)
    summary = summarize([unaligned, reconstruction.measure_output(without, reference)])
    assert (summary["unaligned"], summary["sentences"]) == (0.5, 4)


def test_files_of_documents(tmp_path):
    inputs, outputs = tmp_path / "in.txt", tmp_path / "out.txt"
    inputs.write_text(INPUT)
    outputs.write_text("a/DT bird/NN sang/VBD\nthe/DT dog/NN\n\nx/X\n")
    done = []
    measures = evaluate_files(outputs, inputs, TextOptions("tagged"), on_document=done.append)
    assert done == [1, 2]
    output, reference = (
        document(sentences, tags)
        for _, sentences, tags, *_ in (
            next(read_documents(path, TextOptions("tagged"))) for path in (outputs, inputs)
        )
    )
    assert measures[0][1:] == reconstruction.measure_output(output, reference)[1:]
    assert measures[0].alignment == (2, 0)
    assert (measures[1].bleu_statistics[0], measures[1].alignment) == (1, (None, 1))
    # Without tags the tokens are words.
    plain = evaluate_files(inputs, inputs, TextOptions(lowercase=True))
    assert summarize(plain)["bleu"] == pytest.approx(100)
    assert [each.alignment for each in plain] == [None, None]


def test_files_that_do_not_correspond(tmp_path):
    inputs, outputs = tmp_path / "in.jsonl", tmp_path / "out.txt"
    inputs.write_text('{"sentences": ["a b"]}\n{"id": "x", "sentences": []}\n')
    outputs.write_text("a b\n")
    with pytest.raises(InputError, match="out.txt has 1 documents and .*in.jsonl has 2 docum"):
        evaluate_files(outputs, inputs)
    outputs.write_text("a b\n\nc\n")
    with pytest.raises(InputError, match="in.jsonl: x has no words; remove the document from"):
        evaluate_files(outputs, inputs)


def test_tables():
    reference = [["dog/NN", "ran/VBD"], ["cat/NN", "sat/VBD"]]
    copy, short = (summarize([measure(output, reference)]) for output in (reference, reference[:1]))
    lines = reconstruction.reconstruction_table("copy", copy).splitlines()
    assert lines[0].split() == [
        *("BLEU", "ROUGE-1", "F1", "ROUGE-2", "F1", "ROUGE-W", "F1", "L", "unaligned", "words")
    ]
    hundred = ["100.00"] * 7
    assert lines[2].split() == ["copy", *hundred, "0.000", "0.00%", "4"]
    note = "1 documents; L over 1 outputs of at least two sentences; inputs have 4 words"
    assert lines[3] == note
    row = reconstruction.reconstruction_table("short", short).splitlines()[2]
    assert row.split()[0::8] == ["short", "-"]
    assert short["rouge_1"]["f1"] == pytest.approx(100 * 2 / 3)
    assert copy["bleu"] == pytest.approx(100)
