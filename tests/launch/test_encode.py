"""launch.encode: the array and the names beside it, and the example of its manual."""

import ast
import re
import runpy
import textwrap

import numpy as np
import pytest

import dclm_jax
from dclm_jax.data.readers import read_documents
from tests.launch.support import REPOSITORY, launch, refuse


def encode(space, tmp_path, *flags, **options):
    output = tmp_path / "vectors.npy"
    done = launch("encode", f"--workdir={space.run}", f"--output={output}", *flags, **options)
    ids = (tmp_path / "vectors.ids.txt").read_text("utf-8").splitlines()
    return done, np.load(output), ids


def test_documents_and_sentences(space, tmp_path):
    text = space.text["test"]
    encoded = list(dclm_jax.restore(space.run).vectors(read_documents(text)))
    done, vectors, ids = encode(space, tmp_path, f"--input={text}")
    assert done.stdout == f"11 vectors of 8 numbers: {tmp_path / 'vectors.npy'}\n"
    assert (vectors.dtype, vectors.flags["C_CONTIGUOUS"]) == (np.float32, True)
    assert ids == [document.id for document in encoded]
    expected = [document.document for document in encoded]
    np.testing.assert_allclose(vectors, expected, rtol=1e-5, atol=1e-6)

    flags = ("--input=-", "--unit=sentences", "--batch_size=2")
    _, vectors, ids = encode(space, tmp_path, *flags, stdin=text.read_text())
    expected = np.concatenate([document.sentences for document in encoded])
    np.testing.assert_allclose(vectors, expected, rtol=1e-5, atol=1e-6)
    assert ids == [
        f"-:{document.id.split(':')[1]}\t{number}"
        for document in encoded
        for number in range(1, 1 + len(document.sentences))
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["vectors.ids.txt", "vectors.npy"]


def test_the_example_of_the_manual_finds_neighbours(space, tmp_path, monkeypatch, capsys):
    _, vectors, ids = encode(space, tmp_path, f"--input={space.text['test']}")
    manual = ast.get_docstring(ast.parse((REPOSITORY / "launch/encode.py").read_text())) or ""
    example = re.search(r"    import csv\n.*", manual, re.DOTALL)
    assert example
    (tmp_path / "example.py").write_text(textwrap.dedent(example[0]))
    monkeypatch.chdir(tmp_path)
    runpy.run_path("example.py")
    neighbours = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    lengths = np.sqrt((vectors**2).sum(axis=1))
    products = vectors @ vectors[0] / (lengths * lengths[0])
    cosines = list(zip(products.tolist(), ids, strict=True))
    expected = sorted(cosines[1:], reverse=True)[:5]
    assert [name for _, name in neighbours] == [name for _, name in expected]
    assert [float(cosine) for cosine, _ in neighbours] == pytest.approx(
        [cosine for cosine, _ in expected], abs=6e-4
    )


def test_bad_input_leaves_what_was_there(space, tmp_path):
    output, bad = tmp_path / "vectors.npy", tmp_path / "bad.txt"
    output.write_text("of before")
    bad.write_bytes(b"w1 w2\n\n\xff\n")
    refuse("encode", f"--workdir={space.run}", f"--output={output}", f"--input={bad}")
    assert output.read_text() == "of before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.txt", "vectors.npy"]
