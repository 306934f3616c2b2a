"""Stand-ins for programs, and scripts of bash that call them."""

import os
import subprocess
from pathlib import Path


class Programs:
    """Stand-ins, first on the PATH, which log their commands in $FAKE_LOG, and a folder to run
    scripts in."""

    def __init__(self, root: Path):
        self.folder = root / "bin"
        self.log = root / "log"
        self.cwd = root / "cwd"
        self.folder.mkdir()
        self.cwd.mkdir()

    def write_program(self, name: str, text: str) -> Path:
        """Makes or replaces a stand-in; returns its path."""
        path = self.folder / name
        path.write_text(f"#!/usr/bin/env bash\n{text}")
        path.chmod(0o755)
        return path

    def bash(self, *arguments, cwd=None, **variables):
        """Runs bash in an environment of its own; returns the process and the lines of the log."""
        self.log.write_text("")
        done = subprocess.run(
            ["bash", *map(str, arguments)],
            cwd=cwd or self.cwd,
            env={
                "PATH": f"{self.folder}{os.pathsep}{os.environ['PATH']}",
                "HOME": str(self.cwd),
                "FAKE_LOG": str(self.log),
                **variables,
            },
            capture_output=True,
            text=True,
            timeout=60,
        )
        return done, self.log.read_text().splitlines()
