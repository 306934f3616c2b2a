"""The models of `dclm_jax/models/` a second time: float64 numpy, one word after another.

Written from the equations of Ji et al. (2015, arXiv:1511.03962), Lin et al. (2015), Wang and Cho
(2015, arXiv:1511.03729) and Li et al. (2015, arXiv:1506.01057) for the tests to compare with: no
batches, no padding, no masks of positions, no fused products. Of the package only the names in the
parameter tree and the model's options are used. A document is a list of sentences, a sentence a
list of word ids.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

START, END = 0, 1

Vector = np.ndarray
States = list[tuple[Vector, ...]]
Document = Sequence[Sequence[int]]


class Dropout(NamedTuple):
    """One document's multipliers: embeddings [S, N, K], inputs of upper layers [S, N, H], features
    [S, N, D], contexts at the output layer [S, 1, E]; and of its source embeddings and inputs of
    upper layers, by the places at which its words are read."""

    embeddings: np.ndarray
    layers: Sequence[np.ndarray]
    features: np.ndarray
    contexts: np.ndarray | None
    source: Sequence[np.ndarray] = ()


class Reading(NamedTuple):
    """What a model makes of a document.

    Attributes:
      nll: for every sentence, -log p of its words and END, in nats.
      contexts: for every sentence, the context it is read with: c_{t-1} or d_{t-1} [H]; for
        drnnlm every layer's arrays [X, H]; for rnnlm and adclm (whose words have one each) [0];
        for larger contexts P times the counts of each of the n sentences before, oldest first,
        [C, P]; for autoencoders the state of the decoder, as of drnnlm.
      auxiliary: the further training objective, in nats.
      attention: of models whose tokens attend, for every sentence the weights of its targets [N, M]
        over h_{s,m} of the last sentences s (at first c_0 alone), or over the sentences before,
        oldest first; for pointer_drnnlm the share of the softmax, then the weights of the copies.
      probabilities: for every sentence of a model of words, p of all words at its targets [N, V].
    """

    nll: list[np.ndarray]
    contexts: list[np.ndarray]
    auxiliary: float
    attention: list[np.ndarray]
    probabilities: list[np.ndarray]


def sigmoid(x: Vector) -> Vector:
    return 1 / (1 + np.exp(-x))


def softmax(x: Vector) -> Vector:
    return np.exp(x - x.max()) / np.exp(x - x.max()).sum()


def attend(
    attention: dict[str, Any], query: Vector, values: Sequence[Vector], offsets: Any = 0.0
) -> tuple[Vector, Vector]:
    """The weights of values, one or more, under a query, and their weighted sum; keys have an
    offset each, or none."""
    keys = np.array([value @ attention["key"] for value in values]) + offsets
    scores = [attention["score"] @ np.tanh(query @ attention["query"] + key) for key in keys]
    weights = softmax(np.array(scores))
    return weights, sum(
        (weight * value for weight, value in zip(weights, values, strict=True)),
        start=np.zeros(len(values[0])),
    )


def gate_blocks(matrix: np.ndarray, gates: int) -> list[np.ndarray]:
    """The matrix (or bias) of every gate, from the fused one."""
    width = matrix.shape[-1] // gates
    return [matrix[..., g * width : (g + 1) * width] for g in range(gates)]


def input_matrix(layer: dict[str, Any]) -> np.ndarray:
    """The matrix that acts on the layer's whole input, [x, c] where there is a context (Eq. 5).

    In the models of Lin et al. words enter the first layer's gates as they are.
    """
    of_words = layer.get("input", np.eye(len(layer["bias"])))
    if "context" in layer:
        return np.concatenate([of_words, layer["context"]], axis=0)
    return of_words


def coupled_peephole_lstm(
    layer: dict[str, Any], x: Vector, state: tuple, squash: Callable = np.tanh
) -> tuple:
    h, c = state
    W_i, W_g, W_o = gate_blocks(input_matrix(layer), 3)
    U_i, U_g, U_o = gate_blocks(layer["recurrent"], 3)
    b_i, b_g, b_o = gate_blocks(layer["bias"], 3)
    i = sigmoid(x @ W_i + h @ U_i + c @ layer["peephole_input"] + b_i)
    f = 1 - i
    c = f * c + i * np.tanh(x @ W_g + h @ U_g + b_g)
    o = sigmoid(x @ W_o + h @ U_o + c @ layer["peephole_output"] + b_o)
    return o * squash(c), c


def lstm(layer: dict[str, Any], x: Vector, state: tuple, squash: Callable = np.tanh) -> tuple:
    h, c = state
    i, f, g, o = (
        x @ W + h @ U + b
        for W, U, b in zip(
            gate_blocks(input_matrix(layer), 4),
            gate_blocks(layer["recurrent"], 4),
            gate_blocks(layer["bias"], 4),
            strict=True,
        )
    )
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * squash(c), c


def lstm_linear_output(layer: dict[str, Any], x: Vector, state: tuple) -> tuple:
    return lstm(layer, x, state, squash=lambda c: c)


def gru(layer: dict[str, Any], x: Vector, state: tuple) -> tuple:
    (h,) = state
    W_z, W_r, W = gate_blocks(input_matrix(layer), 3)
    U_z, U_r = gate_blocks(layer["recurrent"], 2)
    b_z, b_r, b = gate_blocks(layer["bias"], 3)
    z = sigmoid(x @ W_z + h @ U_z + b_z)
    r = sigmoid(x @ W_r + h @ U_r + b_r)
    return ((1 - z) * h + z * np.tanh(x @ W + (r * h) @ layer["candidate"] + b),)


def rnn(layer: dict[str, Any], x: Vector, state: tuple) -> tuple:
    (h,) = state
    return (sigmoid(x @ input_matrix(layer) + h @ layer["recurrent"] + layer["bias"]),)


def htanh(layer: dict[str, Any], x: Vector, state: tuple) -> tuple:
    (h,) = state
    z = x @ input_matrix(layer) + h @ layer["recurrent"] + layer["bias"]
    return (np.clip(z, -1.0, 1.0),)


CELLS: dict[str, tuple[Callable, int]] = {
    "coupled_peephole_lstm": (coupled_peephole_lstm, 2),
    "lstm": (lstm, 2),
    "lstm_linear_output": (lstm_linear_output, 2),
    "gru": (gru, 1),
    "rnn": (rnn, 1),
    "htanh": (htanh, 1),
}


class Reader:
    """The parts every model shares: words, layers and the record of what was predicted."""

    def __init__(
        self, model: Any, params: dict[str, Any], dropout: Dropout | None, source: Document
    ):
        self.model = model
        self.params = params
        self.dropout = dropout
        self.source = source
        self.cell, self.num_states = CELLS[model.cell]
        self.W_o = params.get("output", {}).get("kernel", params.get("embedding", np.zeros(0)).T)
        self.nll: list[list[float]] = []
        self.contexts: list[np.ndarray] = []
        self.auxiliary: Any = 0.0
        self.attention: list[list[np.ndarray]] = []
        self.probabilities: list[list[np.ndarray]] = []

    def zero_states(self, layers: list[dict[str, Any]]) -> States:
        zero = np.zeros(self.model.hidden_dim)
        return [(zero,) * self.num_states for _ in layers]

    def embedding(self, word: int, t: int, n: int) -> Vector:
        x = self.params["embedding"][word]
        return x if self.dropout is None else x * self.dropout.embeddings[t, n]

    def step(self, states: States, x: Vector, t: int, n: int) -> States:
        """One word through the layers of the word-level stack."""
        masks = () if self.dropout is None else [mask[t, n] for mask in self.dropout.layers]
        return self.through(self.params["stack"], x, states, masks)

    def through(
        self, layers: list[dict[str, Any]], x: Vector, states: States, masks: Sequence = ()
    ) -> States:
        """One input through all layers, with these multipliers between them, if any."""
        new_states: States = []
        for index, layer in enumerate(layers):
            if index > 0:
                x = new_states[index - 1][0]
                if masks:
                    x = x * masks[index - 1]
            new_states.append(self.cell(layer, x, states[index]))
        return new_states

    def predict(
        self,
        features: Vector,
        W: np.ndarray,
        b: Any,
        target: int,
        t: int,
        n: int,
        copies: Sequence[tuple[float, int]] = (),
    ):
        """Records -log p[target] with p = softmax(W features + b); states of another width than
        tied embeddings are projected before. `copies` are pairs of a weight and a word: p[word]
        gets the weight, and the softmax is scaled to the rest."""
        if len(features) != len(W):
            features = features @ self.params["output"]["projection"]
        if self.dropout is not None:
            features = features * self.dropout.features[t, n]
        probabilities = softmax(features @ W + b) * (1 - sum(weight for weight, _ in copies))
        for weight, word in copies:
            probabilities[word] += weight
        self.nll[-1].append(-np.log(probabilities[target]))
        # The first position begins another sentence.
        self.probabilities += [[]] if n == 0 else []
        self.probabilities[-1].append(probabilities)

    def sentence(
        self, t: int, words: Sequence[int], states: States, context: Any = (), logits: Any = 0.0
    ) -> States:
        """Reads START and the words, each with the context beside its embedding, and predicts the
        words and END, with `logits` added; the states after the last word."""
        b = self.params["output"]["bias"] + logits
        self.nll.append([])
        for n, word, target in steps(words):
            x = np.concatenate([self.embedding(word, t, n), context])
            states = self.step(states, x, t, n)
            self.predict(states[-1][0], self.W_o, b, target, t, n)
        return states

    def result(self) -> Reading:
        nll, attention, probabilities = (
            list(map(np.array, record)) for record in (self.nll, self.attention, self.probabilities)
        )
        return Reading(nll, self.contexts, self.auxiliary, attention, probabilities)


def steps(sentence: Sequence[int]) -> list[tuple[int, int, int]]:
    """(position, input, target) for every prediction: START w1..wM gives w1..wM END."""
    return list(zip(range(len(sentence) + 1), [START, *sentence], [*sentence, END], strict=True))


def rnnlm(reader: Reader, document: Document) -> None:
    for t, sentence in enumerate(document):
        reader.contexts.append(np.zeros(0))
        reader.sentence(t, sentence, reader.zero_states(reader.params["stack"]))


def drnnlm(reader: Reader, document: Document) -> None:
    states = reader.zero_states(reader.params["stack"])
    for t, sentence in enumerate(document):
        reader.contexts.append(np.array([array for layer in states for array in layer]))
        states = reader.sentence(t, sentence, states)


def pointer_drnnlm(reader: Reader, document: Document) -> None:
    params, pointer = reader.params, reader.params["pointer"]
    states = reader.zero_states(params["stack"])
    earlier: list[tuple[Vector, int]] = []
    for t, sentence in enumerate(document):
        reader.contexts.append(np.array([array for layer in states for array in layer]))
        reader.nll.append([])
        reader.attention.append([])
        memory, entries = earlier[-reader.model.memory_targets :], []
        for n, word, target in steps(sentence):
            states = reader.step(states, reader.embedding(word, t, n), t, n)
            h = states[-1][0]
            scores = [(pointer["query"].T @ h) @ (pointer["key"].T @ h_m) for h_m, _ in memory]
            scores.append(pointer["sentinel"] @ h + pointer["sentinel_bias"])
            *copied, share = softmax(np.array(scores))
            reader.attention[-1].append(np.array([share, *copied]))
            copies = list(zip(copied, (w_m for _, w_m in memory), strict=True))
            reader.predict(h, reader.W_o, params["output"]["bias"], target, t, n, copies)
            entries.append((h, target))
        earlier += entries


def hrnnlm(reader: Reader, document: Document) -> None:
    params = reader.params
    d = params["initial_context"]
    sentence_states = reader.zero_states(params["sentence_stack"])
    for t, sentence in enumerate(document):
        reader.contexts.append(d)
        reader.sentence(t, sentence, reader.zero_states(params["stack"]), context=d)
        output = params["sentence_output"]
        word_probabilities = softmax(d @ output["kernel"] + output["bias"])
        bag = np.zeros(reader.model.embedding_dim)
        for word in sentence:
            loss = -np.log(word_probabilities[word])
            reader.auxiliary += reader.model.sentence_loss_weight * loss
            bag = bag + params["embedding"][word]
        sentence_states = reader.through(params["sentence_stack"], bag, sentence_states)
        d = sentence_states[-1][0]


def ccdclm(reader: Reader, document: Document) -> None:
    c = reader.params["initial_context"]
    for t, sentence in enumerate(document):
        reader.contexts.append(c)
        states = reader.zero_states(reader.params["stack"])
        c = reader.sentence(t, sentence, states, context=c)[-1][0]


def codclm(reader: Reader, document: Document) -> None:
    c = reader.params["initial_context"]
    for t, sentence in enumerate(document):
        reader.contexts.append(c)
        masks = None if reader.dropout is None else reader.dropout.contexts
        dropped = c if masks is None else c * masks[t, 0]
        of_context = dropped @ reader.params["output"]["context"]
        states = reader.zero_states(reader.params["stack"])
        c = reader.sentence(t, sentence, states, logits=of_context)[-1][0]


def adclm(reader: Reader, document: Document) -> None:
    params = reader.params
    attention, output = params["attention"], params["output"]
    n_most, A = reader.model.memory_sentences, reader.model.attention_dim
    # Of the sentence n before, ..., of the one before.
    offset_of = attention.get("offset", np.zeros(A)).reshape(n_most, A)[::-1]
    earlier: list[list[Vector]] = []
    for t, sentence in enumerate(document):
        reader.nll.append([])
        reader.attention.append([])
        reader.contexts.append(np.zeros(0))
        hidden = []
        states = reader.zero_states(params["stack"])
        values, offsets = [params["initial_context"]], np.zeros((1, A))
        if earlier:
            values = [h for words in earlier for h in words]
            offsets = [
                offset_of[len(earlier) - 1 - i] for i, words in enumerate(earlier) for _ in words
            ]
        for n, word, target in steps(sentence):
            weights, c = attend(attention, states[-1][0], values, offsets)
            reader.attention[-1].append(weights)
            states = reader.step(states, np.concatenate([reader.embedding(word, t, n), c]), t, n)
            h = states[-1][0]
            hidden.append(h)
            merged = h @ output["hidden"] + c @ output["context"] + output["hidden_bias"]
            reader.predict(np.tanh(merged), reader.W_o, 0.0, target, t, n)
        earlier = [*earlier, hidden][-n_most:]


def late_fusion(cell: str, layer: dict[str, Any], x: Vector, state: tuple, q: Vector, f: dict):
    """A step of an LSTM whose output sees q = W_p p beside its memory (Wang and Cho, 3.2)."""

    def expose(c: Vector) -> Vector:
        exposed = c + sigmoid(q @ f["gate"] + c @ f["gate"] + f["gate_bias"]) * q
        return exposed if cell == "lstm_linear_output" else np.tanh(exposed)

    step = coupled_peephole_lstm if cell == "coupled_peephole_lstm" else lstm
    return step(layer, x, state, expose)


def larger_context(reader: Reader, document: Document) -> None:
    model, params = reader.model, reader.params
    P, V, n = params["bag"].T, model.vocab_size, model.context_sentences
    W_p = params["fusion"]["context"]
    late, attends = model.name.endswith("lf"), "_att_" in model.name
    bag_of_all = "_bow_" in model.name

    def context_network(layer: dict[str, Any], inputs: list[Vector]) -> list[Vector]:
        state = (np.zeros(model.context_dim),) * reader.num_states
        hidden = []
        for x in inputs:
            state = reader.cell(layer, x, state)
            hidden.append(state[0])
        return hidden

    for t, sentence in enumerate(document):
        reader.nll.append([])
        reader.attention.append([])
        counts = [np.bincount(earlier, minlength=V) for earlier in document[max(0, t - n) : t]]
        # A sentence without words has no frequencies.
        frequencies = [count / max(count.sum(), 1) for count in counts]
        missing = [np.zeros(V)] * (n - len(counts))
        reader.contexts.append(np.array([P @ count for count in missing + counts]))

        annotations: list[Vector] = []
        p = np.zeros(model.context_dim)
        if bag_of_all and counts:
            count = np.sum(counts, axis=0)
            p = P @ (count / count.sum())
        elif counts:
            inputs = [P @ s for s in frequencies]
            annotations = context_network(params["context_stack"][0], inputs)
            p = annotations[-1]
        if attends and counts:
            reverse = context_network(params["reverse_context_stack"][0], inputs[::-1])[::-1]
            annotations = [np.concatenate(z) for z in zip(annotations, reverse, strict=True)]

        states = reader.zero_states(params["stack"])
        for i, word, target in steps(sentence):
            if attends:
                weights, p = np.zeros(0), np.zeros(2 * model.context_dim)
                if annotations:
                    weights, p = attend(params["attention"], states[-1][0], annotations)
                reader.attention[-1].append(weights)
            x = reader.embedding(word, t, i)
            if not late:
                states = reader.step(states, x + p @ W_p, t, i)
            else:
                *_, last = states
                states = reader.step(states, x, t, i)
                below = x
                if len(states) > 1:
                    below = states[-2][0]
                    if reader.dropout is not None:
                        below = below * reader.dropout.layers[-1][t, i]
                layer = params["stack"][-1]
                states[-1] = late_fusion(model.cell, layer, below, last, p @ W_p, params["fusion"])
            reader.predict(states[-1][0], reader.W_o, params["output"]["bias"], target, t, i)


def hashed_row(array: np.ndarray, history: int, V: int) -> np.ndarray:
    """The weights of a history in an array of hashed features: SplitMix64, in Python's integers."""
    x = (int(history) + 1) * 0x9E3779B97F4A7C15 % 2**64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
    x ^= x >> 31
    start = x % (len(array) - V + 1)
    return array[start : start + V]


def lin(reader: Reader, document: Document) -> None:
    """The three models of Lin et al. (2015): Eq. 4-10, whichever levels there are."""
    model, params = reader.model, reader.params
    V, H = model.vocab_size, model.hidden_dim
    has_sentences, has_words = "sentence_stack" in params, "stack" in params

    def hashed(name: str, histories: Sequence[int]) -> Vector:
        rows = [hashed_row(params[name], w, V) for w in histories] if model.hash_size else []
        return np.sum(rows, axis=0) if rows else np.zeros(V)

    layers = params.get("sentence_stack", [])
    sentence_states: States = [(np.full(H, 0.1),) for _ in layers]
    before: Sequence[int] = ()
    for t, sentence in enumerate(document):
        reader.nll.append([])
        hs = sentence_states[-1][0] if has_sentences else np.zeros(0)
        reader.contexts.append(hs)
        if has_words:
            states = reader.zero_states(params["stack"])
            for n, word, target in steps(sentence):
                x = np.concatenate([reader.embedding(word, t, n), hs])
                states = reader.step(states, x, t, n)
                b = params["output"]["bias"] + hashed("bigrams", [word])
                reader.predict(states[-1][0], reader.W_o, b, target, t, n)
        if has_sentences:
            output = params["sentence_output"]
            b = output["bias"] + hashed("sentence_bigrams", before)
            if not has_words:
                for word in sentence:
                    reader.predict(hs, output["kernel"], b, word, t, 0)
                reader.nll[-1].append(0.0)  # END is not predicted.
            else:
                probabilities = softmax(hs @ output["kernel"] + b)
                losses = [-np.log(probabilities[word]) for word in sentence]
                if losses:
                    reader.auxiliary += model.sentence_loss_weight * np.mean(losses)
            x = np.zeros(H)
            for word in sentence:
                x = x + params["sentence_embedding"][word]
            sentence_states = reader.through(layers, x, sentence_states)
            before = sentence


def autoencoder(reader: Reader, document: Document) -> None:
    """The three models of Li et al. (2015), Eq. 5-15."""
    model, params = reader.model, reader.params
    hierarchical, attends = model.name != "standard_autoencoder", "attention" in params
    source = [list(sentence) for sentence in reader.source]
    if model.reverse in ("documents", "words"):
        source = [sentence[::-1] for sentence in source]
    if model.reverse in ("documents", "sentences"):
        source = source[::-1]

    def encode_word(states: States, word: int, s: int, n: int) -> States:
        x, masks = params["embedding"][word], []
        if reader.dropout is not None:
            first, *masks = (mask[s, n] for mask in reader.dropout.source)
            x = x * first
        layers = params["word_encoder" if hierarchical else "encoder"]
        return reader.through(layers, x, states, masks)

    states = reader.zero_states(params["stack"])
    encoded = reader.zero_states(params["stack"])
    remembered = []
    for s, sentence in enumerate(source):
        if hierarchical:
            states = reader.zero_states(params["stack"])
        for n, word in enumerate([*sentence, END]):
            states = encode_word(states, word, s, n)
        if hierarchical:
            encoded = reader.through(params["sentence_encoder"], states[-1][0], encoded)
            remembered.append(encoded[-1][0])
    above = encoded if hierarchical else states

    def decide(ended: bool) -> None:
        logit = above[-1][0] @ params["ending"]["kernel"][:, 0] + params["ending"]["bias"][0]
        p = sigmoid(logit)
        reader.auxiliary -= np.log(p if ended else 1 - p)

    for t, sentence in enumerate(document):
        decide(ended=False)
        reader.contexts.append(np.array([array for layer in above for array in layer]))
        states = reader.sentence(t, sentence, above)
        if not hierarchical:
            above = states
            continue
        x = states[-1][0]
        if attends:
            _, m = attend(params["attention"], above[-1][0], remembered)
            x = np.concatenate([x, m])
        above = reader.through(params["sentence_decoder"], x, above)
    decide(ended=True)


READERS: dict[str, Callable[[Reader, Document], None]] = {
    "rnnlm": rnnlm,
    "drnnlm": drnnlm,
    "pointer_drnnlm": pointer_drnnlm,
    "hrnnlm": hrnnlm,
    "ccdclm": ccdclm,
    "codclm": codclm,
    "adclm": adclm,
    "rlm": rnnlm,
    **{
        f"rlm_{bags}_{fusion}": larger_context
        for bags in ("bow", "seqbow", "seqbow_att")
        for fusion in ("ef", "lf")
    },
    **dict.fromkeys(("rnn_lin", "rnnslm", "hrnnlm_two_step"), lin),
    **dict.fromkeys(
        (f"{kind}_autoencoder" for kind in ("standard", "hierarchical", "hierarchical_attention")),
        autoencoder,
    ),
}


def read(
    model: Any,
    params: dict[str, Any],
    document: Document,
    dropout: Dropout | None = None,
    source: Document | None = None,
) -> Reading:
    """Reads one document with the model of that name; `params` holds float64 numpy arrays. Without
    a source it is made of itself."""
    reader = Reader(model, params, dropout, document if source is None else source)
    READERS[model.name](reader, document)
    return reader.result()


def read_with_moving_params(
    model: Any, params_of_sentences: Sequence[Any], document: Document
) -> Reading:
    """Reads each sentence with parameters of its own: the contexts that earlier sentences made with
    theirs stay as they are. Complex, for slopes by complex steps."""
    live = jax.tree.map(lambda leaf: np.array(leaf, complex), params_of_sentences[0])

    def sentences() -> Iterator[Sequence[int]]:
        for params, words in zip(params_of_sentences, document, strict=True):
            jax.tree.map(lambda a, b: a.__setitem__(..., b), live, params)
            yield words

    reader = Reader(model, live, None, [])
    moving: Any = sentences()
    READERS[model.name](reader, moving)
    return reader.result()


def assert_gradient(
    gradient: Any, loss: Callable[[Any], complex], params: Any, rtol: float = 1e-9
) -> None:
    """Compares a gradient with the slopes of a loss, which must be an analytic function of numpy
    arrays, along a random direction for each of them: by complex steps, without any difference."""
    leaves, tree = jax.tree.flatten(jax.tree.map(np.asarray, params))
    rng, step = np.random.default_rng(2), 1e-30
    for index, slopes in enumerate(jax.tree.leaves(gradient)):
        direction = rng.normal(size=slopes.shape)
        moved = [*leaves]
        moved[index] = leaves[index] + 1j * step * direction
        expected = loss(jax.tree.unflatten(tree, moved)).imag / step
        np.testing.assert_allclose(np.vdot(slopes, direction), expected, rtol=rtol, atol=1e-12)
