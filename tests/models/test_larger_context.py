"""What the models of Wang and Cho (2015) do with the sentences before, beside the oracles."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest

from dclm_jax import models
from dclm_jax.nn.plan import CPU
from dclm_jax.reading.likelihoods import batch_likelihood, earlier_sentences
from tests.exhaustive import also
from tests.models.support import likelihood, pack, random_params, scores, simple_model

NAMES = [name for name in models.MODELS if name.startswith("rlm_")]
USUAL = ["rlm_seqbow_lf", "rlm_seqbow_att_ef"]
"""Both fusions, with attention and without."""
DOCUMENT = ((5, 3, 7, 4), (6,), (8, 2, 3), (4, 9), (10, 4, 4), (7,))

pytestmark = pytest.mark.usefixtures("x64")


def padded(document, S=6):
    """A batch of one document, of one shape: each is compiled."""
    return pack([document], S, max(map(len, DOCUMENT)) + 1)


@pytest.mark.parametrize("first", [1, 2, 4])
@pytest.mark.parametrize("name", [*USUAL, *also(name for name in NAMES if name not in USUAL)])
def test_a_segment_with_the_sentences_before_it_is_scored_as_in_its_document(name, first):
    model = simple_model(name)
    params = random_params(model)
    whole_SxN = scores(model, params, padded(DOCUMENT))[0]
    n = earlier_sentences(model)
    assert n == model.context_order == 2
    before = DOCUMENT[max(0, first - n) : first]
    # What is missing of n sentences is missing in front.
    earlier = padded(((),) * (n - len(before)) + before, S=n)
    empty = np.arange(n) < n - len(before)
    earlier = jax.tree.map(lambda a: np.where(empty[:, None], np.zeros_like(a), a), earlier)
    segment = padded(DOCUMENT[first:])
    result = likelihood(model, params, dataclasses.replace(segment, earlier=earlier))
    np.testing.assert_allclose(result.nll, whole_SxN[first:].sum(), rtol=1e-12)
    assert result.sentences == len(DOCUMENT) - first
    without = likelihood(model, params, segment)
    assert abs(without.nll - result.nll) > 1e-6


@pytest.mark.parametrize("name", ["rlm_bow_ef", "rlm_seqbow_att_lf"])
def test_a_bag_is_never_dense(name):
    """Arrays as long as the vocabulary are those of its parameters and of a chunk of logits."""
    V = 30_000

    def shapes(n):
        sizes = dict.fromkeys(("embedding_dim", "hidden_dim", "context_dim"), 4)
        model = models.create(name, vocab_size=V, context_sentences=n, **sizes)
        batch = pack([DOCUMENT] * 8)
        batch = dataclasses.replace(batch, earlier=pack([DOCUMENT[:1] * n] * 8))
        params = jax.eval_shape(model.init, jax.random.key(0))
        jaxpr = jax.make_jaxpr(jax.grad(lambda p: batch_likelihood(model, p, batch).nll))(params)
        return {tuple(v.aval.shape) for v in _variables(jaxpr.jaxpr) if V in v.aval.shape}

    few, many = shapes(1), shapes(8)
    assert few == many
    assert {len(shape) for shape in many} == {1, 2}
    parts = range(1, CPU.only_chunks + 1)
    chunks = {CPU.chunk_size(V) * part // CPU.only_chunks for part in parts}
    assert {shape[0] for shape in many} | {shape[-1] for shape in many} <= {V, 4, 1, *chunks}


def _variables(jaxpr) -> Iterator[Any]:
    for equation in jaxpr.eqns:
        yield from (v for v in equation.outvars if hasattr(v.aval, "shape"))
        for value in jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda v: hasattr(v, "eqns")
        ):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from _variables(inner)
