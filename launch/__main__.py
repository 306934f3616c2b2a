"""Document-context language models: train, evaluate, score.

    dclm_jax COMMAND --flags                  after pip install, in any folder
    python -m launch.COMMAND --flags          in the repository

`dclm_jax COMMAND --help` prints the manual and all flags of a command. Commands:
"""

import ast
import contextlib
import difflib
import pathlib
import pkgutil
import runpy
import sys
from collections.abc import Iterator

from dclm_jax.errors import brief

_FOLDER = pathlib.Path(__file__).parent


def main() -> None:
    """Runs the command that the first argument names, as `python -m` runs its module."""
    name, *arguments = sys.argv[1:] or ["--help"]
    commands = dict(_commands())
    if name.lstrip("-") in ("help", "helpshort", "h"):
        with contextlib.suppress(BrokenPipeError):
            print(__doc__, *map("    {0[0]:<14} {0[1]}".format, commands.items()), sep="\n")
        return
    if name not in commands:
        near = difflib.get_close_matches(name, commands, n=1)
        meant = f"did you mean {near[0]}?" if near else f"choose from {', '.join(commands)}"
        print(f"error: there is no command {brief(name)}; {meant}", file=sys.stderr)
        sys.exit(2)
    sys.argv = [f"dclm_jax {name}", *arguments]
    runpy.run_module(f"{__package__}.{name}", run_name="__main__", alter_sys=True)


def _commands() -> Iterator[tuple[str, str]]:
    """The commands, and the first line of their manuals."""
    for module in pkgutil.iter_modules([str(_FOLDER)]):
        if not module.name.startswith("_"):
            file = _FOLDER / (f"{module.name}/__main__.py" if module.ispkg else f"{module.name}.py")
            manual = ast.get_docstring(ast.parse(file.read_text("utf-8"))) or ""
            yield module.name, manual.partition("\n")[0]


if __name__ == "__main__":
    main()
