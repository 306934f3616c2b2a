"""Text -> documents -> ids on disk -> batches."""

from dclm_jax.data.batches import (
    Batch,
    TrainingBatches,
    length_bucket,
    pack_sentences,
)
from dclm_jax.data.corpus import Corpus, open_corpus, statistics_table
from dclm_jax.data.documents import Document
from dclm_jax.data.prepare import PrepareOptions, prepare
from dclm_jax.data.readers import TextReader, read_documents
from dclm_jax.data.vocabulary import END, START, UNKNOWN, Vocabulary

__all__ = [
    "END",
    "START",
    "UNKNOWN",
    "Batch",
    "Corpus",
    "Document",
    "PrepareOptions",
    "TextReader",
    "TrainingBatches",
    "Vocabulary",
    "length_bucket",
    "open_corpus",
    "pack_sentences",
    "prepare",
    "read_documents",
    "statistics_table",
]
