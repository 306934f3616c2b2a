"""Surprisal reduction by context: test words by their frequency in the training text.

    python -m configs.modern.vocabularies runs/vocabularies/*

Each argument is a folder with the runs words/rnnlm, words/pointer_drnnlm, subwords/rnnlm and
subwords/pointer_drnnlm of one corpus. The command writes vocabularies.json,
vocabularies_runs.json and vocabularies.png to the current folder. The commands of the runs are in
configs/modern/vocabularies.md.
"""

import itertools
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import dclm_jax
from dclm_jax.data.corpus import open_corpus
from dclm_jax.data.vocabulary import END_TOKEN
from dclm_jax.files import write_json
from dclm_jax.report.figures import Figure, Line, plot
from dclm_jax.scoring.score_types import DocumentScore
from dclm_jax.training.workdir import metrics_lines

BASELINE, MODEL = "rnnlm", "pointer_drnnlm"
VOCABULARIES = "words", "subwords"
_BOUNDS = {"never": 1, "1 to 9": 10, "10 to 99": 100, "100 or more": math.inf}
CLASSES = tuple(_BOUNDS)
"""Numbers of occurrences of a word in the training text."""
END_CLASS = "END"


class ClassSums(NamedTuple):
    """Sums over the test targets of one run by class; the last class is END.

    nats, targets, oov: float64 [classes + 1]: nats, numbers of targets, and of OOV words.
    """

    nats: np.ndarray
    targets: np.ndarray
    oov: np.ndarray

    @property
    def perplexity(self) -> float:
        return math.exp(self.nats.sum() / self.targets.sum())


Runs = Mapping[tuple[str, str], ClassSums]
"""The sums of the runs of a corpus by vocabulary and model."""


def class_of(count: int) -> int:
    """The index of the class of a word that occurs `count` times in the training text."""
    return int(np.searchsorted(list(_BOUNDS.values()), count, side="right"))


def sums_by_class(
    documents: Iterable[DocumentScore], counts: Mapping[str, int], unknown_token: str | None
) -> ClassSums:
    """The sums of scored documents. The text's own spelling of OOV words is left out."""
    sums = ClassSums(*np.zeros((3, len(CLASSES) + 1)))
    for sentence in itertools.chain.from_iterable(document.sentences for document in documents):
        targets = zip(sentence.tokens, sentence.log_probs, sentence.known, strict=True)
        for token, log_prob, known in targets:
            if token != unknown_token:
                index = class_of(counts.get(token, 0)) if token != END_TOKEN else len(CLASSES)
                sums.nats[index] -= log_prob
                sums.targets[index] += 1
                sums.oov[index] += not known
    return sums


def rows(runs: Runs) -> list[list[str]]:
    """A row per class, then END and all targets: number of targets; and for each vocabulary the
    share of OOV words, the nats per target of the model without context, the reduction of these
    nats by context, and the share of the class in the reduction over all targets."""
    table = []
    total = len(CLASSES) + 1
    for name, part in [
        *((name, slice(index, index + 1)) for index, name in enumerate((*CLASSES, END_CLASS))),
        ("all", slice(0, total)),
    ]:
        cells = [name]
        for vocabulary in VOCABULARIES:
            before, after = runs[vocabulary, BASELINE], runs[vocabulary, MODEL]
            saved, targets = before.nats - after.nats, before.targets[part].sum()
            if len(cells) == 1:
                cells.append(f"{targets:,.0f}")
            if not targets:
                cells += [""] * 4
                continue
            words = before.targets[: len(CLASSES)][part].sum()
            cells += [
                f"{100 * before.oov[part].sum() / words:.1f}" if words else "",
                f"{before.nats[part].sum() / targets:.2f}",
                f"{saved[part].sum() / targets:.3f}",
                f"{100 * saved[part].sum() / saved.sum():.1f}",
            ]
        table.append(cells)
    return table


def header() -> list[str]:
    """The header of `rows`, after the name of the corpus."""
    columns = ["occurrences in training", "test targets"]
    for name in VOCABULARIES:
        columns += [f"{name}: OOV, %", f"nats, `{BASELINE}`", "reduction by context"]
        columns += ["share of the reduction, %"]
    return columns


def figure(corpora: Mapping[str, Runs]) -> Figure:
    """The surprisal reduction per test word by class, a line per corpus and vocabulary."""
    lines = []
    for (corpus, runs), vocabulary in itertools.product(corpora.items(), VOCABULARIES):
        before, after = runs[vocabulary, BASELINE], runs[vocabulary, MODEL]
        saved = (before.nats - after.nats) / np.where(before.targets, before.targets, np.nan)
        lines.append(Line(f"{corpus}, {vocabulary}", range(len(CLASSES)), saved[:-1]))
    title = f"Surprisal reduction by context ({BASELINE} minus {MODEL})"
    x = "occurrences of the word in the training text"
    return Figure(title, x, "nats per word", lines, CLASSES)


def measured(folder: Path) -> tuple[dict[tuple[str, str], ClassSums], list[list[str]]]:
    """The sums of the runs of a corpus, and a row of facts per run."""
    subword_model = dclm_jax.restore(folder / VOCABULARIES[1] / BASELINE)
    vocabulary: Any = subword_model.vocabulary
    test = open_corpus(subword_model.facts.config["data"]["directory"], "test")
    documents = [
        [vocabulary.decode(ids.tolist()) for ids in test.document(index)]
        for index in range(test.num_documents)
    ]
    words: Iterable[str] = itertools.chain.from_iterable(itertools.chain.from_iterable(documents))
    characters = sum(len(word) + 1 for word in words if word != vocabulary.unknown_token)
    runs, facts = {}, []
    for kind, model in itertools.product(VOCABULARIES, (BASELINE, MODEL)):
        lm = dclm_jax.restore(folder / kind / model)
        sums = sums_by_class(lm.score(documents), vocabulary.word_counts, vocabulary.unknown_token)
        runs[kind, model], last = sums, metrics_lines(folder / kind / model)[-1]
        bits = sums.nats.sum() / math.log(2) / characters
        oov = 100 * sums.oov.sum() / sums.targets[:-1].sum()
        cells = [kind, f"`{model}`", f"{len(lm.vocabulary):,}", f"{last.step:,}"]
        cells += [f"{oov:.1f}", f"{sums.perplexity:.1f}"]
        facts.append([*cells, f"{bits:.3f}" if not oov else ""])
    return runs, facts


def main(folders: Sequence[str]) -> None:
    corpora = {Path(folder).name: measured(Path(folder)) for folder in folders}
    table = [[corpus, *row] for corpus, (runs, _) in corpora.items() for row in rows(runs)]
    write_json("vocabularies.json", {"header": ["corpus", *header()], "rows": table})
    columns = ["corpus", "vocabulary", "model", "V", "steps", "OOV, %"]
    columns += ["test perplexity", "bits per character"]
    facts = [
        [corpus, *row] for corpus, (_, rows_of_runs) in corpora.items() for row in rows_of_runs
    ]
    write_json("vocabularies_runs.json", {"header": columns, "rows": facts})
    plot(figure({corpus: runs for corpus, (runs, _) in corpora.items()}), "vocabularies.png")


if __name__ == "__main__":
    main(sys.argv[1:])
