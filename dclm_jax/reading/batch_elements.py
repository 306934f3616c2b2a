"""Batch elements of contexts, in whose arrays the axis of the B documents differs."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from dclm_jax.models.base import Context, DocumentModel, Params, Source


def axes_of(make: Callable[[int], Any]) -> Any:
    """Of each array of the tree that `make(size)` gives the axis that has this size, of rows or of
    positions; -1 for an array that has none."""

    def axis(two: Any, three: Any) -> int:
        sizes = zip(two.shape, three.shape, strict=True)
        return next((axis for axis, (a, b) in enumerate(sizes) if a != b), -1)

    shapes = (jax.eval_shape(functools.partial(make, size)) for size in (2, 3))
    return jax.tree.map(axis, *shapes)


def row_axes(model: DocumentModel, params: Params) -> Any:
    """`axes_of` a context of the model."""
    return axes_of(functools.partial(first_context, model, params))


def first_context(model: DocumentModel, params: Params, rows: int) -> Context:
    """A context before any sentence, for its shapes."""
    word_1x1xB = jnp.zeros((1, 1, rows), jnp.int32)
    source = Source(word_1x1xB, word_1x1xB == 0) if model.reads_source else None
    return model.open_document(params, rows, source)


def _room(model: DocumentModel, params: Params, context: Context) -> int:
    """The positions of a sentence that a context has room for; 0 if it has none."""

    def with_room(length: int) -> Context:
        return model.resize_context(first_context(model, params, 1), length, cut=True)

    rooms = jax.tree.map(
        lambda axis, array: array.shape[axis] if axis >= 0 else 0, axes_of(with_room), context
    )
    return max(jax.tree.leaves(rooms), default=0)


def select(
    model: DocumentModel, params: Params, is_ours_B: jax.Array, ours: Context, theirs: Context
) -> Context:
    """Our rows where `is_ours_B`, their rows elsewhere, with the larger room of the two."""
    length = max(_room(model, params, context) for context in (ours, theirs))
    ours, theirs = (model.resize_context(context, length) for context in (ours, theirs))

    def selected(axis: int, our: jax.Array, their: jax.Array) -> jax.Array:
        if axis < 0:
            return our
        others = [other for other in range(our.ndim) if other != axis]
        return jnp.where(jnp.expand_dims(is_ours_B, others), our, their)

    return jax.tree.map(selected, row_axes(model, params), ours, theirs)


def distances(model: DocumentModel, params: Params, ours: Context, theirs: Context) -> jax.Array:
    """For each row the largest difference of corresponding numbers of two contexts [B]; both have
    room for equally many positions."""

    def distance(axis: int, our: jax.Array, their: jax.Array) -> jax.Array:
        if axis < 0:
            return jnp.zeros(())
        others = tuple(index for index in range(our.ndim) if index != axis)
        apart = jnp.abs(our.astype(jnp.float32) - their.astype(jnp.float32))
        return jnp.max(apart, others, initial=0)

    axes = row_axes(model, params)
    return functools.reduce(
        jnp.maximum, jax.tree.leaves(jax.tree.map(distance, axes, ours, theirs))
    )
