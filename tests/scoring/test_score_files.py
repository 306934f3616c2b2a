"""Files of scores: the note about OOV words of stimuli."""

import json
import logging
import math

import pytest

from dclm_jax.errors import InputError
from dclm_jax.scoring.distributions import (
    OTHER_COLUMNS,
    WORD_MEASURES,
    score_columns,
)
from dclm_jax.scoring.score_files import (
    _MEASURES,
    RESULT_COLUMNS,
    Layout,
    group_lines,
    in_bits,
    json_lines,
    noted_oov,
)
from dclm_jax.scoring.score_types import DocumentScore, SentenceScore


def score_of(name: str, known: list[list[bool]], *, is_stimulus: bool = True) -> DocumentScore:
    """The score of a document whose words are known or not; END, the last target, is known."""
    sentences = [SentenceScore(["w"] * (1 + len(words)), [*words, True], {}) for words in known]
    cells: list[list[str | None]] = [["1"] * (1 + len(words)) for words in known]
    return DocumentScore(name, sentences, {"item": cells} if is_stimulus else {})


def test_the_note_counts_oov_words_and_the_stimuli_with_them(caplog):
    scores = [
        score_of("a", [[False, True], [False]]),
        score_of("b", [[True, True]]),
        score_of("c", [[False]]),
        score_of("text", [[False] * 9], is_stimulus=False),
    ]
    with caplog.at_level(logging.INFO):
        assert list(noted_oov(scores)) == scores
    (message,) = caplog.messages
    assert message.startswith("OOV words: 3 of 6 words, in 2 of 3 documents; ")
    caplog.clear()
    with caplog.at_level(logging.INFO):
        assert list(noted_oov(scores[1:2])) == scores[1:2]
    assert not caplog.messages


def regions() -> DocumentScore:
    """Two regions over two sentences; "b" has an OOV word, and END of the first sentence."""
    cells = [["a", "b", None], ["b", "c", None]]
    measures = [
        {"surprisal": [1.0, 2.0, 8.0], "rank": [1.0, 7.0, 1.0], "entropy": [0.5, 0.25, 1.0]},
        {"surprisal": [3.0, 4.0, 9.0], "rank": [2.0, 3.0, 1.0], "entropy": [0.75, 1.5, 1.0]},
    ]
    known = [[True, False, True], [True, True, True]]
    sentences = [
        SentenceScore(["w", "w", "<END>"], mask, values)
        for mask, values in zip(known, measures, strict=True)
    ]
    return DocumentScore("d", sentences, {"region": cells, "item": [["1"] * 3] * 2})


def test_words_are_summed_by_region(caplog):
    layout = Layout(["surprisal", "rank", "entropy"], None)
    header, *rows = group_lines([regions()], layout, ["item", "region"])
    columns = ["document", "item", "region", "words", "oov", "surprisal", "rank", "entropy"]
    assert header.rstrip("\n").split("\t") == columns
    assert [row.rstrip("\n").split("\t") for row in rows] == [
        ["d", "1", "a", "1", "0", "1.000000", "1", "0.500000"],
        ["d", "1", "b", "2", "1", "5.000000", "7", "0.250000"],
        ["d", "1", "c", "1", "0", "4.000000", "3", "1.500000"],
    ]
    with pytest.raises(InputError, match="document 'd': there is no column 'verb'; choose from"):
        list(group_lines([regions()], layout, ["verb"]))
    caplog.set_level(logging.INFO)
    list(noted_oov([regions(), score_of("e", [[True]])], ["item", "region"]))
    assert caplog.messages[-1] == "documents with OOV words by region: b 1"


def test_a_region_has_the_sum_over_words_in_other_contexts_and_no_standard_deviation():
    measures = {
        "surprisal": [1.0, 2.0, 4.0],
        "surprisal_other_context": [1.5, 2.25, 4.0],
        "surprisal_other_context_sd": [0.5, 0.75, 1.0],
    }
    sentence = SentenceScore(["w", "w", "<END>"], [True] * 3, measures)
    score = DocumentScore("d", [sentence], {"region": [["a", "a", None]]})
    header, row = group_lines([score], Layout(list(measures), None), ["region"])
    columns = ["document", "region", "words", "oov", "surprisal", "surprisal_other_context"]
    assert header.split() == columns
    assert row.split() == ["d", "a", "2", "0", "3.000000", "3.750000"]


def test_bits_are_nats_over_log_2():
    (score,) = in_bits([regions()])
    assert score.log_prob == pytest.approx(-27 / math.log(2))
    assert score.sentences[1].measures["rank"] == [2.0, 3.0, 1.0]
    assert score.sentences[0].measures["entropy"] == [x / math.log(2) for x in (0.5, 0.25, 1.0)]
    (line,) = json_lines([score], Layout(["surprisal"], None, "bits"))
    assert json.loads(line)["unit"] == "bits" and json.loads(line)["log_prob"] == score.log_prob


def test_every_measure_has_a_form_and_a_name_that_no_column_of_the_input_has():
    assert {*WORD_MEASURES, *OTHER_COLUMNS} == _MEASURES.keys()
    names = score_columns(WORD_MEASURES, no_context_too=True, other_contexts=True)
    assert {*names} <= {*RESULT_COLUMNS}


def test_columns_are_in_one_order():
    names = score_columns(["divergence", "rank", "surprisal"], no_context_too=True)
    assert names == ["surprisal", "surprisal_no_context", "divergence", "rank", "rank_no_context"]
    others = "surprisal_other_context surprisal_other_context_sd".split()
    names = score_columns(no_context_too=True, other_contexts=True)
    assert names == ["surprisal", *others, "surprisal_no_context"]
    assert score_columns(["entropy"], no_context_too=False) == ["surprisal", "entropy"]


def test_a_column_of_groups_may_not_have_the_name_of_a_result():
    with pytest.raises(InputError, match="the column 'oov' of the input has the name of a column"):
        list(group_lines([regions()], Layout(["surprisal"], None), ["oov"]))
