"""All that a report says of one run, and what tells measurements from one another."""

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from dclm_jax import files, storage
from dclm_jax.coherence.compare import Bootstrap, FirstSentence, compare
from dclm_jax.coherence.results import Coherence
from dclm_jax.errors import InputError
from dclm_jax.evaluation import context_ablation, perplexity
from dclm_jax.evaluation.permutations import Shuffle
from dclm_jax.evaluation.scoring import Document, Progress, WordScorer
from dclm_jax.language_model import LanguageModel

VERSION = 2
"""Of what `measure` gives: measurements of another version are made again."""

_ROUNDED = 0.0005
"""What rounding to three decimals moves a number by, at most."""


@dataclasses.dataclass(frozen=True)
class _Split:
    """What reports need of `Perplexity.to_json`."""

    perplexity: files.Nonnegative
    known_perplexity: files.Nonnegative
    bits_per_word: files.Nonnegative
    nll: files.Nonnegative
    tokens: files.Count
    vocabulary_size: files.Count
    oov_rate: files.Share
    own_oov_rate: files.Share | None = None


@dataclasses.dataclass(frozen=True)
class _Positions:
    """`significance.Sums.to_json`."""

    nll: list[list[files.Nonnegative]]
    count: list[list[files.Count]]


@dataclasses.dataclass(frozen=True)
class _Coherence(Coherence):
    """`measure_coherence`, and what it was measured of."""

    identity: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class _Measurement:
    """`measure`, and what it was measured of."""

    identity: dict[str, Any]
    valid: _Split
    test: _Split
    arrangements: dict[str, files.Nonnegative]
    by_token: _Positions
    by_sentence: _Positions
    by_document: list[files.Nonnegative]
    coherence: Coherence | None


@dataclasses.dataclass(frozen=True)
class _Adapted:
    """`measure_adapted`, the setting, and what it was measured of."""

    identity: dict[str, Any]
    setting: dict[str, files.Nonnegative]
    test: _Split
    coherence: Coherence | None


def measure(
    scorer: WordScorer,
    valid: Sequence[Document],
    test: Sequence[Document],
    *,
    replicates: int = 1000,
    pool: int = 0,
    keep_first: int = 0,
    seed: int = 0,
    on_document: Progress = lambda done, of: None,
) -> dict[str, Any]:
    """All that a report says of a model, as a JSON object.

    Args:
      scorer: of the model.
      valid, test: documents of the development and the test set.
      replicates, pool: test sets and permutations of the bootstrap; no test set leaves coherence
        out.
      keep_first: sentences at the start of each document that coherence does not permute; without
        any, accuracy is measured where the first sentence alone moves as well.
      seed: of all that is drawn.
      on_document: called with the documents of a part of the work done and in all.
    """
    positions = context_ablation.by_position(scorer, test, on_document=on_document)
    arrangements = {"own": positions.perplexity.perplexity}
    for name in context_ablation.ARRANGEMENTS:
        if name not in arrangements:
            arrangements[name] = context_ablation.rearranged(scorer, test, name, seed)
    return {
        "valid": perplexity.measure(scorer, valid).to_json(),
        "test": positions.perplexity.to_json(),
        "arrangements": arrangements,
        "by_token": positions.by_token.to_json(),
        "by_sentence": positions.by_sentence.to_json(),
        "by_document": positions.by_document.round(3).tolist(),
        "coherence": measure_coherence(
            scorer, test, replicates, pool, keep_first, seed, on_document=on_document
        ),
    }


def measure_adapted(
    scorer: WordScorer,
    test: Sequence[Document],
    *,
    on_document: Progress = lambda done, of: None,
    **options: int,
) -> dict[str, Any]:
    """What a report says of a model that adapts itself; `options` are those of `measure`."""
    measured = perplexity.measure(
        scorer, test, on_document=lambda done: on_document(done, len(test))
    )
    return {
        "test": measured.to_json(),
        "coherence": measure_coherence(scorer, test, **options, on_document=on_document),
    }


def measure_coherence(
    scorer: WordScorer,
    test: Sequence[Document],
    replicates: int,
    pool: int,
    keep_first: int,
    seed: int,
    *,
    block: int = 1,
    on_document: Progress = lambda done, of: None,
) -> dict[str, Any] | None:
    """The bootstrap, as a JSON object, or None without test sets; see `measure`. Blocks of `block`
    sentences are permuted."""
    if not replicates:
        return None
    bootstrap = Bootstrap(Shuffle(block, fix_first=keep_first), seed, replicates, pool)
    result = compare(scorer, test, bootstrap, on_document=on_document).result
    if not keep_first and block == 1:
        first = compare(scorer, test, FirstSentence(seed=seed), on_document=on_document).result
        result = dataclasses.replace(result, first_sentence=first)
    return result.to_json()


def keep(path: storage.PathLike, identity: dict[str, Any], result: dict[str, Any]) -> None:
    """Writes what was measured, and of what."""
    files.write_json(path, {"identity": identity, **result})


def read(path: storage.PathLike, identity: dict[str, Any], num_documents: int) -> dict[str, Any]:
    """What `keep` wrote.

    Args:
      path: the file.
      identity: of what is to be measured: its "options" are those of `measure`, and with
        "coherence_alone" it is `measure_coherence` that was kept, perhaps with a "block", and with
        "adapt" it is `measure_adapted` and the setting.
      num_documents: of the test set.
    """
    kind = _Adapted if "adapt" in identity else _Measurement
    kind = _Coherence if "coherence_alone" in identity else kind
    record = files.read_json(path, kind, exact=True)
    of_orders = record if isinstance(record, _Coherence) else record.coherence
    is_sound = (
        record.identity == identity
        and _has_options(of_orders, block=identity.get("block", 1), **identity["options"])
        and (not isinstance(record, _Measurement) or _agrees(record, num_documents))
    )
    if not is_sound:
        raise InputError(f"{path}: is not the measurement that is wanted, or damaged")
    # With defaults of what may be missing.
    result = _read_into(files.read_json(path, dict[str, Any]), record)
    del result["identity"]
    return result


def _read_into(written: dict[str, Any], record: Any) -> dict[str, Any]:
    """A JSON object with the values that a record has read of it, and the others as they are."""
    return written | {
        name: _read_into(written[name], value) if dataclasses.is_dataclass(value) else value
        for name, value in vars(record).items()
    }


def _has_options(
    result: Coherence | None,
    replicates: int,
    pool: int,
    keep_first: int,
    seed: int,
    block: int,
) -> bool:
    if result is None or not replicates:
        return result is None and not replicates
    found = (result.kind, result.replicates, result.pool, result.keep_first, result.seed)
    is_whole = (result.first_sentence is None) == (keep_first > 0 or block > 1)
    is_whole &= result.block == block
    is_whole &= None not in (result.sd, result.left_out)
    return is_whole and found == ("bootstrap", replicates, pool, keep_first, seed)


def _agrees(measured: _Measurement, num_documents: int) -> bool:
    """Whether the sums of a measurement are those of one test set."""
    places, test = (measured.by_token, measured.by_sentence), measured.test
    sizes = {len(row) for one in places for rows in (one.nll, one.count) for row in rows}
    lengths = {len(rows) for one in places for rows in (one.nll, one.count)}
    lengths.add(len(measured.by_document))
    if sizes != {len(context_ablation.BOUNDS)} or lengths != {num_documents}:
        return False
    # Of whole numbers without bound, and so exact.
    targets = [[sum(row) for row in one.count] for one in places]
    empty = any(
        nats and not count
        for one in places
        for row, counts in zip(one.nll, one.count, strict=True)
        for nats, count in zip(row, counts, strict=True)
    )
    nats = [sum(map(sum, one.nll)) for one in places] + [sum(measured.by_document)]
    rounded = _ROUNDED * num_documents * len(context_ablation.BOUNDS)
    return (
        not empty
        and targets[0] == targets[1]
        and min(targets[0]) > 0
        and sum(targets[0]) == test.tokens
        and np.allclose(nats, test.nll, atol=rounded, rtol=1e-5)
        and measured.arrangements.keys() == context_ablation.ARRANGEMENTS.keys()
        and measured.arrangements["own"] == test.perplexity
    )


def model_fingerprint(lm: LanguageModel) -> str:
    """Tells trained models from others, by their parameters or what their configuration says."""
    digest = hashlib.sha256(json.dumps(lm.config, sort_keys=True).encode())
    for leaf in jax.tree.leaves(lm.params):
        digest.update(np.asarray(leaf).tobytes())
    return digest.hexdigest()[:16]


def fingerprint(documents: Sequence[Document]) -> str:
    """Tells documents from others."""
    digest = hashlib.sha256()
    for document in documents:
        for ids in document:
            digest.update(np.asarray(ids, np.int32).tobytes())
            digest.update(b"\n")
        digest.update(b"\n")
    return digest.hexdigest()[:16]
