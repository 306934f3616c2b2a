"""PyTorch on the same work: `nn.LSTM` where the model allows it, otherwise a loop over tokens.

Written as a competent user of PyTorch would: batches are packed beforehand and trimmed to their
longest sentence, sentences are folded into the batch where no state crosses them, only real
positions enter the output layer, and the optimizer is the fused one. With the option "compile" the
output layer and the loss go through `torch.compile`. The recurrence does not: Dynamo does not
support `nn.LSTM`, for which oneDNN and cuDNN have kernels, and the token step of the ADCLM takes
minutes to compile and gains nothing.

Gate order (i, f, g, o) is ours; our one bias is `bias_ih`, and `bias_hh` begins at zero.
"""

import abc
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
import torch.nn.functional as F  # pyright: ignore[reportMissingImports]
from torch import nn  # pyright: ignore[reportMissingImports]

from dclm_jax.benchmark.timing import Turn
from dclm_jax.benchmark.worker import Job, peak_memory, usable_cores
from dclm_jax.data.vocabulary import END, START

LEARNING_RATE, CLIP_NORM = 0.1, 5.0


class Block(NamedTuple):
    """Sentences that are read at once, a column each: tokens [N, R], lengths with END [R], and the
    real positions as indices into [N * R] and as columns, both [F]."""

    tokens: Any
    lengths: Any
    positions: Any
    columns: Any


class Packed(NamedTuple):
    """A batch of documents: blocks, and the targets [F] of the real positions of all of them."""

    blocks: list[Block]
    targets: Any
    num_documents: int

    def to(self, device: str) -> "Packed":
        blocks = [Block(*(a.to(device, non_blocking=True) for a in block)) for block in self.blocks]
        return Packed(blocks, self.targets.to(device, non_blocking=True), self.num_documents)


def pack(documents: list[list[np.ndarray]], *, folded: bool) -> Packed:
    """One block of all sentences (`folded`), or one for each place in a document."""
    places = [
        [document[place] if place < len(document) else None for document in documents]
        for place in range(max(map(len, documents)))
    ]
    groups = [[words for group in places for words in group]] if folded else places
    blocks, targets = zip(*map(_pack_block, groups), strict=True)
    return Packed(list(blocks), torch.from_numpy(np.concatenate(targets)), len(documents))


def _pack_block(sentences: list[np.ndarray | None]) -> tuple[Block, np.ndarray]:
    """The block and its targets; the column of a document that has ended is a START, uncounted."""
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
    """Nats of the targets [F] from features [F, D]: their sum, or each."""
    return F.cross_entropy(F.linear(features, weight, bias), targets, reduction=reduction)


class _LanguageModel(nn.Module, abc.ABC):
    """What the models share; `features` gives what enters the output layer, [F, D]."""

    folded = True

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


class _RNNLM(_LanguageModel):
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
        # One wide product was not slower than adding the contexts' logits to every token's.
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


class _ADCLM(_LanguageModel):
    """Two layers, token by token: attention stands between a token and the one before.

    All input products of a sentence are one; each layer makes one product a token.
    """

    folded = False

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
            memory = hidden
            position = torch.arange(len(memory), device=memory.device)[:, None]
            hidden_from = torch.where(position < block.lengths, 0.0, -torch.inf)
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
            scores = torch.tanh(second[0] @ weights["query"] + keys) @ weights["score"]
            attention = torch.softmax(scores + hidden_from, dim=0)
            context = (attention.unsqueeze(-1) * memory).sum(0)
            inputs = torch.cat([context, first[0]], dim=1)
            first = _lstm_cell(torch.addmm(gates_n, inputs, weights["first"]), first[1])
            inputs = torch.cat([first[0], second[0]], dim=1)
            second = _lstm_cell(
                torch.addmm(weights["second_bias"], inputs, weights["second"]), second[1]
            )
            hidden.append(second[0])
            contexts.append(context)
        return torch.stack(hidden), torch.stack(contexts)


MODELS: dict[str, type[_LanguageModel]] = {
    "rnnlm": _RNNLM,
    "codclm": _CODCLM,
    "ccdclm": _CCDCLM,
    "adclm": _ADCLM,
}


def _lstm_cell(gates: Any, cell: Any) -> tuple[Any, Any]:
    i, f, g, o = gates.chunk(4, dim=1)
    cell = torch.sigmoid(f) * cell + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(cell), cell


def _lstm(layers: list[dict[str, np.ndarray]]) -> nn.LSTM:
    """`nn.LSTM` with our parameters; its first layer reads [x, c] where ours has a context."""
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
    """A copy, laid out row by row like a parameter of PyTorch, also where `array` is transposed."""
    return torch.from_numpy(np.array(array, order="C"))


class Contender(abc.ABC):
    """A model on a device and its batches; `turn` is one pass over them."""

    def __init__(self, job: Job):
        torch.set_num_threads(usable_cores())
        self._device = "cuda" if job.accelerated and torch.cuda.is_available() else "cpu"
        if self._device == "cuda":
            # TF32, as JAX uses by default.
            torch.set_float32_matmul_precision("high")
        kind = MODELS[job.model]
        self.model = kind(job.params).to(self._device)
        self.output = output_nll
        if job.options["compile"]:
            self.output = torch.compile(output_nll, dynamic=True)
        self.batches = [pack(documents, folded=kind.folded) for documents in job.batches]

    def device(self) -> str:
        return self._device

    def memory(self) -> int:
        """Peak bytes: of the accelerator, or of this process beyond its libraries."""
        if self._device == "cuda":
            return torch.cuda.max_memory_allocated()
        return peak_memory() - _MEMORY_OF_LIBRARIES

    def turn(self) -> Turn:
        start = time.perf_counter()
        losses = [self.step(batch.to(self._device)) for batch in self.batches]
        if self._device == "cuda":
            torch.cuda.synchronize()
        return Turn(time.perf_counter() - start, losses[0].item())

    @abc.abstractmethod
    def step(self, batch: Packed) -> Any:
        """Works on one batch and returns the sum of its nats, a scalar."""


class Training(Contender):
    """Steps of AdaGrad on the loss per token, the gradient's norm clipped."""

    def __init__(self, job: Job):
        super().__init__(job)
        # PyTorch has the fused AdaGrad for CPUs alone.
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
    """Nats of every target, brought to the host, without gradients."""

    def step(self, batch: Packed) -> Any:
        with torch.inference_mode():
            return self.model(batch, self.output, "none").cpu().sum(dtype=torch.float64)


_MEMORY_OF_LIBRARIES = peak_memory()


def create(job: Job) -> Contender:
    return {"train": Training, "score": Scoring}[job.task](job)
