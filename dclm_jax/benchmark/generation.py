"""Benchmarks of text generation: many documents at once against one by one, and beam search
against greedy search."""

from collections.abc import Callable
from functools import partial

import jax

from dclm_jax.benchmark import workloads
from dclm_jax.benchmark.report import Goal, Row
from dclm_jax.benchmark.timing import alternate_work
from dclm_jax.benchmark.workloads import Setting
from dclm_jax.data.vocabulary import END
from dclm_jax.decoding.choices import GREEDY, Decoding
from dclm_jax.decoding.generation import Limits, generate, random_keys
from dclm_jax.reading.reader import Reader, ReaderState

DOCUMENTS, ALONE = 64, 8
"""Number of documents generated at once, and number of those also generated one by one."""
SENTENCES, WORDS = 2, 24
BEAM = Decoding("beam", beam_width=5)

_NEVER = -1e4
"""Log-odds of END and of the end of a document, so that neither is generated."""

States = Callable[[Reader, Setting], ReaderState]
"""A function that returns the states of DOCUMENTS documents."""


def after_text(reader: Reader, setting: Setting) -> ReaderState:
    """The states of a language model after three sentences of each document."""
    vocab_size = reader.model.vocab_size
    return reader.after(workloads.synthetic_documents(setting.seed, vocab_size, [3] * DOCUMENTS))


def after_source(reader: Reader, setting: Setting) -> ReaderState:
    """The states of an autoencoder before documents whose sources have five sentences each."""
    vocab_size = reader.model.vocab_size
    sources = workloads.synthetic_documents(setting.seed, vocab_size, [5] * DOCUMENTS)
    return reader.open(DOCUMENTS, sources)


def generate_rows(model_name: str, states: States, name: str, setting: Setting) -> list[Row]:
    """Both benchmarks of generation. All texts reach their limits and so have equal lengths."""
    model = setting.size.model(model_name)
    params = model.init(jax.random.key(setting.seed))
    params["output"]["bias"] = params["output"]["bias"].at[END].set(_NEVER)
    if "ending" in params:
        params["ending"]["bias"] = params["ending"]["bias"] + _NEVER
    reader = Reader(model, params)
    state, limits = states(reader, setting), Limits(SENTENCES, WORDS)
    keys = random_keys([setting.seed] * DOCUMENTS, range(DOCUMENTS))
    single_states = [state.take([row]) for row in range(ALONE)]

    def at_once(decoding: Decoding) -> None:
        generate(state, decoding, [limits] * DOCUMENTS, keys)

    def one_by_one() -> None:
        for row, single_state in enumerate(single_states):
            generate(single_state, GREEDY, [limits], keys[row : row + 1])

    work = {"one by one": one_by_one, "greedy": partial(at_once, GREEDY)}
    work["beam"] = partial(at_once, BEAM)
    rounds = alternate_work(work, setting.rounds)
    tokens = SENTENCES * (WORDS + 1)
    documents = {"one by one": ALONE, "greedy": DOCUMENTS, "beam": DOCUMENTS}
    speeds = {
        label: documents[label] * tokens / seconds for label, seconds in rounds.seconds.items()
    }
    described = ", ".join(f"{label} {speed:,.0f} targets/s" for label, speed in speeds.items())
    details = {"tokens_per_second": speeds}
    return [
        Row(
            f"{name}_batch",
            f"generate {DOCUMENTS} documents at once under {model_name}",
            Goal(10, 10),
            speeds["greedy"] / speeds["one by one"],
            "speed of greedy search relative to one document at a time",
            details,
            (described,),
            rounds.disturbed,
        ),
        Row(
            f"{name}_beam",
            f"generate {DOCUMENTS} documents with beam width {BEAM.beam_width} under {model_name}",
            Goal(6, 6, at_most=True),
            rounds.seconds["beam"] / rounds.seconds["greedy"],
            "time relative to greedy search",
            details,
            disturbed=rounds.disturbed,
        ),
    ]
