"""The factors of logits over the vocabulary, from which the logits of a few positions are computed.

The part of the logits that positions share (`RowLogits`) is an array [rows, V]; the part of hashed
features (`HashedLogits`) is looked up for some positions at a time. With `Copies`, a position has
one target, and its distribution is a mixture of the softmax and of words to copy.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dclm_jax.nn.layers import rounded_product
from dclm_jax.nn.plan import Plan

NEVER = -1e30
"""The logit of entries with probability 0, which have no gradient."""


class RowLogits(NamedTuple):
    """A part of the logits that positions share: rows [R, V], and the row of each position, int
    [F]."""

    logits_RxV: jax.Array
    row_F: jax.Array

    @property
    def values(self) -> jax.Array:
        """The array that gets a gradient."""
        return self.logits_RxV

    def of(self, position_C: jax.Array, vocab_size: int) -> jax.Array:
        """The part of these positions [C, V]."""
        del vocab_size
        return entries_at(self.logits_RxV, self._rows(position_C))

    def add(self, d_values: jax.Array, position_C: jax.Array, d_logits_CxV: jax.Array) -> jax.Array:
        """The gradient of the values plus the gradient from these positions' logits."""
        return d_values.at[self._rows(position_C)].add(d_logits_CxV, mode="drop")

    def _rows(self, position_C: jax.Array) -> jax.Array:
        # Filler positions get a row out of range.
        return self.row_F.at[position_C].get(mode="fill", fill_value=len(self.logits_RxV))


class HashedLogits(NamedTuple):
    """A part of the logits that is a sum of slices of an array [W]: the starts of the M slices of
    each position, int [F, M]; -1 for none."""

    weights_W: jax.Array
    start_FxM: jax.Array

    @property
    def values(self) -> jax.Array:
        """The array that gets a gradient."""
        return self.weights_W

    def of(self, position_C: jax.Array, vocab_size: int) -> jax.Array:
        """The part of these positions [C, V]."""

        def add_slices(start_C: jax.Array, sums_CxV: jax.Array) -> jax.Array:
            slices_CxV = jax.vmap(
                lambda start: jax.lax.dynamic_slice(self.weights_W, (start,), (vocab_size,))
            )(jnp.maximum(start_C, 0))
            return sums_CxV + jnp.where(start_C[:, None] >= 0, slices_CxV, 0)

        zeros_CxV = jnp.zeros((position_C.size, vocab_size), self.weights_W.dtype)
        return self._over_slices(position_C, add_slices, zeros_CxV)

    def add(self, d_values: jax.Array, position_C: jax.Array, d_logits_CxV: jax.Array) -> jax.Array:
        """The gradient of the values plus the gradient from these positions' logits."""
        windows = jax.lax.ScatterDimensionNumbers(
            update_window_dims=(1,), inserted_window_dims=(), scatter_dims_to_operand_dims=(0,)
        )

        def add_slices(start_C: jax.Array, d_values: jax.Array) -> jax.Array:
            d_slices_CxV = jnp.where(start_C[:, None] >= 0, d_logits_CxV, 0)
            index_Cx1 = jnp.maximum(start_C, 0)[:, None]
            return jax.lax.scatter_add(d_values, index_Cx1, d_slices_CxV, windows)

        return self._over_slices(position_C, add_slices, d_values)

    def _over_slices(self, position_C: jax.Array, add_slices: Callable[..., Any], sums: Any) -> Any:
        """`sums = add_slices(start_C, sums)` for each of the M slices up to the last real slice."""
        start_CxM = self.start_FxM.at[position_C].get(mode="fill", fill_value=-1)
        num_slices = start_CxM.shape[1]
        if num_slices == 1:
            return add_slices(start_CxM[:, 0], sums)
        position_M = jnp.arange(1, num_slices + 1)
        last = jnp.max(jnp.where(jnp.any(start_CxM >= 0, axis=0), position_M, 0), initial=0)
        return jax.lax.fori_loop(0, last, lambda m, sums: add_slices(start_CxM[:, m], sums), sums)


class Copies(NamedTuple):
    """Words that F positions can copy: p(w) = exp(log_share) softmax(w) + sum_{m: w_m = w} a_m,
    with log a [F, M], the words w of each of R rows, and the row of each position. A word of -1 has
    weight 0. Sums are of logarithms, because weights underflow float32 where -log a exceeds 103."""

    log_share_F: jax.Array
    log_weights_FxM: jax.Array
    words_RxM: jax.Array
    row_F: jax.Array

    def at_targets(self, target_F: jax.Array) -> "CopiedTargets":
        """The probability of copying one target per position."""
        is_target_FxM = self.words_RxM[self.row_F] == target_F[:, None]
        targets_FxM = jnp.where(is_target_FxM, self.log_weights_FxM, -jnp.inf)
        top_F = _finite(jax.lax.stop_gradient(jnp.max(targets_FxM, axis=1)))
        sum_F = jnp.sum(jnp.exp(targets_FxM - top_F[:, None]), axis=1)
        return CopiedTargets(self.log_share_F, _log(sum_F) + top_F)

    def log_probs(self, position_C: jax.Array, logits_CxV: jax.Array) -> jax.Array:
        """log p [C, V] of positions with these logits of the softmax."""
        words_CxM = entries_at(self.words_RxM, entries_at(self.row_F, position_C))
        log_weights_CxM = entries_at(self.log_weights_FxM, position_C)
        # Words of -1 have weight 0: adding them to the last word changes nothing.
        entries = jnp.arange(len(position_C))[:, None], words_CxM
        top_CxV = jnp.full_like(logits_CxV, -jnp.inf).at[entries].max(log_weights_CxM)
        top_CxV = _finite(top_CxV)
        sum_CxV = jnp.zeros_like(logits_CxV)
        sum_CxV = sum_CxV.at[entries].add(jnp.exp(log_weights_CxM - top_CxV[entries]))
        log_share_Cx1 = entries_at(self.log_share_F, position_C)[:, None]
        log_softmax_CxV = jax.nn.log_softmax(logits_CxV)
        return jnp.logaddexp(log_share_Cx1 + log_softmax_CxV, _log(sum_CxV) + top_CxV)


class CopiedTargets(NamedTuple):
    """The logarithms of the share of the softmax, and of the probability that the target is copied,
    of F positions."""

    log_share_F: jax.Array
    log_copied_F: jax.Array

    def mixed_nll(self, position_C: jax.Array, nll_Cx1: jax.Array) -> tuple[jax.Array, jax.Array]:
        """-log p(target) [C, 1] of positions with these -log softmax(target), and the fraction of
        p(target) that comes from the softmax."""
        log_share_Cx1, log_copied_Cx1 = (entries_at(array, position_C)[:, None] for array in self)
        log_part_Cx1 = log_share_Cx1 - nll_Cx1
        mixed_Cx1 = -jnp.logaddexp(log_part_Cx1, log_copied_Cx1)
        return mixed_Cx1, jnp.exp(log_part_Cx1 + mixed_Cx1)


class OutputInputs(NamedTuple):
    """The factors of the logits of F positions, features @ kernel + bias + shared, and the words
    that they can copy, if any."""

    features_FxD: jax.Array
    kernel_DxV: jax.Array
    bias_V: jax.Array
    shared: RowLogits | HashedLogits | None = None
    copies: Copies | CopiedTargets | None = None

    def at_targets(self, targets: jax.Array) -> "OutputInputs":
        """The same factors, with `Copies` reduced to the probability of copying the targets."""
        if not isinstance(self.copies, Copies):
            return self
        return self._replace(copies=self.copies.at_targets(targets.reshape(-1)))

    def padded(self, plan: Plan) -> "OutputInputs":
        """The same distributions over V padded to a multiple of the plan's, with entries of
        probability 0. Hashed features have slices of V weights, and are not padded."""
        missing = -self.bias_V.size % plan.vocab_multiple
        if not missing or isinstance(self.shared, HashedLogits):
            return self
        columns = ((0, 0), (0, missing))
        shared = self.shared and self.shared._replace(
            logits_RxV=jnp.pad(self.shared.logits_RxV, columns)
        )
        return self._replace(
            kernel_DxV=jnp.pad(self.kernel_DxV, columns),
            bias_V=jnp.pad(self.bias_V, (0, missing), constant_values=NEVER),
            shared=shared,
        )

    def products(self, position_C: jax.Array, features_CxD: jax.Array) -> jax.Array:
        """The logits [C, V] of positions with these features, without the bias."""
        products_CxV = rounded_product(features_CxD, self.kernel_DxV, self.kernel_DxV.dtype)
        if self.shared is not None:
            products_CxV += self.shared.of(position_C, self.bias_V.size)
        return products_CxV

    def logits_at(self, position_C: jax.Array) -> jax.Array:
        """The logits [C, V] of positions; log p if they can copy words."""
        features_CxD = entries_at(self.features_FxD, position_C)
        logits_CxV = self.products(position_C, features_CxD) + self.bias_V
        if isinstance(self.copies, Copies):
            return self.copies.log_probs(position_C, logits_CxV)
        return logits_CxV

    def logits(self) -> jax.Array:
        """The logits of all positions [F, V]; meant for few positions."""
        return self.logits_at(jnp.arange(len(self.features_FxD)))


def entries_at(array: jax.Array, positions: jax.Array) -> jax.Array:
    """The entries of an array at positions; 0 for positions out of range."""
    return jnp.asarray(array).at[positions].get(mode="fill", fill_value=0)


def _finite(logs: jax.Array) -> jax.Array:
    """The logarithms, with 0 in place of the logarithm of 0."""
    return jnp.where(logs == -jnp.inf, 0, logs)


def _log(sums: jax.Array) -> jax.Array:
    """log of sums of at least 0, whose gradient at 0 is 0."""
    return jnp.where(sums > 0, jnp.log(jnp.where(sums > 0, sums, 1)), -jnp.inf)
