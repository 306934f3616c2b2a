"""Runs as models in Python: one run, or several of one vocabulary."""

import dataclasses
import glob
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar, overload

from dclm_jax import ngram
from dclm_jax.errors import InputError, require_at_least
from dclm_jax.language_model import (
    DEFAULT_BATCH_SIZE,
    LanguageModel,
    ModelFacts,
    require_no_source,
)
from dclm_jax.log import logger
from dclm_jax.neural_language_model import Autoencoder, NeuralLanguageModel
from dclm_jax.nn.precision import SCORING_PRECISION
from dclm_jax.scoring.neural import NeuralScorer
from dclm_jax.scoring.scorer import SummedScorer
from dclm_jax.training.parameter_table import count_parameters
from dclm_jax.training.saved_model import read_base
from dclm_jax.training.workdir import (
    CONFIG_FILE,
    opened,
    read_config,
    read_corpus_checksums,
    read_training_text,
    restore_run,
    run_path,
)

ModelT = TypeVar("ModelT", bound=LanguageModel)


@overload
def restore(
    workdir: str | os.PathLike[str],
    *,
    without_source: bool = ...,
    batch_size: int = ...,
    matmul_precision: str = ...,
) -> NeuralLanguageModel: ...
@overload
def restore(
    workdir: str | os.PathLike[str],
    kind: type[ModelT],
    *,
    without_source: bool = ...,
    batch_size: int = ...,
    matmul_precision: str = ...,
) -> ModelT: ...
def restore(
    workdir: str | os.PathLike[str],
    kind: type[LanguageModel] = NeuralLanguageModel,
    *,
    without_source: bool = False,
    batch_size: int = DEFAULT_BATCH_SIZE,
    matmul_precision: str = SCORING_PRECISION,
) -> LanguageModel:
    """The best model of a run of `launch.train`, the model of a run of `launch.ngram`, a saved
    model, or a pretrained model.

    Args:
      workdir: workdir of the run, or folder of `NeuralModel.save`: a directory or an address such
        as gs://bucket/run; or the name of a pretrained model, english or english_sentences, unless
        the current directory has a run of this name.
      kind: the expected class; a model of another class is refused. `NeuralLanguageModel` (the
        default), `Autoencoder`, or `LanguageModel` for any model, n-gram models included.
      without_source: whether an autoencoder is refused, because its documents have no probability
        without a source.
      batch_size: maximum number of documents scored or encoded together; it changes speed and
        memory, not scores.
      matmul_precision: precision of products in place of the precision in training
        (`nn.precision.MatmulPrecision`). Only "highest" gives the same scores on any device.
    """
    require_at_least("batch_size", batch_size, 1)
    with opened(workdir) as folder:
        lm = _restored(folder, batch_size, matmul_precision, os.fspath(run_path(workdir)))
    if not isinstance(lm, kind):
        raise InputError(
            f"{workdir} contains the model {lm.facts.name}; choose a workdir that contains "
            f"{kind.kind}"
        )
    if without_source:
        require_no_source(lm)
    return lm


def _restored(folder: Path, batch_size: int, matmul_precision: str, workdir: str) -> LanguageModel:
    if read_config(folder)["model"]["name"] == ngram.NGRAM:
        return ngram.restore_ngram(folder, workdir)
    run = restore_run(folder)
    facts = ModelFacts(
        name=run.model.name,
        num_parameters=count_parameters(run.params),
        config=run.config,
        text=read_training_text(folder),
        step=run.step,
        matmul_precision=matmul_precision,
        workdir=workdir,
    )
    model = dataclasses.replace(run.model, matmul_precision=matmul_precision)
    kind = Autoencoder if model.reads_source else NeuralLanguageModel
    return kind(
        facts=facts,
        vocabulary=run.vocabulary,
        scorer=SummedScorer(NeuralScorer(model, run.params, batch_size=batch_size)),
        validation_perplexity=run.info["perplexity"],
        corpus_checksums=read_corpus_checksums(folder),
        base_card=read_base(folder),
    )


def restore_all(names: Iterable[str], kind: type[ModelT], **options: Any) -> dict[str, ModelT]:
    """The models of different runs of one vocabulary, by labels: the names of the models, or the
    folders if names repeat.

    Args:
      names: workdirs; a pattern such as "runs/*" stands for the matching folders that have runs. A
        matching run that cannot be restored, such as a run that has no checkpoint yet, is omitted
        with a note.
      kind, options: arguments of `restore`.
    """
    models: list[ModelT] = []
    for name in map(str.strip, names):
        if not name:
            raise InputError("--workdirs has an empty name; write names separated by single commas")
        if not glob.has_magic(name) or Path(name).is_dir():
            models.append(restore(name, kind, **options))
            continue
        matches = sorted(run for run in glob.glob(name) if Path(run, CONFIG_FILE).is_file())
        restored = list(filter(None, (_restored_match(run, kind, options) for run in matches)))
        if not restored:
            raise InputError(f"--workdirs: {name} matches no run; choose another pattern")
        models += restored
    if not models:
        raise InputError("--workdirs names no run; choose the workdirs of runs")
    workdirs = [lm.facts.workdir for lm in models]
    folders = [Path(workdir).resolve() for workdir in workdirs]
    for index, folder in enumerate(folders):
        if folder in folders[:index]:
            raise InputError(f"--workdirs names {workdirs[index]} twice; name each run once")
    first, *others = (str(lm.vocabulary) for lm in models)
    for workdir, other in zip(workdirs[1:], others, strict=True):
        if other != first:
            raise InputError(
                f"the vocabularies of {workdirs[0]} ({first}) and {workdir} ({other}) differ; "
                "choose runs with one vocabulary"
            )
    candidates = [lm.facts.name for lm in models], [folder.name for folder in folders], workdirs
    labels = next(names for names in candidates if len(set(names)) == len(workdirs))
    return dict(zip(labels, models, strict=True))


def _restored_match(run: str, kind: type[ModelT], options: dict[str, Any]) -> ModelT | None:
    try:
        return restore(run, kind, **options)
    except InputError as error:
        logger.info(f"omitted: {error}")
        return None


def matmul_precision(models: Iterable[LanguageModel]) -> str:
    """A line with the precisions of products in the models; empty if all are n-gram models."""
    names = dict.fromkeys(lm.facts.matmul_precision for lm in models)
    names.pop(None, None)
    return f"matmul precision: {', '.join(map(str, names))}" if names else ""


def directory_of(lm: LanguageModel) -> str:
    """The directory of the corpus that a model was trained on."""
    directory, workdir = lm.facts.config["data"]["directory"], lm.facts.workdir
    if not directory:
        raise InputError(
            f"{workdir} is a saved model, which has no corpus; add --data=DIR, a corpus prepared "
            f"with --vocabulary={workdir}/vocabulary.tsv (commands that read text take "
            "--input=FILE instead)"
        )
    return directory


def corpus_of(models: Iterable[LanguageModel], data: str | None = None) -> str:
    """The directory `data`, or the directory of the corpus that all models were trained on."""
    first, *others = models
    directory = data or directory_of(first)
    for lm in others:
        other = data or directory_of(lm)
        if Path(other).resolve() != Path(directory).resolve():
            raise InputError(
                f"{first.facts.workdir} was trained on {directory} and {lm.facts.workdir} on "
                f"{other}; choose one corpus by --data"
            )
    return directory


def run_json(lm: LanguageModel) -> dict[str, Any]:
    """The run and its test-time adaptation for a file of results."""
    return {
        "model": lm.facts.name,
        "parameters": lm.facts.num_parameters,
        "step": lm.facts.step,
        "matmul_precision": lm.facts.matmul_precision,
        "workdir": lm.facts.workdir,
        **(lm.adaptation.to_json() if lm.adaptation else {}),
    }
