"""Every model learns a generated language, and models with context learn what others cannot.

A document has three sentences "X Y M". X is one of two words, drawn for each sentence; X decides Y;
M is one of two words, drawn once for each document. A model of single sentences predicts X and M
with ln 2 nats each. A model with context can predict M of later sentences with 0 nats.
"""

import json
import math
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from dclm_jax.reading.driver import cast_params
from dclm_jax.reading.likelihoods import block_nll, open_documents
from dclm_jax.training.config import OptimizerConfig
from dclm_jax.training.optimizer import create_optimizer
from dclm_jax.training.step import first_state, local_shards, parallel_step, replicate
from tests.models.support import LIN, MODELS, model_class, pack, small_model

STEPS, DOCUMENTS, SENTENCES = 150, 32, 3
GOLDEN = Path(__file__).with_name("golden_curves.json")
SUBWORDS = "pointer_drnnlm, subwords"
CURVE = 20
"""The number of steps whose losses are compared with saved values."""
# END is a quarter of the targets, and each of six words an eighth.
UNIGRAM = math.log(4) / 4 + 6 * math.log(8) / 8


def documents(seed: int) -> list[list[tuple[int, int, int]]]:
    rng = np.random.default_rng(seed)
    markers = rng.integers(3, 5, DOCUMENTS)
    others = rng.integers(5, 7, (DOCUMENTS, SENTENCES))
    return [
        [(int(x), int(x) + 2, int(marker)) for x in row]
        for marker, row in zip(markers, others, strict=True)
    ]


class Trained:
    """A model after some steps, and the mean loss of each step."""

    def __init__(self, name: str, steps: int = STEPS):
        name, _, vocabulary = name.partition(", ")
        cell = {} if name in LIN else {"cell": "lstm", "num_layers": 1}
        if vocabulary == "subwords":
            # "X Y" is a word of two pieces; M has no end.
            cell["first_word_end"] = 7
        self.model = small_model(name, embedding_dim=16, hidden_dim=16, **cell)
        if name in LIN:
            options = OptimizerConfig(name="adagrad", learning_rate=0.2)
        else:
            options = OptimizerConfig(name="adam", learning_rate=0.03)
        optimizer = create_optimizer(options, STEPS)
        state = replicate(first_state(self.model.init(jax.random.key(0)), optimizer))
        step = parallel_step(self.model, optimizer)
        self.losses = []
        for number in range(steps):
            batch = pack(documents(number))
            state, metrics = step(state, local_shards(batch), jax.random.key(0))
            self.losses.append(float(metrics.nats) / float(metrics.tokens))
        self.params = jax.device_get(state.params)

    def marker_nats(self) -> np.ndarray:
        """Mean nats of M by the number of the sentence."""
        batch = pack(documents(STEPS))
        params = cast_params(self.model, self.params)
        context = open_documents(self.model, params, DOCUMENTS)
        nats = np.asarray(block_nll(self.model, params, context, batch)[1])
        return nats.reshape(DOCUMENTS, SENTENCES, -1)[:, :, 2].mean(axis=0)


@pytest.fixture(scope="module", params=MODELS)
def trained(request) -> tuple[str, Trained]:
    return request.param, Trained(request.param)


def test_it_learns(trained):
    name, run = trained
    # A bag has no END, and its words are predicted with one distribution.
    unigram = math.log(6) if model_class(name).objective == "bags" else UNIGRAM
    assert np.mean(run.losses[-10:]) < unigram - 0.05


def test_context_predicts_what_the_sentence_does_not(trained):
    name, run = trained
    if model_class(name).objective == "bags" or model_class(name).reads_source:
        return
    first, *later = run.marker_nats()
    assert first > 0.6
    if model_class(name).context_order == 0:
        assert min(later) > 0.6
    else:
        assert max(later) < 0.2


def test_its_first_losses_are_the_saved_ones(trained):
    compare_with_saved(*trained)


def test_first_losses_of_subwords_are_the_saved_ones():
    compare_with_saved(SUBWORDS, Trained(SUBWORDS, CURVE))


def compare_with_saved(name: str, run: Trained) -> None:
    saved = json.loads(GOLDEN.read_text())
    if name not in saved:
        pytest.skip(f"{name} has no saved losses: run python -m tests.models.test_learning {name}")
    # Steps amplify the differences in rounding between processors.
    tolerances = np.where(np.arange(CURVE) < 10, 2e-4, 1e-2)
    deviations = np.abs(np.array(run.losses[:CURVE]) / saved[name] - 1)
    np.testing.assert_array_less(
        deviations,
        tolerances,
        err_msg=f"the losses of {name} changed. If the change is meant (another initialization, "
        "equation, optimizer or order of sums), write them again: "
        f"python -m tests.models.test_learning {name}",
    )


if __name__ == "__main__":
    # Names of models to save again; by default all.
    curves = json.loads(GOLDEN.read_text())
    for each in sys.argv[1:] or (*MODELS, SUBWORDS):
        curves[each] = [round(loss, 6) for loss in Trained(each, CURVE).losses]
    GOLDEN.write_text(
        json.dumps({name: curves[name] for name in (*MODELS, SUBWORDS)}, indent=1) + "\n"
    )
