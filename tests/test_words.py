"""Documents, help texts, docstrings and messages avoid words that need reading twice."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
AVOIDED = re.compile(
    r"\b(go(es|ing)? on|told|(so|as) many|ma(de|kes?) anew|but for|by itself|of which"
    r"|what is (\w+ ){1,3}of)\b",
    re.IGNORECASE,
)


def tracked(*patterns: str) -> Iterator[tuple[str, str]]:
    """The names and contents of the tracked files."""
    listing = ["git", "ls-files", "-z", *patterns]
    files = subprocess.run(listing, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    for name in files.stdout.split("\0")[:-1]:
        # A file that was deleted, but not yet in a commit, is still listed.
        if (REPOSITORY / name).is_file():
            yield name, (REPOSITORY / name).read_text("utf-8")


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of the strings of a module: docstrings, help texts and messages. An f-string is
    one text, with a blank in place of each value."""
    parts = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.JoinedStr(values=values):
                parts.update(values)
                constants = [part.value for part in values if isinstance(part, ast.Constant)]
                yield node.lineno, " ".join(map(str, constants))
            case ast.Constant(value=str(text)) if node not in parts:
                yield node.lineno, text


def avoided(text: str) -> list[str]:
    """The avoided words of a text, wherever its lines break."""
    return [match[0] for match in AVOIDED.finditer(" ".join(text.split()))]


def test_documents():
    assert [(name, words) for name, text in tracked("*.md") if (words := avoided(text))] == []


def test_help_texts_docstrings_and_messages():
    modules = tracked("configs/*.py", "dclm_jax/*.py", "launch/*.py")
    places = ((name, *place) for name, source in modules for place in texts(source))
    assert [(name, line, words) for name, line, text in places if (words := avoided(text))] == []


def test_words_are_detected_across_lines_and_values():
    source = (
        '"""Training goes\n    on."""\nraise InputError(f"{x}: as " f"many {y} as Z")\n# told\n'
    )
    assert [(line, avoided(text)) for line, text in texts(source)] == [
        (1, ["goes on"]),
        (3, ["as many"]),
    ]
    assert avoided("What is left of it, the rest of which was Made anew; foretold by itself") == [
        *("What is left of", "of which", "Made anew", "by itself")
    ]
