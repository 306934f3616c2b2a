"""The peer DyNet, the toolkit of Ji et al. (2015), with its coupled LSTM with peepholes.

`CoupledLSTMBuilder` computes the same values as our `coupled_peephole_lstm` (f = 1 - i, full
matrices from c_{n-1} to i and from c_n to o). A layer's parameters are, in DyNet's order, x, h, c
-> i and the bias; x, h, c -> o and the bias; x, h -> g and the bias. Each matrix is the transpose
of our matrix.

The code follows good practice in DyNet: one graph per step, and one product per segment for the
output layer (`concatenate_to_batch`, `pickneglogsoftmax_batch`). The option "by_word" replaces the
product by one `pickneglogsoftmax` per target, as in the language models among DyNet's examples.
With "autobatch" DyNet batches equal operations of different segments.
"""

import time
from typing import Any

import numpy as np

from dclm_jax.benchmark.timing import Turn
from dclm_jax.benchmark.worker import Job, peak_memory
from dclm_jax.data.vocabulary import END, START

LEARNING_RATE, CLIP_NORM, EPSILON = 0.1, 5.0, 1e-20


def copied_layer(layer: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Our parameters of a layer in DyNet's order. If the layer reads a context, DyNet's x is our
    [x, c]."""
    inputs = layer["input"]
    if "context" in layer:
        inputs = np.concatenate([inputs, layer["context"]])
    x_i, x_g, x_o = np.split(inputs.T, 3)
    h_i, h_g, h_o = np.split(layer["recurrent"].T, 3)
    b_i, b_g, b_o = np.split(layer["bias"], 3)
    c_i, c_o = layer["peephole_input"].T, layer["peephole_output"].T
    return [x_i, h_i, c_i, b_i, x_o, h_o, c_o, b_o, x_g, h_g, b_g]


class Training:
    """RNNLM or CCDCLM with its AdaGrad trainer and batches; `turn` is one pass over the batches."""

    def __init__(self, job: Job):
        # DyNet allocates its memory when it is imported.
        self.memory_before = peak_memory()
        self.dy = dy = _import_dynet(job.options["autobatch"])
        self.by_word = job.options["by_word"]
        params, stack = job.params, job.params["stack"]
        # The trainer does not keep the collection alive.
        self.collection = collection = dy.ParameterCollection()
        layers = [copied_layer(layer) for layer in stack]
        input_dim, hidden_dim = layers[0][0].shape[1], layers[0][0].shape[0]
        self.lstm = dy.CoupledLSTMBuilder(len(stack), input_dim, hidden_dim, collection)
        for theirs, ours in zip(self.lstm.get_parameters(), layers, strict=True):
            for parameter, value in zip(theirs, ours, strict=True):
                parameter.set_value(np.ascontiguousarray(value))
        self.embedding = collection.lookup_parameters_from_numpy(params["embedding"])
        self.kernel = collection.parameters_from_numpy(params["output"]["kernel"].T)
        self.bias = collection.parameters_from_numpy(params["output"]["bias"])
        self.context = None
        if job.model == "ccdclm":
            self.context = collection.parameters_from_numpy(params["initial_context"])
        self.trainer = dy.AdagradTrainer(collection, LEARNING_RATE, EPSILON)
        self.trainer.set_clip_threshold(CLIP_NORM)
        self.batches = [[[w.tolist() for w in row] for row in rows] for rows in job.batches]

    def device(self) -> str:
        return "cpu, one thread"

    def memory(self) -> int:
        """Peak bytes of this process since the import of DyNet."""
        return peak_memory() - self.memory_before

    def turn(self) -> Turn:
        start = time.perf_counter()
        losses = [self.step(batch) for batch in self.batches]
        return Turn(time.perf_counter() - start, losses[0])

    def step(self, documents: list[list[list[int]]]) -> float:
        self.dy.renew_cg()
        tokens = sum(len(words) + 1 for document in documents for words in document)
        nll = self.dy.esum([self.nll(document) for document in documents])
        loss = nll / tokens
        loss.forward()
        loss.backward()
        self.trainer.update()
        return nll.value()

    def nll(self, document: list[list[int]]) -> Any:
        """Nats of a segment, as an expression of the graph."""
        dy, context = self.dy, self.context
        outputs: list[Any] = []
        targets: list[int] = []
        for words in document:
            inputs = [self.embedding[word] for word in (START, *words)]
            if context is not None:
                inputs = [dy.concatenate([x, context]) for x in inputs]
            hidden = self.lstm.initial_state().transduce(inputs)
            if context is not None:
                context = hidden[-1]
            outputs += hidden
            targets += [*words, END]
        if self.by_word:
            losses = [
                dy.pickneglogsoftmax(dy.affine_transform([self.bias, self.kernel, h]), target)
                for h, target in zip(outputs, targets, strict=True)
            ]
            return dy.esum(losses)
        logits = dy.affine_transform([self.bias, self.kernel, dy.concatenate_to_batch(outputs)])
        return dy.sum_batches(dy.pickneglogsoftmax_batch(logits, targets))


def _import_dynet(autobatch: bool) -> Any:
    """Configures and imports DyNet, which reads its configuration once per process, when it is
    imported."""
    import dynet_config  # pyright: ignore[reportMissingImports]

    dynet_config.set(random_seed=1, autobatch=int(autobatch))
    import dynet  # pyright: ignore[reportMissingImports]

    return dynet


def create(job: Job) -> Training:
    return Training(job)
