"""launch.reconstruct on texts that are there."""

import json

import pytest

from dclm_jax.data.documents import TextOptions
from dclm_jax.evaluation.reconstruction import evaluate_files, summarize
from tests.launch.support import launch, refuse

pytest.importorskip("HanTa")


@pytest.fixture
def texts(tmp_path):
    """The input, outputs as JSON lines, and a copy of the input."""
    paths = [tmp_path / name for name in ("in.txt", "out.jsonl", "copy.txt")]
    paths[0].write_text("The dog ran .\nThe cat sat .\n\nA bird sang .\n")
    records = [
        {"id": "a", "input": "not read", "sentences": ["the cat sat .", "the dog ran ."]},
        {"id": "b", "sentences": []},
    ]
    paths[1].write_text("".join(json.dumps(record) + "\n" for record in records))
    paths[2].write_text(paths[0].read_text())
    return paths


def test_outputs_are_measured_side_by_side(texts, tmp_path):
    inputs, outputs, copy = texts
    metrics = tmp_path / "metrics.json"
    flags = (f"--input={inputs}", "--lowercase")
    done = launch("reconstruct", f"--outputs={outputs},{copy}", *flags, f"--metrics={metrics}")
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [row[0] for row in rows[2:4]] == [str(outputs), str(copy)]
    written = json.loads(metrics.read_text())
    assert written["input"] == str(inputs)
    for path in (outputs, copy):
        expected = summarize(evaluate_files(path, inputs, TextOptions(lowercase=True)))
        assert written["outputs"][str(path)] == expected
    first, second = written["outputs"].values()
    assert (first["coherence"], first["coherence_documents"]) == (2, 1)
    assert first["rouge_1"]["recall"] == pytest.approx(50)
    assert (second["bleu"], second["coherence"]) == (pytest.approx(100), 0)


def test_input_may_be_standard_input_and_metrics_standard_output(texts):
    inputs, outputs, _ = texts
    flags = ("--input=-", "--metrics=-")
    done = launch("reconstruct", f"--outputs={outputs}", *flags, stdin=inputs.read_text())
    assert list(json.loads(done.stdout)["outputs"]) == [str(outputs)]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--input=IN"], "--outputs is missing; expected texts to measure, or --workdir"),
        (["--outputs=OUT"], "--input is missing; expected the sources of --outputs"),
        (["--outputs=OUT,IN", "--input=-"], "standard input is read once"),
        (["--outputs=-", "--input=IN"], "standard input is read once"),
        (["--outputs=OUT", "--input=IN", "--batch_size=2"], "--batch_size has no effect"),
        (
            ["--outputs=OUT", "--input=IN", "--max_length_ratio=2"],
            "--max_length_ratio has no effect",
        ),
        (["--outputs=OUT", "--input=IN", "--method=beam"], "--method has no effect on --outputs"),
    ],
)
def test_bad_input(texts, tmp_path, flags, message):
    for name, path in {"OUT": texts[1], "=IN": f"={texts[0]}", ",IN": f",{texts[0]}"}.items():
        flags = [flag.replace(name, str(path)) for flag in flags]
    metrics = tmp_path / "metrics.json"
    assert message in refuse("reconstruct", *flags, f"--metrics={metrics}")
    assert not metrics.exists()
