"""How computations are arranged on a platform, as one value that a model carries.

A plan changes speed and memory. Results are equal up to the rounding of sums; tests compare every
arrangement with the definition on a CPU.
"""

import dataclasses
from typing import Any

import jax


@dataclasses.dataclass(frozen=True)
class Plan:
    """An arrangement of computations; the defaults are for accelerators.

    Attributes:
      chunk_logits: maximum number of logits in a chunk of the output layer: 256 MiB, or the size of
        a CPU's cache.
      min_chunk, max_chunk: minimum and maximum number of tokens in a chunk. In smaller chunks,
        additions to the gradient of the kernel cost more than products; in larger chunks, products
        are no faster.
      only_chunks, short_chunks: number of sizes of a partial chunk: eighths of a chunk if it is the
        only chunk, halves if it takes the remainder of whole chunks. Each size is compiled.
      min_short_chunk, min_short_logits: minimum number of tokens and of logits of these sizes.
        Products of fewer tokens are no faster, and fewer logits do not repay another compilation.
      shared_logits: maximum of sentences times V at which the contexts' part of the logits is
        computed per sentence and not per token. With it, a training step of `codclm` on 16 segments
        takes 0.29 s on two CPU cores, and 0.41 s without.
      bound_by_parts: whether the softmax bounds logits by the largest product plus the largest
        bias, which saves a pass over all logits.
      stops_early: whether loops over tokens end with the longest sentence. This is free on CPUs; on
        other platforms the host would have to decide after every step.
      fuses_scans: whether the loop over tokens of a layer is one kernel (nn/fused.py), on TPUs
        with at least 64 MiB of VMEM.
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
    fuses_scans: bool = False

    def chunk_size(self, vocab_size: int) -> int:
        """The number of tokens in a chunk of the output layer."""
        tokens = self.chunk_logits // vocab_size
        return min(max(self.min_chunk, 1 << max(0, tokens.bit_length() - 1)), self.max_chunk)


ACCELERATOR = Plan()
TPU = Plan(fuses_scans=True)
CPU = Plan(chunk_logits=2**22, bound_by_parts=True, stops_early=True)


def plan_of(device: Any) -> Plan:
    """The arrangement for a device of JAX."""
    if device.platform == "cpu":
        return CPU
    is_new = device.device_kind not in ("TPU v2", "TPU v3", "TPU v4", "TPU v4 lite")
    return TPU if device.platform == "tpu" and is_new else ACCELERATOR


def default_plan() -> Plan:
    """The arrangement for the platform that JAX computes on by default."""
    return plan_of(jax.devices()[0])
