"""A trained model as a folder to share, which is read wherever a run is read.

config.json         the configuration of the run, without the paths of its corpus
vocabulary.tsv      the words, with their counts in the training text
text.json           the text options of the training text, and its OOV rates
corpus.json         checksums of the prepared training corpus, if they are known
params.safetensors  the parameters by their paths
README.md           a model card
base.md             the section of the card about the model from which training started, if any
"""

import dataclasses
import re
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from dclm_jax import files, storage
from dclm_jax.data.corpus import TrainingText
from dclm_jax.data.documents import PLAIN
from dclm_jax.data.vocabulary import VOCABULARY_FILE, Vocabulary
from dclm_jax.errors import InputError, brief
from dclm_jax.models.base import Params
from dclm_jax.training.freezing import by_path, with_leaves

CONFIG_FILE = "config.json"
TEXT_FILE = "text.json"
CORPUS_FILE = "corpus.json"
PARAMS_FILE = "params.safetensors"
CARD_FILE, BASE_FILE = "README.md", "base.md"
_USE = "Commands that use a trained model take this folder as `--workdir`."
DTYPES = ("float16", "float32")
"""Types in which parameters are saved. Computations use float32."""
_METADATA = "dclm_jax"
"""The key of the metadata of the file, under which `Facts` stands as JSON."""


@dataclasses.dataclass(frozen=True)
class Facts:
    """The step and the validation perplexity of a run, and the fingerprint of its vocabulary."""

    step: files.Count
    perplexity: files.FinitePositive
    vocabulary: str


class Contents(NamedTuple):
    """The contents of a saved model: the configuration of its run, the vocabulary, the text options
    and the checksums of the training corpus, the parameters, the facts of the run, and the section
    of the card about the model from which training started (`base_section`)."""

    config: Mapping[str, Any]
    vocabulary: Vocabulary
    text: TrainingText
    corpus_checksums: dict[str, str]
    params: Params
    facts: Facts
    base: str = ""


def write_model(folder: storage.PathLike, contents: Contents, dtype: str, about: str) -> None:
    """Writes a new folder; `NeuralModel.save` documents the arguments."""
    target = storage.locate(folder)
    with files.writing(target), storage.reaching(target):
        if target.exists():
            raise InputError(f"{target} exists; choose a new folder")
    config, vocabulary, text, corpus_checksums, params, facts, base = contents
    shared = {
        **config,
        "data": config["data"] | {"directory": ""},
        "training": config["training"] | {"start_from": ""},
    }
    with files.replacing(target, last=CONFIG_FILE) as new:
        write_params(new / PARAMS_FILE, params, facts, dtype)
        vocabulary.save(new / VOCABULARY_FILE)
        files.write_json(new / TEXT_FILE, dataclasses.asdict(text))
        if corpus_checksums:
            files.write_json(new / CORPUS_FILE, corpus_checksums)
        with files.open_output(new / CARD_FILE) as file:
            sections = filter(None, (about.strip(), base.strip()))
            file.write(card(target.name, _facts_of(contents, dtype), "\n\n".join(sections)))
        if base:
            files.write_bytes(new / BASE_FILE, base.encode())
        files.write_json(new / CONFIG_FILE, shared)


def _facts_of(contents: Contents, dtype: str) -> dict[str, str]:
    """The facts in the model card."""
    size = sum(np.size(leaf) for leaf in by_path(contents.params).values())
    splits, text = {"valid": "validation"}, contents.text
    rates = {"OOV words": {split: f"{100 * rate:.2f}%" for split, rate in text.oov_rates.items()}}
    if contents.vocabulary.has_pieces:
        pieces = {split: f"{rate:.3f}" for split, rate in text.pieces_per_word.items()}
        rates = {"pieces per word": pieces}
    return {
        "model": contents.config["model"]["name"],
        "parameters": f"{size:,}, saved as {dtype}",
        "vocabulary": contents.vocabulary.size,
        "text": str(contents.text.options or PLAIN),
        **{
            f"{name}, {splits.get(split, split)}": text
            for name, texts in rates.items()
            for split, text in texts.items()
        },
        "training steps": f"{contents.facts.step:,}",
        "validation perplexity in training": f"{contents.facts.perplexity:.2f}",
    }


def write_params(path: Path, params: Params, facts: Facts, dtype: str) -> None:
    """Writes parameters as safetensors, in one of DTYPES."""
    if dtype not in DTYPES:
        raise InputError(f"dtype is {brief(dtype)}; expected one of {', '.join(DTYPES)}")
    with np.errstate(over="ignore"):
        arrays = {
            name: np.asarray(leaf, dtype, order="C") for name, leaf in by_path(params).items()
        }
    for name, array in arrays.items():
        if not np.isfinite(array).all():
            raise InputError(f"{name} exceeds the range of {dtype}; choose dtype='float32'")
    metadata = {_METADATA: files.json_text(dataclasses.asdict(facts))}
    files.write_bytes(path, safetensors.numpy.save(arrays, metadata))


def read_params(path: Path, template: Params) -> tuple[Params, Facts]:
    """The parameters, in the types of `template`, and the facts of their run.

    Args:
      path: the file.
      template: the shapes and types of the parameters of the configuration's model.
    """
    repair = "restore the folder from a copy"
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            saved = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}
    # Damaged files and types that NumPy lacks raise various exceptions.
    except Exception as error:
        if path.is_file() and path.read_bytes().startswith(b"version https://git-lfs"):
            raise InputError(
                f"{path}: is a pointer of Git LFS in place of the file; fetch the file by "
                "`git lfs pull`"
            ) from error
        reason = " ".join(str(error).split())
        raise InputError(f"{path}: cannot be read as safetensors ({reason}); {repair}") from error
    if _METADATA not in saved:
        raise InputError(
            f"{path}: has no metadata {_METADATA!r}; choose a model that NeuralModel.save wrote"
        )
    facts = files.parse_json(saved[_METADATA], f"{path}: {_METADATA}", Facts)
    leaves = by_path(template)
    for name in sorted(leaves.keys() | arrays.keys()):
        expected, saved_shape = (
            "absent"
            if name not in by_name
            else " x ".join(map(str, by_name[name].shape)) or "a number"
            for by_name in (leaves, arrays)
        )
        if expected != saved_shape:
            raise InputError(
                f"{path}: {brief(name)} is {saved_shape}, and {expected} by config.json and "
                f"vocabulary.tsv; the files belong to different models: {repair}"
            )
        if arrays[name].dtype.name not in DTYPES:
            raise InputError(
                f"{path}: {brief(name)} has the type {arrays[name].dtype}; expected "
                f"{' or '.join(DTYPES)}"
            )
        if not np.isfinite(arrays[name]).all():
            raise InputError(f"{path}: {brief(name)} contains nan or inf; {repair}")
    taken = {name: jnp.asarray(arrays[name], leaf.dtype) for name, leaf in leaves.items()}
    return with_leaves(template, taken), facts


def card(name: str, facts: Mapping[str, str], about: str) -> str:
    """A model card in Markdown: a table of facts, how to use the model, and a text about it."""
    rows = "\n".join(f"| {fact} | {value} |" for fact, value in facts.items())
    return f"""# {name}

A language model of documents, saved by dclm_jax {metadata.version("dclm_jax")}.

| | |
|---|---|
{rows}

```python
import dclm_jax

lm = dclm_jax.restore("PATH OF THIS FOLDER")
documents = lm.documents("The first sentence. The second sentence.")
print(lm.perplexity(documents))
```

{_USE}
{about and f"{chr(10)}{about.strip()}{chr(10)}"}"""


def base_section(folder: Path, name: str) -> str:
    """The section of a model card about the run or saved model in `folder`, from which training
    starts: its name, and what its own card says of its text, licences and limits."""
    about = inherited = read_base(folder)
    if (folder / PARAMS_FILE).exists() and (folder / CARD_FILE).exists():
        text = files.read_bytes(folder / CARD_FILE).decode("utf-8", "replace")
        # An edited card may lack the end of the generated part; it counts whole.
        about = text.partition(_USE)[2] if _USE in text else text
        if inherited.strip() not in about:
            about = f"{about.strip()}\n\n{inherited}"
    below = re.sub(r"^#", "##", about.strip(), flags=re.MULTILINE)
    base = f"## Base model\n\nTraining started from the parameters of `{name}`.\n"
    return f"{base}\n{below}\n" if below else base


def read_base(folder: Path) -> str:
    """The saved `base_section` of a run or a saved model; empty if it has none."""
    path = folder / BASE_FILE
    return files.read_bytes(path).decode("utf-8", "replace") if path.is_file() else ""
