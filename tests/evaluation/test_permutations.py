"""Shuffled sentences, against all orders of their kind listed by loops."""

import dataclasses
import itertools

import numpy as np
import pytest

from dclm_jax.evaluation.permutations import Moves, Shuffle, first_moved, numbered

PERMUTATION, SWAP = Shuffle(), Shuffle(swap=True)

TEXTS = ["abcde", "aabcc", "abab", "ababab", "abcabcab", "aaab", "abcdefghi", "aaaa"]


def document(text):
    return [np.array([ord(letter)]) for letter in text]


def reordered(text, order):
    return "".join(text[i] for i in order)


def of_blocks(text, size):
    blocks = [text[first : first + size] for first in range(0, len(text), size)]
    return {"".join(order) for order in itertools.permutations(blocks)} - {text}


def of_swaps(text):
    return {
        text[:first] + text[first + 1] + text[first] + text[first + 2 :]
        for first in range(len(text) - 1)
    } - {text}


@pytest.mark.parametrize("fix_first", [0, 2])
@pytest.mark.parametrize(
    ("shuffle", "listed"),
    [
        (PERMUTATION, lambda text: of_blocks(text, 1)),
        (Shuffle(block=2), lambda text: of_blocks(text, 2)),
        (Shuffle(block=4), lambda text: of_blocks(text, 4)),
        (SWAP, of_swaps),
    ],
)
def test_every_order_of_a_kind_occurs_and_no_other(shuffle, listed, fix_first):
    shuffle = dataclasses.replace(shuffle, fix_first=fix_first)
    for text in TEXTS:
        head, tail = text[:fix_first], text[fix_first:]
        if not shuffle.fits(document(text)) or len(tail) > 7 and shuffle.name == "permutations":
            continue
        expected = {head + rest for rest in listed(tail)}
        orders = shuffle.draw(document(text), 40 * max(1, len(expected)), np.random.default_rng(0))
        # Where no order makes another text, all are the document.
        assert {reordered(text, order) for order in orders} == (expected or {text})
        assert shuffle.changes(document(text)) == bool(expected)


def test_equal_sentences_have_the_number_of_the_first():
    assert numbered(document("abacb")).tolist() == [0, 1, 0, 3, 1]
    assert numbered([]).tolist() == []


@pytest.mark.parametrize(
    ("shuffle", "text", "kinds"),
    [
        (Shuffle(block=2), "abcdef", 5),
        (SWAP, "abcdef", 5),
        (PERMUTATION, "abc", 5),
        (PERMUTATION, "abab", 5),
        (Shuffle(fix_first=1), "abcd", 5),
    ],
)
def test_orders_are_drawn_alike_often(shuffle, text, kinds):
    orders = shuffle.draw(document(text), 5000, np.random.default_rng(0))
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(counts) == kinds and abs(counts - 1000).max() < 120


def test_the_shortest_documents_that_can_be_shuffled():
    shuffles = (PERMUTATION, SWAP, Shuffle(block=4), Shuffle(block=8, fix_first=2))
    fits = [
        [count for count in range(12) if shuffle.fits(document("a" * count))][0]
        for shuffle in shuffles
    ]
    assert fits == [2, 2, 5, 11]


@pytest.mark.parametrize("fix_first", [0, 2])
def test_moves_put_every_sentence_at_every_position(fix_first):
    text = "abcde"
    moves = Moves(len(text), fix_first)
    expected = [
        (text[:i] + text[i + 1 :])[:j] + text[i] + (text[:i] + text[i + 1 :])[j:]
        for i in range(fix_first, len(text))
        for j in range(fix_first, len(text))
    ]
    assert [reordered(text, order) for order in moves[:]] == expected
    assert len(moves) == len(expected)
    assert [reordered(text, order) for order in moves[3:7]] == expected[3:7]


@pytest.mark.parametrize("text", ["abcde", "aabc", "aaab", "abab", "ab"])
def test_the_first_sentence_moves_to_all_positions_that_make_another_text(text):
    listed = {text[1:position] + text[0] + text[position:] for position in range(2, len(text) + 1)}
    listed -= {text}
    orders = first_moved(document(text), 99, np.random.default_rng(0))
    assert {reordered(text, order) for order in orders} == listed
    few = first_moved(document(text), 1, np.random.default_rng(1))
    assert {reordered(text, order) for order in few} <= listed and len(few) == 1
