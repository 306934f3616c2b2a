"""A benchmark of rescoring n-best lists, against scoring every prefix as a document."""

import jax
import numpy as np

from dclm_jax.benchmark import workloads
from dclm_jax.benchmark.report import Goal, Row
from dclm_jax.benchmark.timing import alternate_work
from dclm_jax.benchmark.workloads import Setting
from dclm_jax.data.vocabulary import SPECIAL_TOKENS
from dclm_jax.evaluation.scoring import Scorer
from dclm_jax.reading.reader import Reader
from dclm_jax.rescoring.nbest import Segment
from dclm_jax.rescoring.search import search

DOCUMENTS, SENTENCES, HYPOTHESES = 155, 20, 10
SAMPLE = 8
"""Number of documents whose prefixes are scored as documents."""


def rescore_row(name: str, setting: Setting) -> list[Row]:
    """A benchmark of greedy search. The alternative scores, for each hypothesis, a document of the
    hypotheses chosen before and this hypothesis."""
    size = setting.size
    model = size.model("ccdclm")
    params = model.init(jax.random.key(setting.seed))
    rng = np.random.default_rng(setting.seed)
    texts = workloads.synthetic_documents(setting.seed, size.vocab_size, [SENTENCES] * DOCUMENTS)
    documents = [[_segment(words, size.vocab_size, rng) for words in text] for text in texts]
    reader, scorer = Reader(model, params), Scorer(model, params)

    def rescore() -> None:
        search([reader], documents, np.ones(1))

    def anew() -> None:
        for position in range(SENTENCES):
            prefixes = [
                [*(segment.hypotheses[0] for segment in document[:position]), words]
                for document in documents[:SAMPLE]
                for words in document[position].hypotheses
            ]
            for _ in scorer.score(iter(prefixes)):
                pass

    rounds = alternate_work({"rescore": rescore, "anew": anew}, setting.rounds)
    seconds = rounds.seconds
    extrapolated = seconds["anew"] * DOCUMENTS / SAMPLE
    return [
        Row(
            name,
            f"rescore {DOCUMENTS} documents of {SENTENCES} sentences with {HYPOTHESES} hypotheses "
            "under ccdclm",
            Goal(15, 15),
            extrapolated / seconds["rescore"],
            f"anew: every prefix scored as a document; extrapolated from {SAMPLE} documents "
            f"({seconds['anew']:.2f} s)",
            {"rescore_seconds": seconds["rescore"], "anew_seconds": extrapolated},
            (f"rescoring {seconds['rescore']:.2f} s, anew {extrapolated:.1f} s",),
            rounds.disturbed,
        )
    ]


def _segment(words: np.ndarray, vocab_size: int, rng: np.random.Generator) -> Segment:
    """An n-best list: a sentence, and hypotheses that differ from the sentence in one word."""
    hypotheses = np.tile(words, (HYPOTHESES, 1))
    places = rng.integers(len(words), size=HYPOTHESES - 1)
    others = rng.integers(len(SPECIAL_TOKENS), vocab_size, HYPOTHESES - 1)
    hypotheses[np.arange(1, HYPOTHESES), places] = others
    return Segment(list(hypotheses), np.zeros((HYPOTHESES, 0)))
