"""Permutations in files: both layouts, and what does not match."""

import re

import numpy as np
import pytest

from dclm_jax.coherence.permutation_files import read_permutations
from dclm_jax.data.readers import read_documents
from dclm_jax.errors import InputError

A, B = ["a b", "c", "d e f"], ["x", "y", "x", "z"]


def folder(path, texts):
    for name, sentences in texts.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text("".join(f"{sentence}\n" for sentence in sentences))
    return str(path)


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
    first, second = read_permutations(read_documents, folder(tmp_path / "all", texts))
    assert [" ".join(words) for words in first.document.sentences] == A
    # In the order of the files' names.
    np.testing.assert_array_equal(first.orders, [[1, 0, 2], [2, 0, 1]])
    # Of equal sentences the first comes first.
    np.testing.assert_array_equal(second.orders, [[3, 0, 1, 2]])


@pytest.mark.parametrize(
    ("original", "names"),
    [
        ("wsj_0001.pos.text", ["wsj_0001.pos.text_1", "wsj_0001.pos.text_2"]),
        ("one.txt", ["one.perm-1.txt", "one.perm-2"]),
        ("sub/one", ["sub/one-1", "sub/one-2.txt"]),
        ("one-7", ["one-7-1", "one-7_2"]),
    ],
)
def test_permutations_belong_to_the_document_of_their_name(tmp_path, original, names):
    documents = folder(tmp_path / "documents", {original: A})
    shuffled = [permuted(A, 2, 1, 0), permuted(A, 0, 2, 1)]
    permutations = folder(tmp_path / "permuted", dict(zip(names, shuffled, strict=True)))
    (permuted_document,) = read_permutations(read_documents, permutations, documents)
    np.testing.assert_array_equal(permuted_document.orders, [[2, 1, 0], [0, 2, 1]])
    assert permuted_document.document.id == f"{original}:1"


@pytest.mark.parametrize(
    ("permutations", "message"),
    [
        ({"a-1": ["a b", "c", "g"]}, "a-1: sentence 3, 'g', is not in its document; correct it"),
        ({"a-1": ["c", "c", "a b"]}, "a-1: sentence 2, 'c', is not in its document; correct it"),
        ({"a-1": A[1:]}, "a-1: has 2 of 3 sentences of its document; add"),
        ({"a-1": A, "b-1": A}, "b-1: has no document b in DOCUMENTS; add it"),
        (
            {"a-1": A, "readme": A},
            "readme: is not named as a permutation; rename it as NAME",
        ),
        ({"a-1": [*A, "", *A]}, "a-1: has 2 documents; expected one per file"),
        ({"b.perm-1": B}, "b.perm-1: has no document b in"),
    ],
)
def test_what_does_not_match_is_named(tmp_path, permutations, message):
    documents = folder(tmp_path / "documents", {"a.txt": A})
    permuted_folder = folder(tmp_path / "permuted", permutations)
    message = message.replace("DOCUMENTS", documents)
    with pytest.raises(InputError, match=re.escape(f"{permuted_folder}/{message}")):
        read_permutations(read_documents, permuted_folder, documents)


def test_what_is_missing_is_named(tmp_path):
    documents = folder(tmp_path / "documents", {"a.txt": A, "b.txt": B})
    permuted_folder = folder(tmp_path / "permuted", {"a-1": A})
    with pytest.raises(InputError, match="documents/b.txt: has no permutation; add one"):
        read_permutations(read_documents, permuted_folder, documents)
    with pytest.raises(InputError, match="permuted/a-1: is not named as a permutation"):
        read_permutations(read_documents, permuted_folder)
    alone = folder(tmp_path / "alone", {"a.perm-2": A})
    with pytest.raises(InputError, match=re.escape("has no document a.perm-1 in")):
        read_permutations(read_documents, alone)
    for none in ("nowhere", "documents/a.txt"):
        with pytest.raises(InputError, match="is not a folder; expected a folder with"):
            read_permutations(read_documents, permuted_folder, str(tmp_path / none))
