"""How computations are arranged on a platform, in one value that a model carries.

A plan changes speed and memory. What is computed stays the same, but for the rounding of sums;
tests compare every arrangement with the definition on a CPU.
"""

import dataclasses

import jax


@dataclasses.dataclass(frozen=True)
class Plan:
    """An arrangement of computations; the defaults are those of accelerators.

    Attributes:
      chunk_logits: logits of a chunk of the output layer: 256 MiB of them, or what stays in the
        cache of a CPU.
      min_chunk, max_chunk: tokens of a chunk. Below, adding each chunk to the gradient of the
        kernel costs more than its products; above, products no longer gain.
      only_chunks, short_chunks: sizes of a chunk that need not be full: eighths where it is the
        only one, halves where it takes what whole chunks leave over. Each is compiled.
      min_short_chunk, min_short_logits: tokens and logits of the smallest of these sizes. A product
        of fewer tokens is no faster, and the time that fewer logits take is not worth what one more
        size takes to compile.
      shared_logits: sentences times V up to which the contexts' part of their logits is made once
        for each sentence, not once for each token: a step of `codclm` on 16 segments takes 0.29 s
        so on two CPU cores, and 0.41 s otherwise.
      bound_by_parts: the logits' bound in the softmax is the largest product plus the largest bias,
        which spares a pass over all logits.
      stops_early: loops over tokens end with the longest sentence, at no cost on CPUs. On other
        platforms every step of such a loop would ask the host whether to go on.
    """

    chunk_logits: int = 2**26
    min_chunk: int = 128
    max_chunk: int = 4096
    only_chunks: int = 8
    short_chunks: int = 2
    min_short_chunk: int = 32
    min_short_logits: int = 2**16
    shared_logits: int = 2**24
    bound_by_parts: bool = False
    stops_early: bool = False

    def chunk_size(self, vocab_size: int) -> int:
        """Tokens in a chunk of the output layer, a power of two unless a bound is none."""
        tokens = self.chunk_logits // vocab_size
        return min(max(self.min_chunk, 1 << max(0, tokens.bit_length() - 1)), self.max_chunk)


ACCELERATOR = Plan()
CPU = Plan(chunk_logits=2**22, bound_by_parts=True, stops_early=True)


def default_plan() -> Plan:
    """The arrangement for the platform that JAX computes on by default."""
    return CPU if jax.default_backend() == "cpu" else ACCELERATOR
