"""Makes the outputs that documents show anew, from the runs of the quickstart:

    bash launch/quickstart.sh
    python -m tests.printed_outputs

A fenced block of `console` holds commands after `$ `, which run from the root of the repository; a
line that ends in a backslash continues on the next line. A block of `pycon` holds Python after
`>>> ` and `... `; the blocks of a document share their variables. Below each command or statement
stands what it prints on standard output. Other fenced blocks are not run.
"""

import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

REPOSITORY = Path(__file__).parents[1]
DOCUMENTS = ("README.md", "dclm_jax/README.md")
_BLOCK = re.compile(r"^```(console|pycon)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INPUT = {
    "console": re.compile(r"^\$ (?:.*\\\n)*.*\n", re.MULTILINE),
    "pycon": re.compile(r"^>>> .*\n(?:\.\.\. ?.*\n)*", re.MULTILINE),
}


class Example(NamedTuple):
    """A command or a statement with its prompts, and the output below it."""

    language: str
    input: str
    output: str

    @property
    def code(self) -> str:
        """The input without prompts."""
        return re.sub(r"^(\$|>>>|\.\.\.) ?", "", self.input, flags=re.MULTILINE)


def examples(text: str) -> list[Example]:
    """The examples of a document."""
    return [example for match in _BLOCK.finditer(text) for example in _parsed(match[1], match[2])]


def _parsed(language: str, block: str) -> list[Example]:
    inputs = _INPUT[language].findall(block)
    outputs = _INPUT[language].split(block)[1:]
    return [Example(language, *parts) for parts in zip(inputs, outputs, strict=True)]


def rewritten(text: str, run: Callable[[Example], str]) -> str:
    """The document with the outputs of `run`. Blank lines after an output stay."""

    def block(match: re.Match[str]) -> str:
        parts = [f"```{match[1]}\n"]
        for example in _parsed(match[1], match[2]):
            printed = [f"{line.rstrip()}\n" for line in run(example).strip("\n").splitlines()]
            blank = "\n" * f"\n{example.output}".endswith("\n\n")
            parts += example.input, *printed, blank
        return "".join([*parts, "```"])

    return _BLOCK.sub(block, text)


def run_python(code: str, variables: dict[str, Any]) -> str:
    """What an interactive Python prints for a statement, which reads and sets the variables."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(code, "<document>", "single"), variables)
    return printed.getvalue()


def run_command(code: str) -> str:
    """What a command prints; its `python` is this interpreter."""
    path = os.pathsep.join((os.path.dirname(sys.executable), os.environ["PATH"]))
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", code],
        cwd=REPOSITORY,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


def main() -> None:
    os.chdir(REPOSITORY)
    for document in map(Path, DOCUMENTS):
        variables: dict[str, Any] = {}

        def run(example: Example, variables: dict[str, Any] = variables) -> str:
            if example.language == "pycon":
                return run_python(example.code, variables)
            return run_command(example.code)

        document.write_text(rewritten(document.read_text(), run))


if __name__ == "__main__":
    main()
