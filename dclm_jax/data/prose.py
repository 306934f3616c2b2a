"""Raw prose into tokenised sentences: pysbd finds the sentences, sacremoses the words.

Before that sacremoses may write curly quotes, long dashes and other punctuation in one way, as the
script normalize-punctuation.perl of Moses does.

Sentence splitting is slow (about 2,000 sentences a second), so longer input is spread over worker
processes. A worker is this file run as a script: unlike `multiprocessing` that works from any
program, guarded by `if __name__ == "__main__"` or not, notebooks and threads included.
"""

import collections
import concurrent.futures
import contextlib
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator

Paragraphs = list[str]
Sentences = list[list[str]]

# The time pysbd takes grows with the square of the text it is given.
_MAX_CHARACTERS = 4_000
_BATCH_CHARACTERS = 500_000
# pysbd uses more patterns than the 512 that Python keeps compiled: to compile them again and again
# takes nearly half of its time.
_KEPT_PATTERNS = 8_192
# pysbd takes a number that follows one of these to begin with it, and fails.
_SEPARATORS = dict.fromkeys(range(0x1C, 0x20), " ")
# What a worker is told.
_NORMALIZE = "normalize"
_SENTENCE_BREAK = re.compile(r"(?<=[.!?])\s+")


def paragraphs(pieces: Iterable[str]) -> Paragraphs:
    """Pieces of running text that have words, with single spaces between these."""
    return [" ".join(piece.split()) for piece in pieces if piece.strip()]


def split_documents(
    documents: Iterable[Paragraphs], *, normalize: bool = False
) -> Iterator[Sentences]:
    """Tokenised sentences of each document, in order.

    No sentence crosses a paragraph. Text beyond half a million characters is split by as many
    processes as there are CPU cores, with two batches a core in memory at most.

    Args:
      documents: each a list of paragraphs of running text.
      normalize: first write punctuation as Moses does.

    Raises:
      InputError: pysbd or sacremoses is not installed.
    """
    _require_libraries()
    batches = _batches(documents)
    head = list(itertools.islice(batches, 2))
    if len(head) < 2:
        for batch in head:
            yield from map(_Splitter(normalize), batch)
        return
    num_workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2
    of_thread = threading.local()

    def split(batch: list[Paragraphs]) -> list[Sentences]:
        if not hasattr(of_thread, "split"):
            of_thread.split = workers.enter_context(_worker(normalize))
        return list(map(of_thread.split, batch))

    with (
        contextlib.ExitStack() as workers,
        # It starts a thread, and with it a process, only when no other one is free.
        concurrent.futures.ThreadPoolExecutor(num_workers) as pool,
    ):
        pending: collections.deque[concurrent.futures.Future[list[Sentences]]]
        pending = collections.deque()
        try:
            for batch in itertools.chain(head, batches):
                pending.append(pool.submit(split, batch))
                if len(pending) >= 2 * num_workers:
                    yield from pending.popleft().result()
            while pending:
                yield from pending.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


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


@contextlib.contextmanager
def _worker(normalize: bool) -> Iterator[Callable[[Paragraphs], Sentences]]:
    """A process that reads a document a line and answers each before it reads the next."""
    # -P: modules beside this file must not shadow others of the same name.
    command = [sys.executable, "-P", __file__, *([_NORMALIZE] if normalize else [])]
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as errors,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, encoding="utf-8"
        ) as process,
    ):

        def split(document: Paragraphs) -> Sentences:
            assert process.stdin and process.stdout
            answer = ""
            with contextlib.suppress(BrokenPipeError):
                print(json.dumps(document), file=process.stdin, flush=True)
                answer = process.stdout.readline()
            if not answer.endswith("\n"):
                # One that has died cannot take what was still to be written to it.
                process.communicate()
                errors.seek(0)
                raise RuntimeError(f"splitting sentences failed: {errors.read().strip()}")
            return json.loads(answer)

        yield split


def word_tokenizer(*, normalize: bool = False) -> Callable[[str], list[str]]:
    """What finds the words of sentences that are known to be such, see `split_documents`.

    Raises:
      InputError: pysbd or sacremoses is not installed.
    """
    _require_libraries()
    import sacremoses

    tokenizer = sacremoses.MosesTokenizer("en")
    written = _written(normalize)
    return lambda text: [str(word) for word in tokenizer.tokenize(written(text), escape=False)]


def _written(normalize: bool) -> Callable[[str], str]:
    import sacremoses

    return sacremoses.MosesPunctNormalizer("en").normalize if normalize else str


class _Splitter:
    def __init__(self, normalize: bool):
        import pysbd

        self._segmenter = pysbd.Segmenter(language="en", clean=False)
        self._words = word_tokenizer()
        self._written = _written(normalize)

    def __call__(self, paragraphs: Paragraphs) -> Sentences:
        sentences = (
            self._words(sentence)
            for paragraph in paragraphs
            for piece in _pieces(self._written(paragraph.translate(_SEPARATORS)))
            for sentence in self._segmenter.segment(piece)
        )
        return [sentence for sentence in sentences if sentence]


def _pieces(paragraph: str) -> Iterator[str]:
    """Cuts an overlong paragraph after a full stop, or between words where there is none."""
    begin = 0
    while len(paragraph) - begin > _MAX_CHARACTERS:
        end = begin + _MAX_CHARACTERS
        breaks = [match.end() for match in _SENTENCE_BREAK.finditer(paragraph, begin, end)]
        cut = breaks[-1] if breaks else paragraph.rfind(" ", begin, end) + 1 or end
        yield paragraph[begin:cut]
        begin = cut
    yield paragraph[begin:]


def _serve() -> None:
    re.__dict__["_MAXCACHE"] = _KEPT_PATTERNS
    split = _Splitter(_NORMALIZE in sys.argv)
    for line in sys.stdin.buffer:
        print(json.dumps(split(json.loads(line))), flush=True)


if __name__ == "__main__":
    _serve()
