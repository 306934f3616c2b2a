"""Operations on batch elements of contexts, whose arrays have the axis B at different positions."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from dclm_jax.models.base import Context, DocumentModel, Params, Source


def axes_of(make: Callable[[int], Any]) -> Any:
    """For each array of the tree `make(size)`, the axis whose length depends on `size`; -1 if no
    axis does."""

    def axis(two: Any, three: Any) -> int:
        sizes = zip(two.shape, three.shape, strict=True)
        return next((axis for axis, (a, b) in enumerate(sizes) if a != b), -1)

    shapes = (jax.eval_shape(functools.partial(make, size)) for size in (2, 3))
    return jax.tree.map(axis, *shapes)


def row_axes(model: DocumentModel, params: Params) -> Any:
    """The axis of batch elements in each array of a context of the model."""
    return axes_of(functools.partial(first_context, model, params))


def first_context(model: DocumentModel, params: Params, rows: int) -> Context:
    """A context before the first sentence, used only for its shapes."""
    word_1x1xB = jnp.zeros((1, 1, rows), jnp.int32)
    source = Source(word_1x1xB, word_1x1xB == 0) if model.reads_source else None
    return model.open_document(params, rows, source)


def _capacity(model: DocumentModel, params: Params, context: Context) -> int:
    """The maximum number of positions of a sentence in a context; 0 if it has no positions."""

    def with_length(length: int) -> Context:
        return model.resize_context(first_context(model, params, 1), length)

    capacities = jax.tree.map(
        lambda axis, array: array.shape[axis] if axis >= 0 else 0, axes_of(with_length), context
    )
    return max(jax.tree.leaves(capacities), default=0)


def select(
    model: DocumentModel, params: Params, is_ours_B: jax.Array, ours: Context, theirs: Context
) -> Context:
    """The context with batch elements of `ours` where `is_ours_B` is true and of `theirs`
    elsewhere. It has the larger capacity of both."""
    length = max(_capacity(model, params, context) for context in (ours, theirs))
    ours, theirs = (model.resize_context(context, length) for context in (ours, theirs))

    def selected(axis: int, our: jax.Array, their: jax.Array) -> jax.Array:
        if axis < 0:
            return our
        others = [other for other in range(our.ndim) if other != axis]
        return jnp.where(jnp.expand_dims(is_ours_B, others), our, their)

    return jax.tree.map(selected, row_axes(model, params), ours, theirs)
