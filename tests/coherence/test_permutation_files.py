"""Permutations in files, and what does not match."""

import re

import numpy as np
import pytest

from dclm_jax.coherence.permutation_files import open_permutations
from dclm_jax.data.readers import TextReader
from dclm_jax.data.vocabulary import SPECIAL_TOKENS, Vocabulary
from dclm_jax.errors import InputError

A, B = ["a b", "c", "d e f"], ["x", "y", "x", "z"]
WORDS = "a b c d e f x y z".split()
VOCABULARY = Vocabulary((*SPECIAL_TOKENS, *WORDS), (0,) * (3 + len(WORDS)))


def folder(path, texts):
    for name, sentences in texts.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text("".join(f"{sentence}\n" for sentence in sentences))
    return str(path)


def read(path):
    return open_permutations(VOCABULARY, path, TextReader())


def permuted(sentences, *order):
    return [sentences[i] for i in order]


def test_documents_and_permutations_of_them_in_one_folder(tmp_path):
    """Their names hold dots, hyphens and numbers of their own."""
    texts = {
        "apws60508.0041-2-2-0.perm-1": A,
        "apws60508.0041-2-2-0.perm-2": permuted(A, 2, 0, 1),
        "apws60508.0041-2-2-0.perm-10": permuted(A, 1, 0, 2),
        "ntsb-1.perm-1.txt": B,
        "ntsb-1.perm-2.txt": permuted(B, 3, 2, 1, 0),
    }
    dataset, (first, second) = read(folder(tmp_path / "all", texts))
    assert [" ".join(VOCABULARY.decode(ids)) for ids in dataset.sentences[0]] == A
    # In the order of the files' names.
    np.testing.assert_array_equal(first, [[1, 0, 2], [2, 0, 1]])
    # Of equal sentences the first comes first.
    np.testing.assert_array_equal(second, [[3, 0, 1, 2]])


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"a.perm-2": ["a b", "c", "g"]}, "a.perm-2: sentence 3, 'g', is not in its document;"),
        ({"a.perm-2": ["c", "c", "a b"]}, "a.perm-2: sentence 2, 'c', is not in its document;"),
        ({"a.perm-2": A[1:]}, "a.perm-2: has 2 of 3 sentences of its document; add"),
        ({"a.perm-2": A, "b.perm-2": A}, "b.perm-2: has no document b.perm-1 in FOLDER; add it"),
        ({"a.perm-2.txt": A}, "a.perm-2.txt: has no document a.perm-1.txt in FOLDER; add it"),
        ({"a.perm-2": A, "readme": A}, "readme: is not named as a permutation; rename it as NAME"),
        ({"a.perm-2": [*A, "", *A]}, "a.perm-2: has 2 documents; expected one per file"),
        ({"a.perm-2": A, "b.perm-1": B}, "b.perm-1: has no permutation; add one"),
    ],
)
def test_what_does_not_match_is_named(tmp_path, texts, message):
    permuted_folder = folder(tmp_path, {"a.perm-1": A, **texts})
    message = message.replace("FOLDER", permuted_folder)
    with pytest.raises(InputError, match=re.escape(f"{permuted_folder}/{message}")):
        read(permuted_folder)


def test_a_folder_is_required(tmp_path):
    path = folder(tmp_path, {"a.perm-1": A})
    for none in (f"{path}/nowhere", f"{path}/a.perm-1"):
        with pytest.raises(InputError, match="is not a folder; expected a folder with"):
            read(none)
