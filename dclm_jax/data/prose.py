"""Raw prose into tokenised sentences: pysbd finds the sentences, sacremoses the words.

Sentence splitting is slow (about 0.2 MB/s), so longer input is spread over worker processes. A
worker is this file run as a script: unlike `multiprocessing` that works from any program, guarded
by `if __name__ == "__main__"` or not, notebooks and threads included.
"""

import collections
import concurrent.futures
import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator

Paragraphs = list[str]
Sentences = list[list[str]]

# The time pysbd takes grows with the square of the text it is given.
_MAX_CHARACTERS = 4_000
_BATCH_CHARACTERS = 500_000
_SENTENCE_BREAK = re.compile(r"(?<=[.!?])\s+")


def split_documents(documents: Iterable[Paragraphs]) -> Iterator[Sentences]:
    """Tokenised sentences of each document, in order.

    No sentence crosses a paragraph. Text beyond half a million characters is split by as many
    processes as there are CPU cores, with two batches a core in memory at most.

    Args:
      documents: each a list of paragraphs of running text.

    Raises:
      InputError: pysbd or sacremoses is not installed.
    """
    _require_libraries()
    batches = _batches(documents)
    head = list(itertools.islice(batches, 2))
    if len(head) < 2:
        for batch in head:
            yield from map(_Splitter(), batch)
        return
    num_workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2
    with concurrent.futures.ThreadPoolExecutor(num_workers) as pool:
        pending: collections.deque[concurrent.futures.Future[list[Sentences]]]
        pending = collections.deque()
        try:
            for batch in itertools.chain(head, batches):
                pending.append(pool.submit(_split_in_process, batch))
                if len(pending) >= 2 * num_workers:
                    yield from pending.popleft().result()
            while pending:
                yield from pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()


def _require_libraries() -> None:
    try:
        import pysbd  # noqa: F401
        import sacremoses  # noqa: F401
    except ImportError as error:
        from dclm_jax.errors import InputError

        raise InputError(f"raw prose needs {error.name}: pip install 'dclm_jax[text]'") from error


def _batches(documents: Iterable[Paragraphs]) -> Iterator[list[Paragraphs]]:
    batch, characters = [], 0
    for document in documents:
        batch.append(document)
        characters += sum(map(len, document))
        if characters >= _BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _split_in_process(batch: list[Paragraphs]) -> list[Sentences]:
    # -P: modules beside this file must not shadow others of the same name.
    done = subprocess.run(
        [sys.executable, "-P", __file__],
        input="".join(json.dumps(document) + "\n" for document in batch),
        capture_output=True,
        encoding="utf-8",
    )
    if done.returncode:
        raise RuntimeError(f"splitting sentences failed: {done.stderr.strip()}")
    return [json.loads(line) for line in done.stdout.split("\n") if line]


class _Splitter:
    def __init__(self):
        import pysbd
        import sacremoses

        self._segmenter = pysbd.Segmenter(language="en", clean=False)
        self._tokenizer = sacremoses.MosesTokenizer("en")

    def __call__(self, paragraphs: Paragraphs) -> Sentences:
        sentences = (
            [str(word) for word in self._tokenizer.tokenize(sentence, escape=False)]
            for paragraph in paragraphs
            for piece in _pieces(paragraph)
            for sentence in self._segmenter.segment(piece)
        )
        return [sentence for sentence in sentences if sentence]


def _pieces(paragraph: str) -> Iterator[str]:
    """Cuts an overlong paragraph after a full stop, or between words where there is none."""
    while len(paragraph) > _MAX_CHARACTERS:
        cut = 0
        for match in _SENTENCE_BREAK.finditer(paragraph, 0, _MAX_CHARACTERS):
            cut = match.end()
        cut = cut or paragraph.rfind(" ", 0, _MAX_CHARACTERS) + 1 or _MAX_CHARACTERS
        yield paragraph[:cut]
        paragraph = paragraph[cut:]
    yield paragraph


def _serve() -> None:
    split = _Splitter()
    for line in sys.stdin.buffer:
        print(json.dumps(split(json.loads(line))))


if __name__ == "__main__":
    _serve()
