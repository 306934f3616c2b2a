"""The result tables of the documents are those that `python -m configs.tables` writes."""

import re

import pytest

from configs import tables

MADE = {"ptb/models": [["model", "test perplexity"], ["`rnnlm`", "135.93"]]}
DOCUMENT = """# Results

<!-- table: ptb/models -->
| model | test perplexity |
|---|---:|
| `rnnlm` | 135.93 |

More text, and | a bar.
"""


def test_documents_have_the_tables_of_the_saved_results():
    names = [str(path.relative_to(tables.ROOT)) for path in tables.outdated()]
    assert not names, f"{names} differ from the saved results: run python -m configs.tables"


def test_every_table_is_in_a_document():
    paths = [path for pattern in tables.DOCUMENTS for path in tables.ROOT.glob(pattern)]
    texts = "".join(path.read_text("utf-8") for path in paths)
    assert set(re.findall(r"<!-- table: (\S+) -->", texts)) == set(tables.result_tables())


@pytest.mark.parametrize(
    "broken",
    [
        DOCUMENT.replace("135.93", "135.94"),
        DOCUMENT.replace("| `rnnlm` | 135.93 |\n", ""),
        DOCUMENT.replace("| `rnnlm`", "| `adclm` | 1 |\n| `rnnlm`"),
        re.sub(r"(?m)^\|.*\n", "", DOCUMENT),
    ],
)
def test_a_table_is_written_below_its_marker(broken):
    assert broken != DOCUMENT
    assert tables.filled(broken, MADE, "a.md") == DOCUMENT


def test_the_command_writes_all_documents_or_none(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    monkeypatch.setattr(tables, "result_tables", lambda: MADE)
    stale, document = DOCUMENT.replace("135.93", "135.94"), tmp_path / "README.md"
    document.write_text(stale)
    other = tmp_path / "configs" / "README.md"
    other.parent.mkdir()
    other.write_text(DOCUMENT.replace("ptb/models", "ptb/model"))
    with pytest.raises(SystemExit, match="^2$"):
        tables.main()
    message = "configs/README.md, line 3: there is no table 'ptb/model'; did you "
    assert capsys.readouterr().err.startswith(message)
    assert document.read_text() == stale
    other.unlink()
    tables.main()
    assert capsys.readouterr().out == "Wrote the tables of README.md\n"
    assert document.read_text() == DOCUMENT


def test_several_seeds_have_a_mean_and_a_standard_deviation():
    runs = [{"seed": seed, "test": {"perplexity": 100.0 + 2 * seed}} for seed in (0, 1, 2)]
    row = tables.Row("adclm", runs[:2], baseline=[{"seed": 1, "test": {"perplexity": 202.0}}])
    assert row.mean("test", "perplexity") == "101.00 ± 1.41"
    assert row.change("test", "perplexity") == "-50.0%"
    assert tables.Row("rnnlm", runs, baseline=runs).change("test", "perplexity") == ""
