"""The peer PyTorch: `nn.LSTM` if the model allows it, otherwise a loop over tokens.

The code follows good practice in PyTorch. Batches are packed in advance and trimmed to their
longest sentence. Sentences are folded into the batch if no state crosses them. Only real positions
enter the output layer, and the optimizer is fused. The option "compile" compiles the output layer
and the loss with `torch.compile`, but not the recurrence: Dynamo does not support `nn.LSTM`, for
which oneDNN and cuDNN have kernels, and the token step of the ADCLM takes minutes to compile and
does not become faster.

The order of gates (i, f, g, o) is ours. Our single bias is `bias_ih`; `bias_hh` starts at zero.
"""

import abc
import itertools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
import torch.nn.functional as F  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]

from dclm_jax.data.vocabulary import END, START

from .timing import Turn
from .worker import PeerJob, process_memory, usable_cores

LEARNING_RATE, CLIP_NORM = 0.1, 5.0


class Block(NamedTuple):
    """Sentences that are read at once, one per column: tokens [N, R], lengths with END [R], and the
    indices into [N * R] and the columns of the real positions, both [F]."""

    tokens: Any
    lengths: Any
    positions: Any
    columns: Any

    def to(self, device: str) -> "Block":
        return Block(*(array.to(device, non_blocking=True) for array in self))


class Packed(NamedTuple):
    """A batch of documents: blocks; the targets [F] of the real positions of all blocks; and the
    number of documents."""

    blocks: list[Block]
    targets: Any
    num_documents: int

    def to(self, device: str) -> "Packed":
        return self._replace(
            blocks=[block.to(device) for block in self.blocks],
            targets=self.targets.to(device, non_blocking=True),
        )


def pack(documents: list[list[np.ndarray]], *, folded: bool) -> Packed:
    """A batch with one block of all sentences (`folded`), or one block per sentence number."""
    places = _by_place(documents)
    groups = [[words for place in places for words in place]] if folded else places
    blocks, targets = zip(*map(_pack_block, groups), strict=True)
    return Packed(
        blocks=list(blocks),
        targets=torch.from_numpy(np.concatenate(targets)),
        num_documents=len(documents),
    )


def _by_place(documents: list[list[np.ndarray]]) -> list[list[np.ndarray | None]]:
    """For each sentence number, the sentences of all documents; None for an ended document."""
    return list(map(list, itertools.zip_longest(*documents)))


def _pack_block(sentences: list[np.ndarray | None]) -> tuple[Block, np.ndarray]:
    """The block and its targets. The column of an ended document is a START without a target."""
    lengths = np.array([0 if words is None else len(words) + 1 for words in sentences])
    tokens = np.full((lengths.max(), len(sentences)), START)
    targets = np.full(tokens.shape, END)
    for column, words in enumerate(sentences):
        if words is not None:
            tokens[1 : len(words) + 1, column] = words
            targets[: len(words), column] = words
    mask = np.arange(len(tokens))[:, None] < lengths
    arrays = (tokens, np.maximum(lengths, 1), np.flatnonzero(mask), np.nonzero(mask)[1])
    return Block(*map(torch.from_numpy, arrays)), targets[mask]


def output_nll(features, weight, bias, targets, reduction: str):
    """Nats of the targets [F] from features [F, D]: their sum, or one value per target."""
    return F.cross_entropy(F.linear(features, weight, bias), targets, reduction=reduction)


class _Model(nn.Module, abc.ABC):
    """The part that all models share: `forward` returns the nats of a batch, and `features` the
    features [F, D] of the output layer."""

    folded = False

    def __init__(self, params: dict[str, Any]):
        super().__init__()
        self.embedding = nn.Embedding.from_pretrained(_tensor(params["embedding"]), freeze=False)
        self.output_weight = nn.Parameter(_tensor(self.output_kernel(params["output"]).T))
        bias = params["output"].get("bias")
        self.output_bias = None if bias is None else nn.Parameter(_tensor(bias))
        if "initial_context" in params:
            self.initial_context = nn.Parameter(_tensor(params["initial_context"]))

    def output_kernel(self, output: dict[str, np.ndarray]) -> np.ndarray:
        return output["kernel"]

    def forward(self, batch: Packed, output: Callable[..., Any], reduction: str):
        features = self.features(batch)
        return output(features, self.output_weight, self.output_bias, batch.targets, reduction)

    @abc.abstractmethod
    def features(self, batch: Packed) -> Any:
        """The features [F, D] of the real positions, in the order of the targets."""

    def first_context(self, batch: Packed) -> Any:
        return self.initial_context.expand(batch.num_documents, -1)


class _RNNLM(_Model):
    folded = True

    def __init__(self, params: dict[str, Any]):
        super().__init__(params)
        self.lstm = _lstm(params["stack"])

    def features(self, batch: Packed) -> Any:
        (block,) = batch.blocks
        hidden, _ = self.lstm(self.embedding(block.tokens))
        return hidden.flatten(0, 1)[block.positions]


class _CODCLM(_RNNLM):
    def output_kernel(self, output: dict[str, np.ndarray]) -> np.ndarray:
        return np.concatenate([output["kernel"], output["context"]])

    def features(self, batch: Packed) -> Any:
        (block,) = batch.blocks
        hidden, _ = self.lstm(self.embedding(block.tokens))
        # Columns are ordered by sentence, then by document.
        before = _last(hidden, block)[: -batch.num_documents]
        contexts = torch.cat([self.first_context(batch), before])
        # One wide product is as fast as adding the contexts' logits to the logits of every target.
        return torch.cat([hidden.flatten(0, 1)[block.positions], contexts[block.columns]], dim=1)


class _CCDCLM(_RNNLM):
    folded = False

    def features(self, batch: Packed) -> Any:
        context, features = self.first_context(batch), []
        for block in batch.blocks:
            x = self.embedding(block.tokens)
            hidden, _ = self.lstm(torch.cat([x, context.expand(x.shape[0], -1, -1)], dim=-1))
            context = _last(hidden, block)
            features.append(hidden.flatten(0, 1)[block.positions])
        return torch.cat(features)


class _ADCLM(_Model):
    """Two layers, read token by token, because each token attends to the previous sentence.

    All input products of a sentence are one product; each layer has one product per token.
    """

    def __init__(self, params: dict[str, Any]):
        super().__init__(params)
        first, second = params["stack"]
        attention, output = params["attention"], params["output"]
        self.weights = nn.ParameterDict(
            {
                "input": _tensor(first["input"]),
                "first": _tensor(np.concatenate([first["context"], first["recurrent"]])),
                "second": _tensor(np.concatenate([second["input"], second["recurrent"]])),
                "first_bias": _tensor(first["bias"]),
                "second_bias": _tensor(second["bias"]),
                "merge": _tensor(np.concatenate([output["hidden"], output["context"]])),
                "merge_bias": _tensor(output["hidden_bias"]),
                **{name: _tensor(attention[name]) for name in ("query", "key", "score")},
            }
        )

    def features(self, batch: Packed) -> Any:
        weights = self.weights
        memory, features = self.first_context(batch).unsqueeze(0), []
        hidden_from = torch.zeros(memory.shape[:2], device=memory.device)
        for block in batch.blocks:
            gates = torch.addmm(
                weights["first_bias"], self.embedding(block.tokens).flatten(0, 1), weights["input"]
            ).unflatten(0, block.tokens.shape)
            hidden, contexts = self._read(gates, memory, hidden_from)
            outputs = torch.cat([hidden, contexts], dim=-1).flatten(0, 1)[block.positions]
            merged = torch.addmm(weights["merge_bias"], outputs, weights["merge"])
            features.append(torch.tanh(merged))
            memory, hidden_from = hidden, _hidden_from(block.lengths, len(hidden))
        return torch.cat(features)

    def _read(self, gates: Any, memory: Any, hidden_from: Any) -> tuple[Any, Any]:
        """Top hidden states and contexts [N, B, H] of a sentence, from gates [N, B, 4H], the states
        of the sentence before [M, B, H], and 0 where they are real, else -inf, [M, B]."""
        weights = self.weights
        keys = memory @ weights["key"]
        zero = torch.zeros_like(memory[0])
        first, second = (zero, zero), (zero, zero)
        hidden, contexts = [], []
        for gates_n in gates:
            context = _attend(weights, second[0], memory, keys, hidden_from)
            inputs = torch.cat([context, first[0]], dim=1)
            first = _lstm_cell(torch.addmm(gates_n, inputs, weights["first"]), first[1])
            inputs = torch.cat([first[0], second[0]], dim=1)
            second = _lstm_cell(
                torch.addmm(weights["second_bias"], inputs, weights["second"]), second[1]
            )
            hidden.append(second[0])
            contexts.append(context)
        return torch.stack(hidden), torch.stack(contexts)


PEER_MODELS: dict[str, type[_Model]] = {
    "rnnlm": _RNNLM,
    "codclm": _CODCLM,
    "ccdclm": _CCDCLM,
    "adclm": _ADCLM,
}


def _hidden_from(lengths: Any, length: int) -> Any:
    """The terms added to the scores [M, B] of an attention: 0 for real positions, else -inf."""
    position = torch.arange(length, device=lengths.device)[:, None]
    return torch.where(position < lengths, 0.0, -torch.inf)


def _attend(weights: Any, query: Any, memory: Any, keys: Any, hidden_from: Any) -> Any:
    """The attention [B, H] of a query [B, H] to a memory [M, B, H] with keys [M, B, A]."""
    scores = torch.tanh(query @ weights["query"] + keys) @ weights["score"]
    attention = torch.softmax(scores + hidden_from, dim=0)
    return (attention.unsqueeze(-1) * memory).sum(0)


def _lstm_cell(gates: Any, cell: Any) -> tuple[Any, Any]:
    i, f, g, o = gates.chunk(4, dim=1)
    cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(cell), cell


def _lstm(layers: list[dict[str, np.ndarray]]) -> nn.LSTM:
    """`nn.LSTM` with our parameters. If ours reads a context, its first layer reads [x, c]."""
    inputs = [layer["input"] for layer in layers]
    if "context" in layers[0]:
        inputs[0] = np.concatenate([inputs[0], layers[0]["context"]])
    lstm = nn.LSTM(inputs[0].shape[0], layers[0]["recurrent"].shape[0], len(layers))
    with torch.no_grad():
        for index, layer in enumerate(layers):
            getattr(lstm, f"weight_ih_l{index}").copy_(_tensor(inputs[index].T))
            getattr(lstm, f"weight_hh_l{index}").copy_(_tensor(layer["recurrent"].T))
            getattr(lstm, f"bias_ih_l{index}").copy_(_tensor(layer["bias"]))
            getattr(lstm, f"bias_hh_l{index}").zero_()
    return lstm


def _last(hidden: Any, block: Block) -> Any:
    """The hidden state [R, H] after the last real token of each column."""
    return hidden[block.lengths - 1, torch.arange(hidden.shape[1], device=hidden.device)]


def _tensor(array: np.ndarray) -> Any:
    """A copy in row-major order, like a parameter of PyTorch, even if `array` is transposed."""
    return torch.from_numpy(np.array(array, order="C"))


class Contender(abc.ABC):
    """A model on a device and its batches; `turn` is one pass over the batches."""

    def __init__(self, job: PeerJob):
        torch.set_num_threads(usable_cores())
        self._device = "cuda" if job.accelerated and torch.cuda.is_available() else "cpu"
        self._rounds = job.precision == "bfloat16"
        if self._device == "cuda":
            # By default TF32, as in JAX.
            is_exact = job.precision == "highest"
            torch.set_float32_matmul_precision("highest" if is_exact else "high")
            torch.backends.cudnn.allow_tf32 = not is_exact
        kind = PEER_MODELS[job.model]
        self.model = kind(job.params).to(self._device)
        self.output = output_nll
        if job.options["compile"]:
            self.output = torch.compile(output_nll, dynamic=True)
        self.batches = [pack(documents, folded=kind.folded) for documents in job.batches]

    def device(self) -> str:
        return self._device

    def memory(self) -> int:
        """Peak bytes of the accelerator, or peak bytes of this process without its libraries."""
        if self._device == "cuda":
            return torch.cuda.max_memory_allocated()
        return process_memory() - _MEMORY_OF_LIBRARIES

    def turn(self) -> Turn:
        start = time.perf_counter()
        with torch.autocast(self._device, torch.bfloat16, enabled=self._rounds):
            losses = [self.step(batch.to(self._device)) for batch in self.batches]
        if self._device == "cuda":
            torch.cuda.synchronize()
        return Turn(time.perf_counter() - start, losses[0].item())

    @abc.abstractmethod
    def step(self, batch: Packed) -> Any:
        """Trains on or scores one batch, and returns the sum of its nats, a scalar."""


class Training(Contender):
    """Steps of AdaGrad on the loss per target, with a clipped norm of the gradient."""

    def __init__(self, job: PeerJob):
        super().__init__(job)
        # PyTorch has a fused AdaGrad only for CPUs.
        kind = {"fused": True} if self._device == "cpu" else {"foreach": True}
        self.optimizer = torch.optim.Adagrad(self.model.parameters(), lr=LEARNING_RATE, **kind)

    def step(self, batch: Packed) -> Any:
        self.optimizer.zero_grad(set_to_none=True)
        nll = self.model(batch, self.output, "sum")
        (nll / len(batch.targets)).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), CLIP_NORM)
        self.optimizer.step()
        return nll.detach()


class Scoring(Contender):
    """Scoring of every target without gradients; the nats are copied to the host."""

    def step(self, batch: Packed) -> Any:
        with torch.inference_mode():
            return self.model(batch, self.output, "none").cpu().sum(dtype=torch.float64)


_MEMORY_OF_LIBRARIES = process_memory()


def make_peer(job: PeerJob) -> Contender:
    return Scoring(job) if job.scores else Training(job)
