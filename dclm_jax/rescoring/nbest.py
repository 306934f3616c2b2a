"""N-best lists: the hypotheses of a decoder for every segment, the 1-best hypothesis first.

A list of Moses has one hypothesis per line. Ids count segments from 0. Names of features end in
"=", with or without a space before their first value. A feature that a hypothesis lacks is 0. The
field of features may be empty in all lines, and all lines may lack the decoder's total score.
Fields after the total score, such as word alignments, are not read.

    0 ||| the cat sat . ||| LM0= -12.1 TM0= -3.2 -4.1 ||| -7.9
    0 ||| the cat sit . ||| LM0=-13.0 TM0=-3.1 -4.0 sparse_sit=1 ||| -8.2

A list of Kaldi is a file `words_text`, which numbers the hypotheses from 1, or a folder with this
file and any files of `KALDI_COSTS`, with equal keys in equal order.

    words_text: utt7-1 the cat sat       acwt: utt7-1 312.5
                utt7-2 the cats at             utt7-2 311.9

In both formats a hypothesis may have no words (silence).
"""

import itertools
import math
import pathlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from dclm_jax.data.text_files import TextLine, read_lines
from dclm_jax.errors import InputError, brief
from dclm_jax.log import logger

SEPARATOR = "|||"
SCORE = "score"
"""The name of the feature with the decoder's total score."""
KALDI_WORDS = "words_text"
KALDI_COSTS = ("acwt", "lmwt.nolm", "lmwt.lmonly")
"""Acoustic cost, graph cost without the language model, and cost of the language model. Features
are negative costs."""
_FAIRSEQ = re.compile(r"[ST]-\d+\t|[HDP]-\d+\t-?\d")
_MOST_MISSING = 5
"""Maximum number of features that a note names."""

Words = TypeVar("Words", list[str], np.ndarray)


class Segment(NamedTuple, Generic[Words]):
    """The K hypotheses of a segment.

    Attributes:
      hypotheses: K lists of words, or word ids int [M] without START and END; M may be 0.
      features_KxF: float64; higher is better.
      id: the id in the list.
    """

    hypotheses: Sequence[Words]
    features_KxF: np.ndarray
    id: str = ""


class NBestList(NamedTuple):
    """An N-best list.

    Attributes:
      segments: the segments in the order of the list.
      names: the names of the F features.
    """

    path: str
    segments: list[Segment[list[str]]]
    names: tuple[str, ...]


class _Hypothesis(NamedTuple):
    """A line of a list: its file and line number, the id of its segment, its words and the values
    of its features by name."""

    place: str
    segment: str
    words: list[str]
    features: dict[str, list[float]]


def read_nbest(path: str) -> NBestList:
    """Reads a list of Moses, a list of Kaldi or a folder of Kaldi, according to its content. A
    note in the log counts features that some hypotheses lack."""
    folder = pathlib.Path(path)
    lines: list[TextLine] = [] if folder.is_dir() else _lines_with_text(path, "hypothesis")
    if not lines:
        hypotheses = _kaldi_folder(folder)
    elif fairseq := next(filter(_FAIRSEQ.match, (line.text for line in lines)), None):
        lists = "grep ^H- FILE | sort -s -t- -k2,2n"
        fields = "awk -F'\\t' '{print substr($1,3) \" ||| \" $3 \" ||| ||| \" $2}'"
        raise InputError(
            f"{path}: is output of fairseq, with lines such as {brief(fairseq.split()[0])}; "
            f"convert it to a list of Moses: {lists} | {fields}"
        )
    elif SEPARATOR in lines[0].text:
        hypotheses = list(_moses(lines, path))
    else:
        hypotheses = list(_kaldi(lines, path))
    sizes = _sizes(hypotheses)
    names = [
        name if size == 1 else f"{name}.{number}"
        for name, size in sizes.items()
        for number in range(1, size + 1)
    ]
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        raise InputError(f"{path}: two features are called {brief(repeated[0])}; rename one")
    present = Counter(name for hypothesis in hypotheses for name in hypothesis.features)
    missing = {name: len(hypotheses) - present[name] for name in sizes}
    if sparse := [f"{brief(name)} in {count:,}" for name, count in missing.items() if count]:
        more = f" and {len(sparse) - _MOST_MISSING:,} more" if len(sparse) > _MOST_MISSING else ""
        logger.info(
            f"{path}: features that some of the {len(hypotheses):,} hypotheses lack count as "
            f"0 in these hypotheses: {', '.join(sparse[:_MOST_MISSING])}{more}"
        )
    absent = {name: [0.0] * size for name, size in sizes.items()}
    segments = []
    for identifier, group in itertools.groupby(hypotheses, key=lambda line: line.segment):
        members = list(group)
        values = [list(itertools.chain(*(absent | line.features).values())) for line in members]
        features_KxF = np.array(values, np.float64)
        segments.append(Segment([member.words for member in members], features_KxF, identifier))
    return NBestList(path, segments, tuple(names))


def moses_line(index: int, words: Sequence[str], score: float) -> str:
    """The line of a hypothesis of segment `index` in the format of Moses, without features."""
    if SEPARATOR in words:
        raise InputError(f"the text has {SEPARATOR}, the separator of n-best lists; replace it")
    return f"{index} {SEPARATOR} {' '.join(words)} {SEPARATOR} {SEPARATOR} {score:.4f}\n"


def read_division(path: str, nbest: NBestList) -> list[range]:
    """For each document the positions of its segments in a list, from a file with one line
    ID DOCUMENT per segment."""
    lines, segments = _lines_with_text(path, "segment"), nbest.segments
    documents: dict[str, list[int]] = {}
    for index, ((number, text), segment) in enumerate(zip(lines, segments, strict=False)):
        place, fields = f"{path}:{number}", text.split()
        if len(fields) != 2 or fields[0] != segment.id:
            raise InputError(
                f"{place}: is {brief(text)}; expected {brief(segment.id)} DOCUMENT, for segment "
                f"{index + 1} of {nbest.path}"
            )
        positions = documents.setdefault(fields[1], [])
        if positions and positions[-1] != index - 1:
            raise InputError(
                f"{place}: document {brief(fields[1])} continues after another document; put its "
                "segments together"
            )
        positions.append(index)
    _require_count(path, lines, len(segments), f"segments of {nbest.path}")
    return [range(positions[0], positions[-1] + 1) for positions in documents.values()]


def read_outputs(path: str, nbest: NBestList) -> list[list[str]]:
    """The output of another system: one line of words, possibly empty, per segment of a list."""
    lines = list(read_lines(pathlib.Path(path)))
    _require_count(path, lines, len(nbest.segments), f"segments of {nbest.path}")
    return [text.split() for _, text in lines]


def read_references(path: str, nbest: NBestList) -> list[list[str]]:
    """The references of a list, one line per segment; at least one reference has words."""
    references = read_outputs(path, nbest)
    if not any(references):
        raise InputError(
            f"{path}: all {len(references)} references are empty, so that there is no error rate; "
            "add words to at least one line"
        )
    return references


def _lines_with_text(path: str, what: str) -> list[TextLine]:
    lines = [line for line in read_lines(pathlib.Path(path)) if line.text.strip()]
    if not lines:
        raise InputError(f"{path}: has no line of text; expected one per {what}")
    return lines


def _require_count(path: str, lines: Sequence[TextLine], count: int, what: str) -> None:
    if len(lines) != count:
        raise InputError(
            f"{path}: has {len(lines)} lines; expected one for each of the {count} {what}"
        )


def _sizes(hypotheses: Sequence[_Hypothesis]) -> dict[str, int]:
    """The number of values of each feature, in the order of first occurrence."""
    first: dict[str, _Hypothesis] = {}
    for hypothesis in hypotheses:
        place, features = hypothesis.place, hypothesis.features
        if (SCORE in features) != (SCORE in hypotheses[0].features):
            has = "has a" if SCORE in features else "has no"
            raise InputError(
                f"{place}: {has} total score, unlike {hypotheses[0].place}; write a total score in "
                "every line or in no line"
            )
        for name, values in features.items():
            known = first.setdefault(name, hypothesis)
            if len(values) != (size := len(known.features[name])):
                raise InputError(
                    f"{place}: the number of values of the feature {brief(name)} is {len(values)}; "
                    f"expected {size}, as at {known.place}"
                )
    return {name: len(hypothesis.features[name]) for name, hypothesis in first.items()}


def _moses(lines: Iterable[TextLine], path: str) -> Iterator[_Hypothesis]:
    expected = ["0"]
    for number, text in lines:
        place = f"{path}:{number}"
        fields = [field.strip() for field in text.split(SEPARATOR)]
        if len(fields) < 2:
            raise InputError(f"{place}: has 1 field; expected id ||| words ||| features ||| score")
        identifier, words, named, score = (*fields, "", "")[:4]
        if identifier not in expected:
            raise InputError(
                f"{place}: the id is {brief(identifier)}; expected {' or '.join(expected)}: ids "
                "count segments from 0 without gaps"
            )
        expected = [identifier, str(int(identifier) + 1)]
        features = {SCORE: [_number(score, "score", place)]} if score else {}
        _add_moses_features(features, named, place)
        yield _Hypothesis(place, identifier, words.split(), features)


def _add_moses_features(features: dict[str, list[float]], text: str, place: str) -> None:
    """Adds the values by name."""
    values = None
    for token in text.split():
        name, mark, value = token.rpartition("=")
        if mark:
            if name in features:
                raise InputError(f"{place}: two features are called {brief(name)}; rename one")
            values = features[name] = []
        elif values is None:
            raise InputError(f"{place}: {brief(token)} has no name; write NAME= before it")
        if value:
            values.append(_number(value, "feature", place))
    for name, numbers in features.items():
        if not numbers:
            raise InputError(
                f"{place}: the feature {brief(name)} has no value; write a number after it or "
                "remove the name"
            )


def _kaldi(lines: Iterable[TextLine], path: str) -> Iterator[_Hypothesis]:
    seen: set[str] = set()
    segment, count = "", 0
    for number, text in lines:
        place = f"{path}:{number}"
        key, *words = text.split() or [""]
        identifier, _, rank = key.rpartition("-")
        if not identifier:
            raise InputError(
                f"{place}: is {brief(text)}; expected a segment's id, '-', the number of the "
                "hypothesis and its words, or id ||| words ||| features ||| score"
            )
        if identifier != segment:
            if identifier in seen:
                raise InputError(
                    f"{place}: segment {brief(identifier)} is divided; put its hypotheses together"
                )
            seen.add(identifier)
            segment, count = identifier, 0
        count += 1
        if rank != str(count):
            raise InputError(f"{place}: the key is {brief(key)}; expected {count} after '-'")
        yield _Hypothesis(place, identifier, words, {})


def _kaldi_folder(folder: pathlib.Path) -> list[_Hypothesis]:
    path = folder / KALDI_WORDS
    if not path.is_file():
        raise InputError(f"{folder}: has no file {KALDI_WORDS}; choose a folder written by Kaldi")
    lines = _lines_with_text(str(path), "hypothesis")
    hypotheses = list(_kaldi(lines, str(path)))
    for name in KALDI_COSTS:
        if not (folder / name).is_file():
            continue
        costs = _lines_with_text(str(folder / name), "hypothesis")
        for hypothesis, line, (number, text) in zip(hypotheses, lines, costs, strict=False):
            place, fields = f"{folder / name}:{number}", text.split()
            key = line.text.split()[0]
            if len(fields) != 2 or fields[0] != key:
                raise InputError(
                    f"{place}: is {brief(text)}; expected {brief(key)}, as at {hypothesis.place}, "
                    "and a number"
                )
            hypothesis.features[name] = [-_number(fields[1], "cost", place)]
        _require_count(str(folder / name), costs, len(lines), f"of {path}")
    return hypotheses


def _number(text: str, what: str, place: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"{place}: a {what} is {brief(text)}; expected a finite number")
    return value
