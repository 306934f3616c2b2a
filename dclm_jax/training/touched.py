"""Steps that work on those rows of a table alone which the batch looks up.

Most words of a vocabulary do not occur in a batch. The gradient of their rows is zero, and some
optimizers then leave a row and its state as they are: nothing of them needs to be read, added up,
clipped or written. The rows of the words that occur are a table of its own, much smaller, in which
the batch's words have other numbers; model and optimizer run on it as they are.
"""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dclm_jax.data.batches import Batch
from dclm_jax.models.base import DocumentModel, Params


class Touched(NamedTuple):
    """The words that occur: their ids [U], ascending, then V as filler; and the place among them of
    every word that does [V]."""

    ids_U: jax.Array
    place_V: jax.Array

    def params(self, model: DocumentModel, params: Params) -> Params:
        """The parameters with the rows of these words as tables."""
        tables = {name: self._rows(params[name]) for name in model.tables}
        return {**params, **tables}

    def like(self, tree: Any, shapes: Any) -> Any:
        """A tree of arrays with the rows of these words in those that `shapes` has shorter."""
        return jax.tree.map(
            lambda array, shape: array if array.shape == shape.shape else self._rows(array),
            tree,
            shapes,
        )

    def batch(self, batch: Batch) -> Batch:
        """The batch with places as its tokens; targets stay word ids."""
        earlier = None if batch.earlier is None else self.batch(batch.earlier)
        tokens = self.place_V[batch.tokens_BxSxN]
        return dataclasses.replace(batch, tokens_BxSxN=tokens, earlier=earlier)

    def put_back(self, whole: Any, changed: Any) -> Any:
        """`changed` with its shorter arrays put into the whole ones."""

        def put(old: jax.Array, new: jax.Array) -> jax.Array:
            return new if new.shape == old.shape else old.at[self.ids_U].set(new, mode="drop")

        return jax.tree.map(put, whole, changed)

    def _rows(self, table: jax.Array) -> jax.Array:
        return table.at[self.ids_U].get(mode="fill", fill_value=0)


def touched(model: DocumentModel, batch: Batch, axis: str | None) -> Touched | None:
    """The words of this step's global batch; None where there may be as many as in the vocabulary,
    or where words are more to the model than rows to look up.

    Args:
      axis: name of the pmap axis over all devices; None without pmap.
    """
    if model.tie_embeddings or model.has_auxiliary_loss:
        return None
    all_tokens = [np.shape(b.tokens_BxSxN) for b in (batch, batch.earlier) if b is not None]
    devices = 1 if axis is None else jax.lax.axis_size(axis)
    size = devices * sum(map(np.prod, all_tokens))
    if size >= model.vocab_size:
        return None
    occurs_V = jnp.zeros(model.vocab_size, jnp.int32)
    for part in (batch, batch.earlier):
        if part is not None:
            occurs_V = occurs_V.at[part.tokens_BxSxN.reshape(-1)].set(1)
    if axis is not None:
        occurs_V = jnp.minimum(jax.lax.psum(occurs_V, axis), 1)
    (ids_U,) = jnp.nonzero(occurs_V, size=int(size), fill_value=model.vocab_size)
    return Touched(ids_U, jnp.cumsum(occurs_V) - 1)
