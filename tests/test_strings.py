"""Strings that continue strings, against every target's distribution by numpy loops; text that
models generate from inside a sentence."""

import functools

import jax
import numpy as np
import pytest

from dclm_jax import strings
from dclm_jax.data.corpus import TrainingText
from dclm_jax.data.documents import TextOptions
from dclm_jax.data.vocabulary import END_TOKEN
from dclm_jax.errors import InputError
from tests import oracles
from tests.exhaustive import also
from tests.models.support import random_params, small_model
from tests.support import changed
from tests.test_read_document import WORDS, language_model

LINES, RAW = TextOptions(), TextOptions(format="prose", lowercase=True)
END, UNKNOWN = WORDS.index(END_TOKEN), WORDS.index("<UNKNOWN>")
Target = tuple[int, int]


@functools.cache
def model(name: str, options: TextOptions | None = LINES):
    return changed(language_model(name), text=TrainingText(options))


@functools.cache
def varied(options: TextOptions):
    """A model whose likeliest words vary, and with them the lengths of sentences."""
    small = small_model("ccdclm")
    params = jax.tree.map(lambda leaf: 8 * leaf, random_params(small, seed=11))
    return changed(model("ccdclm", options), params=params)


def distribution(lm, document: list[list[int]], target: Target) -> np.ndarray:
    """-log P of every word and of END at a position of a sentence, each read as the last word of a
    document of its own."""
    plain, (sentence, position) = jax.tree.map(np.asarray, lm.params), target
    earlier, words = document[:sentence], document[sentence][:position]
    read = functools.partial(oracles.read, lm.model, plain)
    nll = [read([*earlier, [*words, word]]).nll[-1][position] for word in range(len(WORDS))]
    nll[END] = read([*earlier, words]).nll[-1][position]
    return np.array(nll)


def ids(words: str) -> list[int]:
    return [WORDS.index(word) if word in WORDS else UNKNOWN for word in words.split()]


# A context, its continuation, the sentences of both, and the targets of the continuation: from 0
# the sentence, and the position in it. The position after the last word is END.
CASES = [
    # Inside a sentence, which stays open, is ended by a line break, or by another sentence.
    (LINES, "the cat", " sat .", ["the cat sat ."], [(0, 2), (0, 3)]),
    (LINES, "the cat ", "sat .\n", ["the cat sat ."], [(0, 2), (0, 3), (0, 4)]),
    (LINES, "it slept .\nthe", " cat .\nit", ["it slept .", "the cat .", "it"],
     [(1, 1), (1, 2), (1, 3), (2, 0)]),
    # A context that has ended its sentence, or whose sentence the continuation ends.
    (LINES, "it slept .\n", "dogs bark", ["it slept .", "dogs bark"], [(1, 0), (1, 1)]),
    (LINES, "it slept .", "\ndogs bark", ["it slept .", "dogs bark"], [(0, 3), (1, 0), (1, 1)]),
    (LINES, "it slept .", "\n", ["it slept ."], [(0, 3)]),
    # Blank lines and dividers end no document.
    (LINES, "it slept .\n\n= 1\n\n", "dogs", ["it slept .", "= 1", "dogs"], [(2, 0)]),
    (LINES, "", "it slept .\ndogs", ["it slept .", "dogs"],
     [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)]),
    (LINES, " ", "it", ["it"], [(0, 0)]),
    (LINES, "it slept", "", ["it slept"], []),
    (LINES, "it slept", " unheard .", ["it slept unheard ."], [(0, 2), (0, 3)]),
    # A word that the continuation changes is its own.
    (LINES, "the ca", "t sat", ["the cat sat"], [(0, 1), (0, 2)]),
    # Raw text, whose punctuation ends sentences.
    (RAW, "The cat", " sat.", ["the cat sat ."], [(0, 2), (0, 3), (0, 4)]),
    (RAW, "The cat sat", ". It", ["the cat sat .", "it"], [(0, 3), (0, 4), (1, 0)]),
    (RAW, "The cat sat.", " It slept", ["the cat sat .", "it slept"], [(1, 0), (1, 1)]),
    (RAW, "The cat\nsat", "\nit", ["the cat sat it"], [(0, 3)]),
    (RAW, "The cat sat\n\n", "It", ["the cat sat", "it"], [(1, 0)]),
    (RAW, "The cat sat", "\n\nIt", ["the cat sat", "it"], [(0, 3), (1, 0)]),
    (RAW, "", "It slept. It", ["it slept .", "it"], [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)]),
]  # fmt: skip


@pytest.mark.parametrize("name", ["ccdclm", *also(["rnnlm", "adclm", "codclm", "rlm_bow_lf"])])
def test_continuations_are_scored_as_by_brute_force(name):
    for batch_size in (1, 64):
        scores = [
            score
            for options in (LINES, RAW)
            for score in strings.score(
                changed(model(name, options), batch_size=batch_size),
                [case[1:3] for case in CASES if case[0] == options],
            )
        ]
        for (_, *strings_of_case, sentences, targets), score in zip(CASES, scores, strict=True):
            document = list(map(ids, sentences))
            expected = [[*document[s], END][n] for s, n in targets]
            assert score.ids == tuple(expected), strings_of_case
            nll = [distribution(model(name), document, target) for target in targets]
            log_prob = -sum(nats[word] for nats, word in zip(nll, expected, strict=True))
            assert score.log_prob == pytest.approx(log_prob, rel=1e-5, abs=1e-6)
            best = [int(np.argmin(nats)) for nats in nll]
            assert score.is_greedy == (best == expected and UNKNOWN not in expected)


@pytest.mark.parametrize("name", ["ccdclm", *also(["rnnlm", "adclm", "rlm_bow_lf"])])
def test_the_argmax_of_every_target_and_nothing_else_is_greedy(name):
    lm, before = model(name), [ids("the cat sat ."), ids("it")]
    best: list[int] = []
    while len(best) < 4:
        document = [before[0], [*before[1], *best]]
        nll = distribution(lm, document, (1, 1 + len(best)))
        # A word with the highest probability that can be written.
        best.append(int(np.argmin(nll)))
        if best[-1] in (0, END, UNKNOWN):
            break
    words = [WORDS[word] for word in best if word > UNKNOWN]
    context = "the cat sat .\nit"
    asked = [
        " ".join(["", *words[:n]]) + other for n in range(len(words)) for other in ("", " bark")
    ]
    for text, score in zip(
        asked, strings.score(lm, [(context, text) for text in asked]), strict=True
    ):
        assert score.is_greedy == (ids(text) == best[: len(ids(text))])
    (end,) = strings.score(lm, [(context + " " + " ".join(words), "\n")])
    assert end.is_greedy == (best[len(words) :] == [END])


def test_a_word_outside_the_vocabulary_is_not_greedy_where_unknown_is_likeliest():
    small, lm = small_model("rnnlm"), model("rnnlm")
    params = jax.tree.map(np.array, random_params(small))
    params["output"]["bias"][UNKNOWN] = 50
    likeliest = changed(lm, model=small, params=params)
    (score,) = strings.score(likeliest, [("the", " unheard")])
    assert score.log_prob == pytest.approx(0, abs=1e-6) and not score.is_greedy


@pytest.mark.parametrize("options", [LINES, RAW])
def test_log_probabilities_of_parts_add_up_to_the_score_of_the_whole(options):
    lm = model("ccdclm", options)
    text = "The cat sat.\n\nIt slept.\n" if options == RAW else "the cat sat .\nit slept .\n"
    (whole,) = lm.score([strings.sentences_of(lm, text)])
    for at in range(len(text)):
        if not text[at - 1 : at + 1].isalpha():
            parts = strings.score(lm, [("", text[:at]), (text[:at], text[at:])])
            total = sum(part.log_prob for part in parts)
            assert total == pytest.approx(whole.log_prob, rel=1e-5), text[:at]


def test_models_without_next_words_are_refused():
    with pytest.raises(InputError, match="predicts bags of words and has no dis"):
        strings.score(model("rnnslm"), [("the", " cat")])
