"""Tables for people by their characters, tables for programs by what readers make of them."""

import csv

import pytest

from dclm_jax import tables
from dclm_jax.tables import Column, Table

# The defaults of na_values of pandas.read_csv, in which that of R's read.delim is.
MISSING = {
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND"),
    *("1.#QNAN", "<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
}
TEXTS = [
    *(*MISSING, *(f"\\{word}" for word in MISSING), *(f"\\\\\\{word}" for word in MISSING)),
    *('"', '""', 'a"b', 'say "hi"', '"NA"', '\\"', "a\tb", "a\nb", "'", "it's", "#", "\\x", "x\\"),
    *("a\rb", "\r", "a\r\nb", "a\x0bb", " a", "a ", '"\t"'),
    *(" NA", "Na", "NAN", "NA NA", "true", "T", "1", "1e5", "inf", "-", "a,b", "\u2028", "é"),
]

CELLS = [["a|b", "n"], ["50% of x_1 & {y}", "1 ± 2"], ["$~^\\\\#", "<3>"]]


def test_columns_are_aligned():
    assert tables.aligned([["a", "number"], ["long name", "1"]]) == [
        "a          number",
        "---------  ------",
        "long name       1",
    ]
    assert len(tables.aligned(CELLS, rule=False)) == 3


def test_bars_are_escaped_in_markdown():
    title, _, about, _, *lines = Table("Title", "About.", CELLS).markdown().splitlines()
    assert (title, about) == ("## Title", "About.")
    assert lines[:3] == ["| a\\|b | n |", "|---|---:|", "| 50% of x_1 & {y} | 1 ± 2 |"]


def test_what_has_a_meaning_in_latex_is_escaped():
    lines = Table("A & B", "100% of c_0", CELLS).latex().splitlines()
    assert "  \\caption{A \\& B. 100\\% of c\\_0}" in lines
    assert "  \\begin{tabular}{lr}" in lines
    rows = [line for line in lines if line.endswith("\\\\")]
    assert rows == [
        "    a\\textbar{}b & n \\\\",
        "    50\\% of x\\_1 \\& \\{y\\} & 1 $\\pm$ 2 \\\\",
        "    \\$\\textasciitilde{}\\textasciicircum{}\\textbackslash{}"
        "\\textbackslash{}\\# & \\textless{}3\\textgreater{} \\\\",
    ]
    rules = [line.strip() for line in lines if line.strip().endswith("rule")]
    assert rules == ["\\toprule", "\\midrule", "\\bottomrule"]


def test_programs_read_back_every_text_and_what_is_missing(tmp_path):
    path = tmp_path / "table"
    rows = [(text, number, None, 0.5) for number, text in enumerate(TEXTS)]
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(tables.separated(row) for row in rows)
    with path.open(encoding="utf-8", newline="") as file:
        read_rows = list(csv.reader(file, delimiter="\t", quotechar='"', doublequote=True))
    assert [tables.unescaped_cell(row[0]) for row in read_rows] == TEXTS
    assert [row[1:] for row in read_rows] == [[str(number), "", "0.5"] for _, number, *_ in rows]
    assert not MISSING.intersection(row[0] for row in read_rows)


def read_delim(text: str) -> list[list[str]]:
    """The cells as R documents its `read.delim`: sep = "\\t", quote = "\\"", without escapes and
    comments; a line ends with LF, CR LF or CR outside of quotes, and a doubled quotation mark in
    quotes is one."""
    rows, cell, is_quoted, at = [[]], "", False, 0
    while at < len(text):
        character = text[at]
        if is_quoted and text[at : at + 2] == '""':
            cell, at = f'{cell}"', at + 1
        elif character == '"':
            is_quoted = not is_quoted
        elif is_quoted or character not in "\t\r\n":
            cell += character
        else:
            rows[-1].append(cell)
            cell = ""
            if character != "\t":
                at += text[at : at + 2] == "\r\n"
                rows.append([])
        at += 1
    return rows[:-1]


def test_the_defaults_of_pandas_and_r_read_back_every_text(tmp_path):
    rows = [["text", "a b", "number"], *([text, text, str(n)] for n, text in enumerate(TEXTS))]
    lines = "".join(map(tables.separated, rows))
    assert [list(map(tables.unescaped_cell, row)) for row in read_delim(lines)] == rows
    path = tmp_path / "t.tsv"
    path.write_bytes(lines.encode())
    pandas = pytest.importorskip("pandas")
    table = pandas.read_csv(path, sep="\t")
    assert list(table) == rows[0] and table["number"].tolist() == list(range(len(TEXTS)))
    for name in rows[0][:2]:
        assert list(map(tables.unescaped_cell, table[name])) == TEXTS


def test_a_backslash_makes_a_word_for_a_missing_value_text():
    line = tables.separated(["NA", "", "\\", "\\NA", "\\x", "x", "Na", 'a "b"', "a\tb", None])
    cells = ["\\NA", "\\", "\\\\", "\\\\NA", "\\x", "x", "Na", '"a ""b"""', '"a\tb"', ""]
    assert line == "\t".join(cells) + "\n"
    # What somebody else has written.
    assert [tables.unescaped_cell(cell) for cell in ("NA", "", "x\\NA")] == ["NA", "", "x\\NA"]


def test_a_sentence_about_several_columns_is_in_the_description_once():
    columns = [Column("a", [[1]], about="Same."), Column("b", [[2]], about="Same.")]
    assert Table.of("Title", "First.", columns).about == "First. Same."
