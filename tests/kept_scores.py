"""Scores and results of runs that an earlier state has trained, compared with those of today.

    python tests/kept_scores.py make FOLDER
    python tests/kept_scores.py compare FOLDER

The first command, in the earlier state, trains every model for some steps and runs every command
that writes JSON; the second, in the later one, restores the runs, scores again and runs the
commands again. What changes how models are computed must leave every score as it is, but for the
rounding of sums, and must read the checkpoints of before. Both use the public interface and the
command line alone.
"""

import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

import dclm_jax
from dclm_jax import models
from dclm_jax.data.prepare import PrepareOptions, prepare
from dclm_jax.training.config import default_config
from dclm_jax.training.loop import train

TOLERANCE = 2e-5
"""Nats by which the score of a token may differ."""


def _documents(seed: int, count: int) -> list[list[str]]:
    """Documents of 1 to 9 sentences of 1 to 30 words, of which few are frequent."""
    rng = np.random.default_rng(seed)

    def sentence() -> str:
        return " ".join(f"w{word}" for word in rng.zipf(1.3, rng.integers(1, 31)) % 400)

    return [[sentence() for _ in range(rng.integers(1, 10))] for _ in range(count)]


def _scores(run: pathlib.Path) -> list[list[list[float]]]:
    lm = dclm_jax.restore(run, dclm_jax.LanguageModel, batch_size=4)
    return [
        [sentence.log_probs for sentence in document.sentences]
        for document in lm.score(_documents(2, 12))
    ]


def _write_lists(folder: pathlib.Path, documents: list[list[str]]) -> None:
    """Writes an n-best list of four hypotheses per sentence, and its documents and references."""
    rng = np.random.default_rng(4)
    lists, document_ids, references = [], [], []
    for document, sentences in enumerate(documents):
        for sentence in sentences:
            words, segment = sentence.split(), len(references)
            references.append(sentence)
            document_ids.append(f"{segment} {document}")
            hypotheses = [words, words[::-1], words[1:] + ["w1"], [*words, "w2"]]
            for index in rng.permutation(4):
                text, score = " ".join(hypotheses[index]), -float(rng.integers(1, 9))
                lists.append(f"{segment} ||| {text} ||| LM= {score} ||| {score}")
    for name, lines in (
        ("nbest", lists),
        ("documents", document_ids),
        ("references", references),
    ):
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")


def make(folder: pathlib.Path) -> None:
    """Trains a few steps of every model and keeps what they say of other documents."""
    folder.mkdir(parents=True)
    for split, seed, count in (("train", 0, 200), ("valid", 1, 10), ("test", 3, 10)):
        text = "\n\n".join("\n".join(document) for document in _documents(seed, count))
        (folder / f"{split}.txt").write_text(text + "\n")
    _write_lists(folder, _documents(1, 10))
    sources = {split: folder / f"{split}.txt" for split in ("train", "valid", "test")}
    prepare(sources, folder / "data", options=PrepareOptions(vocab_size=300))
    for name in models.MODELS:
        config = default_config(name)
        # Words of Lin et al.'s models enter the hidden layer as they are.
        width = 16 if "hash_size" in config.to_dict()["model"] else 12
        length = 0 if models.MODELS[name].reads_source else 5
        config.update(
            model={"embedding_dim": width, "hidden_dim": 16, "num_layers": 2, "dropout": 0.1},
            data={"directory": str(folder / "data"), "segment_length": length},
            training={"max_steps": 12},
        )
        train(config, folder / "runs" / name)
        scores = _scores(folder / "runs" / name)
        (folder / f"{name}.json").write_text(json.dumps(scores))
        # Programs of all models exhaust the mappings that Linux allows a process.
        jax.clear_caches()
        print(name, flush=True)
    for name in _COMMANDS:
        (folder / f"{name}.golden").write_text(json.dumps(_results(folder, name)))
        print(name, flush=True)


# The arguments of commands with what they read and write in the folder; each writes JSON or JSON
# lines to OUT.
_COMMANDS = {
    "evaluate": "evaluate --workdirs=runs/ccdclm,runs/rnnlm --interpolate --metrics=OUT",
    "adapt": "evaluate --workdir=runs/ccdclm --adapt=unigram,cache --metrics=OUT",
    "coherence": "coherence --workdir=runs/ccdclm --split=valid --permutations=2 --bootstrap=20 "
    "--permutation_pool=2 --extra_tests=blocks,swaps,insertion --metrics=OUT",
    "score": "score --workdir=runs/adclm --input=valid.txt --no_context_too --output=OUT",
    "order": "order --workdir=runs/ccdclm --input=valid.txt --output=OUT",
    "rescore": "rescore --workdir=runs/ccdclm --nbest=nbest.txt --documents=documents.txt "
    "--references=references.txt --tune --objective=wer "
    "--metrics=OUT --output=best.txt",
    "generate": "generate --workdir=runs/ccdclm --context=valid.txt --num_sentences=2 "
    "--method=sample --top_p=0.9 --output=OUT",
    "reconstruct": "reconstruct --workdir=runs/hierarchical_autoencoder --input=valid.txt "
    "--output=OUT",
    "report": "report --workdirs=runs/ccdclm,runs/rnnlm --measure --output=report --bootstrap=20 "
    "--permutation_pool=2",
}
_RESULT_OF = {"report": "report/report.json"}
# What differs between two runs of one command, or between machines.
_PASSING = {"seconds", "tokens_per_second", "measured", "versions", "system", "workdir", "command"}


def _results(folder: pathlib.Path, name: str) -> Any:
    """What a command writes about the runs of the folder."""
    ending = "json" if "--metrics=OUT" in _COMMANDS[name] else "jsonl"
    output = pathlib.Path(_RESULT_OF.get(name, f"{name}-result.{ending}"))
    # A report reads results that are saved in runs.
    for saved in (folder / "report", *folder.glob("runs/*/results")):
        shutil.rmtree(saved, ignore_errors=True)
    arguments = _COMMANDS[name].replace("OUT", str(output)).split()
    root = str(pathlib.Path(__file__).resolve().parent.parent)
    subprocess.run(
        [sys.executable, "-m", f"launch.{arguments[0]}", *arguments[1:]],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": root},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    if not (folder / output).exists():
        return None
    text = (folder / output).read_text()
    try:
        return json.loads(text)
    except ValueError:
        return [json.loads(line) for line in text.splitlines()]


def _differences(before: Any, now: Any, place: str) -> Iterator[str]:
    """The places where two values from JSON are not the same, numbers but for rounding."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted((before.keys() | now.keys()) - _PASSING):
            yield from _differences(before.get(key), now.get(key), f"{place}.{key}")
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for index, pair in enumerate(zip(before, now, strict=True)):
            yield from _differences(*pair, f"{place}[{index}]")
    elif isinstance(before, float) and isinstance(now, float):
        if not math.isclose(before, now, rel_tol=1e-4, abs_tol=1e-4):
            yield f"{place}: {before} and {now}"
    elif before != now:
        yield f"{place}: {before!r} and {now!r}"


def compare(folder: pathlib.Path) -> int:
    """Prints the largest difference of a token's score for every model, and the differences in the
    results of every command; 1 if there is one."""
    failed = 0
    for kept in (folder / f"{name}.json" for name in models.MODELS):
        before, now = json.loads(kept.read_text()), _scores(folder / "runs" / kept.stem)
        difference = max(
            float(np.max(np.abs(np.subtract(value, other))))
            for pair in zip(before, now, strict=True)
            for value, other in zip(*pair, strict=True)
        )
        failed |= not difference <= TOLERANCE
        print(f"{kept.stem:20} {difference:.1e} nats{'' if difference <= TOLERANCE else '  WRONG'}")
    for name in _COMMANDS:
        before = json.loads((folder / f"{name}.golden").read_text())
        different = list(_differences(before, _results(folder, name), name))
        failed |= bool(different)
        print(f"{name:20} {len(different)} differences", *different[:5], sep="\n    ")
    return failed


if __name__ == "__main__":
    command, directory = sys.argv[1], pathlib.Path(sys.argv[2])
    sys.exit({"make": make, "compare": compare}[command](directory))
