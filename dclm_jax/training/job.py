"""A training job: the data, model and optimizer of a configuration."""

import dataclasses
import warnings
from collections.abc import Mapping
from typing import Any

import jax
from ml_collections import ConfigDict

from dclm_jax import models
from dclm_jax.data.batches import Earlier, TrainingBatches
from dclm_jax.data.corpus import Corpus, open_corpus
from dclm_jax.errors import InputError
from dclm_jax.models.base import DocumentModel
from dclm_jax.reading.likelihoods import earlier_sentences
from dclm_jax.training.config import RunConfig, validated
from dclm_jax.training.freezing import by_path, frozen_paths
from dclm_jax.training.optimizer import Optimizer, create_optimizer
from dclm_jax.training.step import TrainState, first_state


@dataclasses.dataclass(frozen=True)
class Job:
    """The data, model and optimizer of a configuration, and the shapes of the training state."""

    config: RunConfig
    model: DocumentModel
    optimizer: Optimizer
    batches: TrainingBatches
    state: TrainState
    valid: Corpus
    total_steps: int

    @property
    def measure(self) -> str:
        """The name of the perplexity, because perplexities of words and of bags of words are not
        comparable."""
        return "perplexity" if self.model.objective == "words" else "perplexity of bags of words"


def open_job(config: ConfigDict | Mapping[str, Any]) -> Job:
    """Checks a configuration, opens its corpus and makes its model and optimizer."""
    settings = validated(config)
    directory, segment_length = settings.data.directory, settings.data.segment_length
    if not directory:
        raise InputError(
            "data.directory is empty; set it to the output of launch.prepare, "
            "for example --config.data.directory=data/ptb"
        )
    training, valid = (open_corpus(directory, split) for split in ("train", "valid"))
    vocabulary = training.vocabulary
    model = models.create(
        vocab_size=len(vocabulary), first_word_end=vocabulary.first_word_end, **settings.model
    )
    if model.reads_source and segment_length:
        raise InputError(
            f"data.segment_length is {segment_length}, but {model.name} reads whole documents; set "
            "it to 0"
        )
    batches = TrainingBatches(
        training,
        segment_length=segment_length,
        batch_size=settings.data.batch_size,
        seed=settings.training.seed,
        max_sentence_length=settings.data.max_sentence_length,
        earlier=Earlier(
            earlier_sentences(model, segment_length if settings.data.carry_context else 0),
            settings.data.no_context_share,
        ),
        has_source=model.reads_source,
    )
    total_steps = settings.training.epochs * batches.steps_per_epoch
    if settings.training.max_steps:
        total_steps = min(total_steps, settings.training.max_steps)
    optimizer = create_optimizer(settings.optimizer, total_steps, batches.steps_per_epoch)
    state = first_shapes(model, optimizer, settings.training.frozen)
    return Job(settings, model, optimizer, batches, state, valid, total_steps)


def first_shapes(model: DocumentModel, optimizer: Optimizer, frozen: str = "") -> TrainState:
    """The shapes of the first state; `frozen` is the option `training.frozen`."""

    def make(key: jax.Array) -> TrainState:
        params = model.init(key)
        return first_state(params, optimizer, frozen_paths(frozen, by_path(params)))

    with warnings.catch_warnings():
        # JAX warns of sizes that no memory holds; `compiled_step` refuses them.
        warnings.simplefilter("ignore")
        return jax.eval_shape(make, jax.eval_shape(lambda: jax.random.key(0)))
