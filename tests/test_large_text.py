"""The text that measurements on large corpora use."""

import itertools

from configs.large_text import repetitions

DOCUMENTS = [[["a", "b"], ["c"]], [["d"] * 200]]


def test_documents_are_repeated_with_new_words_until_there_are_enough():
    text = "".join(repetitions(DOCUMENTS, 1000))
    documents = text.removesuffix("\n\n").split("\n\n")
    assert documents[:2] == ["a b\nc", " ".join(["d"] * 200)]
    assert 1000 <= len(text.split()) < 1000 + 203
    long = documents[1::2]
    assert all(first != second for first, second in itertools.combinations(long, 2))
    assert {word.rstrip("0123456789") for word in text.split()} == set("abcd")
