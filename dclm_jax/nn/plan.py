"""The arrangement of computations on a platform, as one value that a model carries.

A plan changes speed and memory. Results are equal up to the rounding of sums; tests compare every
arrangement with the definition on a CPU.
"""

import dataclasses
from typing import Any

import jax


@dataclasses.dataclass(frozen=True)
class Plan:
    """An arrangement of computations; GPU, TPU and CPU below are the values for platforms.

    The times of TPUs are XLA's estimates of the compiled training step of `rnnlm` (two layers,
    H = 128, V = 10,003, 64 segments of five sentences) on a v5e.

    Attributes:
      chunk_logits: maximum number of logits in a chunk of the output layer: 256 MiB on GPUs, which
        read the fewest bytes with large chunks; the size of a CPU's cache; on TPUs 32 MiB, which
        stay in the memory of the core (3.9 ms instead of 4.5 ms).
      min_chunk, max_chunk: minimum and maximum number of tokens in a chunk. In smaller chunks,
        additions to the gradient of the kernel cost more than products; in larger chunks, products
        are no faster.
      only_chunks, short_chunks: number of sizes of a partial chunk: eighths of a chunk if it is the
        only chunk, halves if it takes the remainder of whole chunks. Each size is compiled.
      min_short_chunk, min_short_logits: minimum number of tokens and of logits of these sizes.
        Products of fewer tokens are no faster, and fewer logits do not repay another compilation.
      shared_logits: maximum of sentences times V at which the contexts' part of the logits is
        computed per sentence and not per token. A training step of `codclm` on 16 segments on
        two CPU cores takes 0.29 s, and 0.41 s if the part is computed per token.
      vocab_multiple: number to whose multiple the softmax of a training step pads V. On an H100,
        which computes products of unaligned matrices by slower kernels, the softmax of 30,000
        targets (D = 512, V = 10,003) and its gradient take 6.1 ms padded, and 11.1 ms unpadded.
      bound_by_parts: whether the softmax bounds logits by the largest product plus the largest
        bias, which saves a pass over all logits.
      bias_by_product: whether gradients of biases, of the softmax and of gates, are products of
        matrices. XLA computes a product of a vector and a matrix on TPUs element by element: 6.5 ms
        instead of 4.5 ms for the softmax; for gates with H = 512, 256 segments and bfloat16 40.0 ms
        instead of 37.7 ms. CPUs compute the sums faster.
      stops_early: whether loops over tokens end with the longest sentence. This is free on CPUs; on
        other platforms the host would have to decide after every step.
      max_round: maximum number of sentences per round of a loop over sentences in training; scoring
        has rounds of one. Rounds of five sentences take 3 to 5% less time on two CPU cores, because
        values for the backward pass are copied once per round. Each sentence of a round is compiled
        separately: on GPUs a round of one sentence compiles in half of the time of a round of five.
      unrolled_steps: number of steps per iteration of a loop over tokens. With four, an H100
        launches 448 kernels in such loops instead of 832 (`ccdclm`: 2,240 instead of 4,160), and a
        step of `ccdclm` on an H200 beside other work took 13.7 ms instead of 29.2 ms. With eight
        a step of `ccdclm` takes 6.5 ms instead of 7.0 ms on an H100, and of `rnnlm` the same time.
      repeats_products: whether the backward pass of a loop over tokens computes the products of the
        forward pass again, and does not read saved values. On a v5e a step of `rnnlm` with H = 512,
        256 segments and bfloat16 takes 40.0 ms instead of 45.1 ms and 1,590 MB instead of 2,830 MB.
      joins_gates: whether one tanh computes all gates of a cell whose inputs are known at the same
        time. XLA on CPUs vectorizes one function of an array, but not several functions of its
        slices. With joined gates the loops of `ccdclm` (`lstm`, 64 segments, H = 128) would launch
        2,640 kernels on an H100 instead of 2,240, and XLA's estimate for a v5e is 6.0 ms instead of
        4.8 ms.
      fuses_scans: whether a loop over tokens is one kernel (nn/fused.py), on TPUs with at least
        64 MiB of VMEM, if the configuration asks for it. A step of `adclm` takes 2.1 ms instead of
        15.7 ms by the kernels' memory traffic; their instructions, which no estimate has, take
        about 0.9 ms (2,150 and 5,950 bundles per token, forward and backward).
    """

    chunk_logits: int = 2**26
    min_chunk: int = 128
    max_chunk: int = 4096
    only_chunks: int = 8
    short_chunks: int = 2
    min_short_chunk: int = 32
    min_short_logits: int = 2**16
    shared_logits: int = 2**24
    vocab_multiple: int = 1
    bound_by_parts: bool = False
    bias_by_product: bool = False
    stops_early: bool = False
    max_round: int = 5
    unrolled_steps: int = 1
    repeats_products: bool = False
    joins_gates: bool = False
    fuses_scans: bool = False

    def chunk_size(self, vocab_size: int) -> int:
        """The number of tokens in a chunk of the output layer."""
        tokens = self.chunk_logits // vocab_size
        return min(max(self.min_chunk, 1 << max(0, tokens.bit_length() - 1)), self.max_chunk)

    def round_of(self, num_sentences: int) -> int:
        """The number of sentences per round, a divisor of `num_sentences`."""
        sizes = range(self.max_round, 0, -1)
        return next(size for size in sizes if num_sentences % size == 0)


GPU = Plan(vocab_multiple=128, max_round=1, unrolled_steps=4)
TPU = Plan(chunk_logits=2**23, bias_by_product=True, repeats_products=True)
TPU_V4 = Plan(bias_by_product=True, repeats_products=True)
CPU = Plan(chunk_logits=2**22, bound_by_parts=True, stops_early=True, joins_gates=True)


def plan_of(device: Any, *, fused_scan: bool = False) -> Plan:
    """The arrangement for a device of JAX; see `DocumentModel.fused_scan`."""
    if device.platform == "cpu":
        return CPU
    if device.platform == "tpu":
        is_old = device.device_kind in ("TPU v2", "TPU v3", "TPU v4", "TPU v4 lite")
        return TPU_V4 if is_old else dataclasses.replace(TPU, fuses_scans=fused_scan)
    return GPU


def default_plan(*, fused_scan: bool = False) -> Plan:
    """The arrangement for the platform that JAX computes on by default."""
    return plan_of(jax.devices()[0], fused_scan=fused_scan)
