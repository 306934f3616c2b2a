"""All that a report says of one run, and what tells measurements from one another."""

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from dclm_jax.evaluation import coherence, context, perplexity
from dclm_jax.evaluation.scoring import Document, WordScorer
from dclm_jax.language_model import LanguageModel

VERSION = 1
"""Of what `measure` gives: measurements of another version are made again."""


def measure(
    scorer: WordScorer,
    valid: Sequence[Document],
    test: Sequence[Document],
    *,
    replicates: int = 1000,
    pool: int = 0,
    seed: int = 0,
    on_document: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """All that a report says of a model, as a JSON object.

    Args:
      scorer: of the model.
      valid, test: documents of the development and the test set.
      replicates, pool: test sets and permutations of the bootstrap; no test set leaves coherence
        out.
      seed: of all that is drawn.
      on_document: called with the documents of a part of the work done and in all.
    """
    positions = context.by_position(scorer, test, on_document=on_document)
    arrangements = {"own": positions.perplexity.perplexity}
    for name in context.ARRANGEMENTS:
        if name not in arrangements:
            arrangements[name] = context.rearranged(scorer, test, name, seed)
    counts = {"replicates": replicates, "pool": pool, "seed": seed}
    return {
        "valid": perplexity.measure(scorer, valid).to_json(),
        "test": positions.perplexity.to_json(),
        "arrangements": arrangements,
        "by_token": positions.by_token.to_json(),
        "by_sentence": positions.by_sentence.to_json(),
        "by_document": positions.by_document.round(3).tolist(),
        "coherence": coherence.bootstrap(scorer, test, **counts, on_document=on_document).to_json()
        if replicates
        else None,
    }


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
