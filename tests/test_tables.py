"""Tables in three forms, by their characters."""

from dclm_jax import tables

CELLS = [["a|b", "n"], ["50% of x_1 & {y}", "1 ± 2"], ["$~^\\\\#", "<3>"]]


def test_columns_are_aligned():
    assert tables.aligned([["a", "number"], ["long name", "1"]]) == [
        "a          number",
        "---------  ------",
        "long name       1",
    ]
    assert len(tables.aligned(CELLS, rule=False)) == 3


def test_bars_are_escaped_in_markdown():
    lines = tables.markdown(CELLS)
    assert lines[:3] == ["| a\\|b | n |", "|---|---:|", "| 50% of x_1 & {y} | 1 ± 2 |"]


def test_what_has_a_meaning_in_latex_is_escaped():
    lines = tables.latex(CELLS, "100% of c_0")
    assert "  \\caption{100\\% of c\\_0}" in lines
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
