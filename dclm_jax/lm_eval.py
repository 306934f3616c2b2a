"""A run as the model `dclm_jax` of the lm-evaluation-harness (https://pypi.org/project/lm_eval).

    pip install 'dclm_jax[lm-eval]'
    python -m dclm_jax.lm_eval --model dclm_jax --model_args workdir=RUN --include_path FOLDER \\
        --tasks agree

FOLDER/agree.yaml defines a task on a local file, which HF_DATASETS_OFFLINE=1 reads offline:

    {task: agree, dataset_path: json, dataset_kwargs: {data_files: {test: FOLDER/agree.jsonl}},
     test_split: test, output_type: multiple_choice, doc_to_text: context, doc_to_choice: choices,
     doc_to_target: answer}

A line of FOLDER/agree.jsonl: {"context": "We met the", "choices": ["men.", "tax."], "answer": 0}

The command registers the model and then runs the command lm_eval with all its flags; PyTorch is not
needed. In Python, `import dclm_jax.lm_eval` registers the model for `lm_eval.simple_evaluate`.
Arguments of the model are `workdir`, `batch_size` (32 unless given; it changes speed and memory,
not results) and `matmul_precision`, as for `dclm_jax.restore`. --device has no effect: JAX chooses
the device. N-gram runs only answer loglikelihood_rolling.

Every string is one document, divided into sentences and words as the run's training text.
`dclm_jax.strings` defines the targets of a continuation, and when END is one of them:

- loglikelihood: log P of the targets of the continuation, which may begin inside a sentence. END is
  a target between two sentences, and at the end of a string that shows the end of its sentence.
- loglikelihood_rolling: log P of all targets of a document, END of every sentence included, equal
  to the nats of `launch.evaluate` of this document.

Tasks that generate text (generate_until) are refused.

The harness counts the words between white space: its word_perplexity is exp(nats / these words),
which can be compared with other models of the harness if few words are OOV.

Under a vocabulary of words every other word is UNKNOWN, whose probability does not say which word
follows. Answers that differ only in such words have equal log-likelihoods, so that accuracy on them
is chance; and UNKNOWN, whose probability all OOV words share, favours answers with OOV words.
Warnings count the items of both kinds. An OOV word is never greedy. Under a vocabulary of subwords
no word is OOV, and a continuation is greedy if each of its pieces is the likeliest.
"""

import collections
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from dclm_jax import strings
from dclm_jax.errors import InputError, brief, did_you_mean, importing
from dclm_jax.language_model import DEFAULT_BATCH_SIZE, LanguageModel
from dclm_jax.log import logger
from dclm_jax.nn.precision import SCORING_PRECISION
from dclm_jax.runs import restore
from dclm_jax.strings import ContinuationScore

NAME = "dclm_jax"


def _end(error: InputError) -> NoReturn:
    print(f"error: {error}", file=sys.stderr, flush=True)
    sys.exit(2)


try:
    with importing(f"the model {NAME} of the lm-evaluation-harness", "lm-eval"):
        from lm_eval.__main__ import cli_evaluate  # pyright: ignore[reportMissingImports]
        from lm_eval.api.instance import Instance  # pyright: ignore[reportMissingImports]
        from lm_eval.api.model import LM  # pyright: ignore[reportMissingImports]
        from lm_eval.api.registry import (  # pyright: ignore[reportMissingImports]
            model_registry,
        )
except InputError as error:
    if __name__ != "__main__":
        raise
    _end(error)


class HarnessModel(LM):
    """A run as a model of the harness."""

    def __init__(
        self,
        workdir: str = "",
        batch_size: int | str = 1,
        matmul_precision: str = SCORING_PRECISION,
        **others: Any,
    ):
        """Restores a run; see the module for the arguments. The harness passes batch_size 1 or auto
        unless it is given, and the device of other models."""
        super().__init__()
        names = "workdir", "batch_size", "matmul_precision"
        for name in others.keys() - {"device", "max_batch_size"}:
            raise InputError(f"model_args: {brief(name)} is unknown{did_you_mean(name, names)}")
        if not workdir:
            raise InputError(
                "model_args: workdir is missing; add --model_args workdir=RUN, the directory of a "
                "trained run"
            )
        size = str(batch_size)
        if size == "1" or size.startswith("auto"):
            size = str(DEFAULT_BATCH_SIZE)
        if not size.isdecimal():
            raise InputError(f"batch_size is {brief(size)}; expected a whole number, or auto")
        self._lm = restore(
            workdir,
            LanguageModel,
            without_source=True,
            batch_size=int(size),
            matmul_precision=matmul_precision,
        )

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        """log P in nats of the continuation of each request, and whether it is the likeliest."""
        strings_of_requests = [request.args for request in requests]
        scores = strings.score(self._lm, strings_of_requests)
        for warning in _unknown_answers(requests, scores):
            logger.warning(warning)
        return [(score.log_prob, score.is_greedy) for score in scores]

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        """log P in nats of each document."""
        documents = (strings.sentences_of(self._lm, *request.args) for request in requests)
        return [score.log_prob for score in self._lm.score(documents)]

    def generate_until(self, requests: list[Instance]) -> list[str]:
        """Refuses tasks that generate text."""
        raise InputError(
            f"the task {requests[0].task_name} generates text, which the model {NAME} does not "
            "offer to the harness; choose tasks whose output_type is multiple_choice, "
            "loglikelihood or loglikelihood_rolling"
        )


# By its name, because `python -m` loads this module under two names.
model_registry.register(NAME, target=f"dclm_jax.lm_eval:{HarnessModel.__name__}")


def _unknown_answers(
    requests: Sequence[Instance], scores: Sequence[ContinuationScore]
) -> Iterator[str]:
    """A warning for each task with items whose answers OOV words make equal for the model, or whose
    likeliest answer has more OOV words than another answer."""
    items: dict[str, dict[Any, list[ContinuationScore]]] = collections.defaultdict(dict)
    for request, score in zip(requests, scores, strict=True):
        task = items[str(request.task_name)]
        task.setdefault(request.doc_id, []).append(score)
    for task, answers in items.items():
        count = sum(map(_is_chance, answers.values()))
        if count:
            yield (
                f"{task}: in {count:,} of {len(answers):,} items the answers are equal for the "
                "model, because they differ only in words outside its vocabulary (OOV); accuracy "
                "on these items is chance"
            )
        if count := sum(map(_is_favoured, answers.values())):
            yield (
                f"{task}: in {count:,} of {len(answers):,} items the likeliest answer has more OOV "
                "words than another; the probability of UNKNOWN, which all OOV words share, "
                "favours such answers; compare models on items without OOV words, or use a model "
                "of subwords"
            )


def _is_chance(answers: Sequence[ContinuationScore]) -> bool:
    """Whether no answer of an item can be distinguished from the other answers, or from other
    words if there is only one answer."""
    if len(answers) == 1:
        return answers[0].is_unknown
    return len({answer.ids for answer in answers}) == 1


def _is_favoured(answers: Sequence[ContinuationScore]) -> bool:
    """Whether the likeliest answer of an item has more OOV words than another answer."""
    likeliest = max(answers, key=lambda answer: answer.log_prob)
    return likeliest.num_unknown > min(answer.num_unknown for answer in answers)


def main() -> None:
    """Runs the command of the harness; bad input ends in one line and exit code 2."""
    try:
        cli_evaluate()
    except InputError as error:
        _end(error)


if __name__ == "__main__":
    main()
