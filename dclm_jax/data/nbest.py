"""N-best lists: the hypotheses that a decoder gives for every segment, the one it likes best first.

A file as Moses writes it. Ids count segments from 0; names of features end in "=" and may have
several values; what follows the decoder's total score, such as word alignments, is left out.

    0 ||| the cat sat . ||| LM0= -12.1 TM0= -3.2 -4.1 ||| -7.9
    0 ||| the cat sit . ||| LM0= -13.0 TM0= -3.1 -4.0 ||| -8.2

A file as Kaldi writes `words_text`, where hypotheses count from 1; or a folder with such a file and
the costs of `KALDI_COSTS` that are there, by the same keys in the same order.

    words_text: utt7-1 the cat sat       acwt: utt7-1 312.5
                utt7-2 the cats at             utt7-2 311.9
"""

import itertools
import math
import pathlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from dclm_jax.data.documents import Line, read_lines
from dclm_jax.errors import InputError, shown

SEPARATOR = "|||"
LARGEST = 1e100
"""The largest feature, so that squares of features are finite."""
SCORE = "score"
"""The feature that a decoder's total score is."""
KALDI_WORDS = "words_text"
KALDI_COSTS = ("acwt", "lmwt.nolm", "lmwt.lmonly")
"""Acoustic cost, graph cost without the language model, and that of the language model: features
are their negatives."""


class Segment(NamedTuple):
    """The hypotheses of one segment.

    Attributes:
      id: as the list has it.
      hypotheses: K lists of words, none of them empty.
      features_KxF: float64, the features of `NBestList.names`; more is better.
    """

    id: str
    hypotheses: list[list[str]]
    features_KxF: np.ndarray


class NBestList(NamedTuple):
    """The segments of a list in its order, and the names of their F features."""

    path: str
    segments: list[Segment]
    names: tuple[str, ...]


class _Hypothesis(NamedTuple):
    """A line of a list: where it is, its key, whose it is, its words and its features by name."""

    place: str
    key: str
    segment: str
    words: list[str]
    features: dict[str, float]


def read_nbest(path: str) -> NBestList:
    """Reads a list of Moses, a list of Kaldi or a folder of Kaldi's, told apart by what is there.

    Raises:
      InputError: it cannot be read, or is something else; a hypothesis has no words or other
        features than those before it; ids are missing or out of order. The message names file and
        line.
    """
    folder = pathlib.Path(path)
    if folder.is_dir():
        hypotheses = _with_costs(folder)
    else:
        lines = read_lines(folder)
        first = next(lines)
        parse = _moses if SEPARATOR in first.text else _kaldi
        hypotheses = parse(itertools.chain([first], lines), path)
    segments: list[Segment] = []
    names: tuple[str, ...] | None = None
    for identifier, group in itertools.groupby(hypotheses, key=lambda one: one.segment):
        words, features = [], []
        for one in group:
            names = tuple(one.features) if names is None else names
            if tuple(one.features) != names:
                raise InputError(
                    f"{one.place}: has the features {_listed(one.features)}; expected those of the "
                    f"first hypothesis, {_listed(names)}"
                )
            if not one.words:
                raise InputError(f"{one.place}: the hypothesis has no words")
            words.append(one.words)
            features.append(list(one.features.values()))
        segments.append(Segment(identifier, words, np.array(features, np.float64)))
    return NBestList(path, segments, names or ())


def moses_line(index: int, words: Sequence[str], score: float) -> str:
    """A hypothesis of segment `index`, whose only feature is its score, as Moses would write it.

    Raises:
      InputError: a word is what separates the parts of the line.
    """
    if SEPARATOR in words:
        raise InputError(f"the text has the word {SEPARATOR}, which n-best lists cannot have")
    return f"{index} {SEPARATOR} {' '.join(words)} {SEPARATOR} {SEPARATOR} {score:.4f}\n"


def read_division(path: str, nbest: NBestList) -> list[range]:
    """Which segments of a list make which document: a line ID DOCUMENT for each of them.

    Returns:
      For each document its segments, as positions in the list.

    Raises:
      InputError: ids are not those of the list in its order, or a document comes twice; the
        message names file and line.
    """
    names: list[str] = []
    seen: set[str] = set()
    segments = nbest.segments
    for number, text in read_lines(pathlib.Path(path)):
        fields = text.split()
        if len(fields) != 2:
            raise InputError(f"{path}:{number}: is {shown(text)}; expected ID DOCUMENT")
        if number > len(segments):
            raise InputError(
                f"{path}:{number}: is one line too many; {nbest.path} has {len(segments)} segments"
            )
        expected, (identifier, name) = segments[number - 1].id, fields
        if identifier != expected:
            raise InputError(
                f"{path}:{number}: names segment {shown(identifier)}; expected {shown(expected)}, "
                f"which is number {number} of {nbest.path}"
            )
        if name in seen and name != names[-1]:
            raise InputError(
                f"{path}:{number}: document {shown(name)} is here again after another one; "
                "expected its segments together"
            )
        names.append(name)
        seen.add(name)
    if len(names) < len(segments):
        raise InputError(
            f"{path}: has {len(names)} lines; expected one for each of the {len(segments)} "
            f"segments of {nbest.path}"
        )
    ends = list(itertools.accumulate(len(list(group)) for _, group in itertools.groupby(names)))
    return [range(start, end) for start, end in itertools.pairwise([0, *ends])]


def read_sentences(path: str, nbest: NBestList) -> list[list[str]]:
    """References, or what another system has chosen: a line of words for each segment of a list.

    Raises:
      InputError: there is another number of lines, or one has no words.
    """
    sentences = []
    for number, text in read_lines(pathlib.Path(path)):
        sentences.append(text.split())
        if not sentences[-1]:
            raise InputError(f"{path}:{number}: holds no words; expected a sentence a line")
    if len(sentences) != len(nbest.segments):
        raise InputError(
            f"{path}: has {len(sentences)} lines; expected one for each of the "
            f"{len(nbest.segments)} segments of {nbest.path}"
        )
    return sentences


def _moses(lines: Iterable[Line], path: str) -> Iterator[_Hypothesis]:
    last = -1
    for number, text in lines:
        place = f"{path}:{number}"
        fields = [field.strip() for field in text.split(SEPARATOR)]
        if len(fields) < 4:
            raise InputError(
                f"{place}: has {len(fields)} fields; expected id ||| words ||| features ||| score"
            )
        identifier, words, features, score = fields[:4]
        allowed = {str(last), str(last + 1)} if last >= 0 else {"0"}
        if identifier not in allowed:
            raise InputError(
                f"{place}: the id is {shown(identifier)}; expected {' or '.join(sorted(allowed))}: "
                "ids count segments from 0 and leave none out"
            )
        last = int(identifier)
        values = {SCORE: _number(score, "score", place), **_moses_features(features, place)}
        yield _Hypothesis(place, identifier, identifier, words.split(), values)


def _moses_features(text: str, place: str) -> dict[str, float]:
    """The values by name; where a name has several they are NAME.1, NAME.2, ..."""
    groups: list[tuple[str, list[float]]] = []
    for token in text.split():
        if token.endswith(("=", ":")):
            groups.append((token[:-1], []))
            continue
        if not groups:
            groups.append(("f", []))
        groups[-1][1].append(_number(token, "feature", place))
    features = {}
    for name, values in groups:
        several = len(values) > 1
        for index, value in enumerate(values, 1):
            key = f"{name}.{index}" if several else name
            if key in features or key == SCORE:
                raise InputError(f"{place}: two features are called {shown(key)}")
            features[key] = value
    return features


def _kaldi(lines: Iterable[Line], path: str) -> Iterator[_Hypothesis]:
    seen: set[str] = set()
    segment, count = "", 0
    for number, text in lines:
        place = f"{path}:{number}"
        key, *words = text.split() or [""]
        identifier, _, rank = key.rpartition("-")
        if not identifier:
            raise InputError(
                f"{place}: is {shown(text)}; expected a segment's id, '-', the number of the "
                "hypothesis and its words, or id ||| words ||| features ||| score"
            )
        if identifier != segment:
            if identifier in seen:
                raise InputError(
                    f"{place}: segment {shown(identifier)} is here again after another one"
                )
            seen.add(identifier)
            segment, count = identifier, 0
        count += 1
        if rank != str(count):
            raise InputError(f"{place}: the key is {shown(key)}; expected {count} after '-'")
        yield _Hypothesis(place, key, identifier, words, {})


def _with_costs(folder: pathlib.Path) -> list[_Hypothesis]:
    path = folder / KALDI_WORDS
    if not path.is_file():
        raise InputError(f"{folder}: holds no {KALDI_WORDS}; expected a folder as Kaldi writes it")
    hypotheses = list(_kaldi(read_lines(path), str(path)))
    for name in KALDI_COSTS:
        if not (folder / name).is_file():
            continue
        costs = list(_costs(folder / name))
        for one, cost in zip(hypotheses, costs, strict=False):
            if cost.key != one.key:
                raise InputError(
                    f"{cost.place}: the key is {shown(cost.key)}; expected {shown(one.key)}, as at "
                    f"{one.place}"
                )
            one.features[name] = -cost.cost
        if len(costs) != len(hypotheses):
            raise InputError(
                f"{folder / name}: has {len(costs)} lines; expected one for each of the "
                f"{len(hypotheses)} of {path}"
            )
    return hypotheses


class _Cost(NamedTuple):
    place: str
    key: str
    cost: float


def _costs(path: pathlib.Path) -> Iterator[_Cost]:
    for number, text in read_lines(path):
        place = f"{path}:{number}"
        key, *values = text.split() or [""]
        if len(values) != 1:
            raise InputError(f"{place}: is {shown(text)}; expected a key and a number")
        yield _Cost(place, key, _number(values[0], "cost", place))


def _number(text: str, what: str, place: str) -> float:
    try:
        value = math.nan if "_" in text else float(text)
    except ValueError:
        value = math.nan
    if not abs(value) <= LARGEST:
        expected = f"a finite number, of at most {LARGEST:g}"
        raise InputError(f"{place}: a {what} is {shown(text)}; expected {expected}")
    return value


def _listed(names: Iterable[str]) -> str:
    return shown(", ".join(names) or "none")[1:-1]
