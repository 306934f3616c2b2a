"""N-best lists: the hypotheses that a decoder gives for every segment, the one it likes best first.

A file as Moses writes it. Ids count segments from 0. Names of features end in "=", with or without
a space before the first of their values. A hypothesis need not have every feature: a missing one is
0. Features may be missing altogether, and so may the decoder's total score, if every line lacks it.
What follows the total score, such as word alignments, is not read.

    0 ||| the cat sat . ||| LM0= -12.1 TM0= -3.2 -4.1 ||| -7.9
    0 ||| the cat sit . ||| LM0=-13.0 TM0=-3.1 -4.0 sparse_sit=1 ||| -8.2

A file as Kaldi writes `words_text`, where hypotheses count from 1; or a folder with such a file and
the costs of `KALDI_COSTS` that are there, by the same keys in the same order.

    words_text: utt7-1 the cat sat       acwt: utt7-1 312.5
                utt7-2 the cats at             utt7-2 311.9

In both a hypothesis may have no words, as where nothing is said.
"""

import itertools
import math
import pathlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from dclm_jax.data.documents import Line, read_lines
from dclm_jax.errors import InputError, shown

SEPARATOR = "|||"
LARGEST = 1e100
"""The largest feature, so that squares of features are finite."""
SCORE = "score"
"""The feature that a decoder's total score is."""
UNNAMED = "f"
"""The feature of values that stand before any name."""
_MOST_NOTES = 5
"""Sparse features that notes name."""
KALDI_WORDS = "words_text"
KALDI_COSTS = ("acwt", "lmwt.nolm", "lmwt.lmonly")
"""Acoustic cost, graph cost without the language model, and that of the language model: features
are their negatives."""


class Segment(NamedTuple):
    """The hypotheses of one segment.

    Attributes:
      id: as the list has it.
      hypotheses: K lists of words, which may be empty.
      features_KxF: float64, the features of `NBestList.names`; more is better.
    """

    id: str
    hypotheses: list[list[str]]
    features_KxF: np.ndarray


class NBestList(NamedTuple):
    """The segments of a list in its order.

    Attributes:
      path: of the list.
      segments: in the order of the list.
      names: of the F features.
      lines: of Moses' format, one per hypothesis, unchanged; empty for lists of Kaldi.
    """

    path: str
    segments: list[Segment]
    names: tuple[str, ...]
    lines: list[str]


class _Hypothesis(NamedTuple):
    """A line of a list: where it is, its key, its segment, its words, the values of its features by
    name, and its text."""

    place: str
    key: str
    segment: str
    words: list[str]
    features: dict[str, list[float]]
    text: str


def read_nbest(path: str, report: Callable[[str], None] = lambda line: None) -> NBestList:
    """Reads a list of Moses, a list of Kaldi or a folder of Kaldi's, told apart by what is there.

    Args:
      path: of the list.
      report: called with a line for each of the first features that some hypotheses lack.
    """
    folder = pathlib.Path(path)
    if folder.is_dir():
        hypotheses, lines = _with_costs(folder), []
    else:
        source = (line for line in read_lines(folder) if line.text.strip())
        first = next(source, None)
        if first is None:
            raise InputError(f"{path}: holds no hypotheses; expected an n-best list")
        is_moses = SEPARATOR in first.text
        hypotheses = list((_moses if is_moses else _kaldi)(itertools.chain([first], source), path))
        lines = [hypothesis.text for hypothesis in hypotheses] if is_moses else []
    sizes = _sizes(hypotheses)
    names = [name for feature, size in sizes.items() for name in _column_names(feature, size)]
    if repeated := [name for name, count in Counter(names).items() if count > 1]:
        raise InputError(f"{path}: two features are called {shown(repeated[0])}; rename one")
    _report_missing(path, hypotheses, sizes, report)
    absent = {feature: [0.0] * size for feature, size in sizes.items()}
    segments = []
    for identifier, group in itertools.groupby(hypotheses, key=lambda each: each.segment):
        members = list(group)
        values = [list(itertools.chain(*(absent | each.features).values())) for each in members]
        words = [member.words for member in members]
        segments.append(Segment(identifier, words, np.array(values, np.float64)))
    return NBestList(path, segments, tuple(names), lines)


def moses_line(index: int, words: Sequence[str], score: float) -> str:
    """A hypothesis of segment `index`, whose only feature is its score, as Moses would write it."""
    if SEPARATOR in words:
        raise InputError(f"the text has the word {SEPARATOR}, which n-best lists cannot have")
    return f"{index} {SEPARATOR} {' '.join(words)} {SEPARATOR} {SEPARATOR} {score:.4f}\n"


def read_division(path: str, nbest: NBestList) -> list[range]:
    """Which segments of a list make which document: a line ID DOCUMENT for each of them.

    Returns:
      For each document its segments, as positions in the list.
    """
    names: list[str] = []
    seen: set[str] = set()
    segments = nbest.segments
    lines = (line for line in read_lines(pathlib.Path(path)) if line.text.strip())
    for number, (line, text) in enumerate(lines, start=1):
        fields = text.split()
        if len(fields) != 2:
            raise InputError(f"{path}:{line}: is {shown(text)}; expected ID DOCUMENT")
        if number > len(segments):
            raise InputError(
                f"{path}:{line}: is one line too many; {nbest.path} has {len(segments)} segments"
            )
        expected, (identifier, name) = segments[number - 1].id, fields
        if identifier != expected:
            raise InputError(
                f"{path}:{line}: names segment {shown(identifier)}; expected {shown(expected)}, "
                f"which is number {number} of {nbest.path}"
            )
        if name in seen and name != names[-1]:
            raise InputError(
                f"{path}:{line}: document {shown(name)} is here again after another one; "
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
    """What another system has chosen: a line of words, or an empty one, per segment of a list."""
    sentences = [text.split() for _, text in read_lines(pathlib.Path(path))]
    if len(sentences) != len(nbest.segments):
        raise InputError(
            f"{path}: has {len(sentences)} lines; expected one for each of the "
            f"{len(nbest.segments)} segments of {nbest.path}"
        )
    return sentences


def read_references(path: str, nbest: NBestList) -> list[list[str]]:
    """As `read_sentences`, to measure against: error rates are relative to the words of all."""
    references = read_sentences(path, nbest)
    if not any(references):
        raise InputError(
            f"{path}: all {len(references)} references are empty, so that there is no error rate; "
            "expected words in one line at least"
        )
    return references


def require_extensible(nbest: NBestList, names: Iterable[str]) -> None:
    """Raises an `InputError` unless `extended_lines` can add features of these names."""
    if not nbest.lines:
        raise InputError(
            f"{nbest.path}: is a list of Kaldi, which has no place for further features; expected "
            "id ||| words ||| features ||| score"
        )
    for name in names:
        if name.split() != [name] or SEPARATOR in name:
            raise InputError(
                f"{shown(name)} cannot be the name of a feature in {nbest.path}: rename the run "
                f"so that its name has no white space and no {SEPARATOR}"
            )


def extended_lines(
    nbest: NBestList, names: Sequence[str], values: Iterable[np.ndarray]
) -> list[str]:
    """The lines of a list of Moses with further features after those that are there.

    All else is unchanged. The names are spelled as the first named feature of the list: "NAME=1" if
    its value follows without a space, else "NAME= 1".

    Args:
      nbest: the list.
      names: of L features.
      values: for each segment float [K, L].
    """
    require_extensible(nbest, names)
    rows = [row for values_KxL in values for row in values_KxL.tolist()]
    fields = (field for line in nbest.lines for field in line.split(SEPARATOR)[2:3])
    named = (token for field in fields for token in field.split() if "=" in token)
    gap = " " if next(named, "=").endswith("=") else ""
    lines = []
    for number, (line, row) in enumerate(zip(nbest.lines, rows, strict=True), start=1):
        for name, value in zip(names, row, strict=True):
            if not abs(value) <= LARGEST:
                raise InputError(
                    f"{nbest.path}:{number}: the feature {shown(name)} is {value} for this "
                    "hypothesis; expected a finite number"
                )
        features = [f"{name}={gap}{value:.6f}" for name, value in zip(names, row, strict=True)]
        lines.append(_extended(line, " ".join(features)))
    return lines


def _extended(line: str, features: str) -> str:
    """The line with these features at the end of its third field."""
    text = line.rstrip("\r\n")
    line_end = line[len(text) :]
    identifier, words, *fields = text.split(SEPARATOR)
    if not fields:
        return f"{text} {SEPARATOR} {features}{line_end}"
    before = fields[0].rstrip()
    after = fields[0][len(before) :] or " " * (len(fields) > 1)
    fields[0] = f"{before} {features}{after}"
    return SEPARATOR.join([identifier, words, *fields]) + line_end


def _sizes(hypotheses: Sequence[_Hypothesis]) -> dict[str, int]:
    """How many values each feature has, in the order in which features first appear."""
    first: dict[str, _Hypothesis] = {}
    for hypothesis in hypotheses:
        place, features = hypothesis.place, hypothesis.features
        if (SCORE in features) != (SCORE in hypotheses[0].features):
            has = "has a" if SCORE in features else "has no"
            raise InputError(
                f"{place}: {has} total score, unlike {hypotheses[0].place}; expected one in every "
                "line or in none"
            )
        for name, values in features.items():
            known = first.setdefault(name, hypothesis)
            size = len(known.features[name])
            if len(values) != size:
                raise InputError(
                    f"{place}: the feature {shown(name)} has {_counted(len(values))}; expected "
                    f"{size}, as at {known.place}"
                )
    return {name: len(hypothesis.features[name]) for name, hypothesis in first.items()}


def _counted(values: int) -> str:
    return "1 value" if values == 1 else f"{values} values"


def _report_missing(
    path: str,
    hypotheses: Sequence[_Hypothesis],
    features: Iterable[str],
    report: Callable[[str], None],
) -> None:
    present = Counter(name for hypothesis in hypotheses for name in hypothesis.features)
    sparse = [name for name in features if present[name] < len(hypotheses)]
    for name in sparse[:_MOST_NOTES]:
        report(
            f"note: {path}: the feature {shown(name)} is missing in "
            f"{len(hypotheses) - present[name]:,} of {len(hypotheses):,} hypotheses and counts as "
            "0 there"
        )
    if more := sparse[_MOST_NOTES:]:
        report(f"note: {path}: {len(more):,} more features are missing in some hypotheses")


def _column_names(feature: str, size: int) -> list[str]:
    """The names of the values of a feature: NAME, or NAME.1, NAME.2, ... of several."""
    return [feature] if size == 1 else [f"{feature}.{index}" for index in range(1, size + 1)]


def _moses(lines: Iterable[Line], path: str) -> Iterator[_Hypothesis]:
    last = -1
    for number, text in lines:
        place = f"{path}:{number}"
        fields = [field.strip() for field in text.split(SEPARATOR)]
        if len(fields) < 2:
            raise InputError(f"{place}: has 1 field; expected id ||| words ||| features ||| score")
        identifier, words, features, score = (*fields, "", "")[:4]
        allowed = {str(last), str(last + 1)} if last >= 0 else {"0"}
        if identifier not in allowed:
            raise InputError(
                f"{place}: the id is {shown(identifier)}; expected {' or '.join(sorted(allowed))}: "
                "ids count segments from 0 and leave none out"
            )
        last = int(identifier)
        total = {SCORE: [_number(score, "score", place)]} if score else {}
        named = _moses_features(features, place, total)
        yield _Hypothesis(place, identifier, identifier, words.split(), named, text)


def _moses_features(
    text: str, place: str, before: dict[str, list[float]]
) -> dict[str, list[float]]:
    """The values by name, after those of `before`."""
    features, values = dict(before), None
    for token in text.split():
        name, mark, value = token.rpartition("=")
        if not mark and token.endswith(":"):
            name, mark, value = token[:-1], ":", ""
        if mark or values is None:
            name = name if mark else UNNAMED
            if not name:
                raise InputError(f"{place}: {shown(token)} has no name; write NAME= before a value")
            if name in features:
                raise InputError(f"{place}: two features are called {shown(name)}")
            values = features[name] = []
        if value:
            values.append(_number(value, "feature", place))
    for name, numbers in features.items():
        if not numbers:
            raise InputError(
                f"{place}: the feature {shown(name)} has no value; write a number after it or "
                "remove the name"
            )
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
        yield _Hypothesis(place, key, identifier, words, {}, text)


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
            one.features[name] = [-cost.cost]
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
