"""Stands in for the package gcsfs: buckets in one folder, which behave like an object store.

There are no directories, an object is there once its file is closed, nothing is appended to or
renamed. What is true of Google's own service beyond that, no test here can tell.
"""

import io
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from fsspec.spec import AbstractFileSystem

FOLDER = "DCLM_JAX_TEST_BUCKETS"
"""The environment variable that names the folder."""
FAILS_AFTER = "DCLM_JAX_TEST_UPLOADS"
"""The environment variable that says how many more files can be written, if there is a limit."""


class GCSFileSystem(AbstractFileSystem):
    protocol = ("gs", "gcs")
    cachable = False

    def __init__(self, *, finalize_on_close: bool = False, **options: Any):
        del finalize_on_close
        super().__init__(use_listings_cache=False, **options)

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return os.fspath(path).removeprefix("gs://").removeprefix("gcs://").rstrip("/")

    def ls(self, path: str, detail: bool = True, **options: Any) -> list:
        path = self._strip_protocol(path)
        entries: dict[str, dict[str, Any]] = {}
        for name in map(unquote, os.listdir(os.environ[FOLDER])):
            if name == path:
                entries[name] = {"name": name, "type": "file", "size": _file(name).stat().st_size}
            elif name.startswith(f"{path}/"):
                child, below, _ = name[len(path) + 1 :].partition("/")
                # What stands for a folder is listed in it under the folder's own name.
                entry = f"{path}/{child}" if child else path
                info = {"name": entry, "type": "directory", "size": 0}
                if not below:
                    info |= {"type": "file", "size": _file(name).stat().st_size}
                entries[entry] = info
        if not entries:
            raise FileNotFoundError(path)
        names = sorted(entries)
        return [entries[name] for name in names] if detail else names

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        if _file(path).exists():
            return {"name": path, "type": "file", "size": _file(path).stat().st_size}
        self.ls(path)
        return {"name": path, "type": "directory", "size": 0}

    def _open(self, path: str, mode: str = "rb", **options: Any) -> io.IOBase:
        if mode == "rb":
            return _file(path).open("rb")
        assert mode == "wb", "objects are written whole"
        return _Object(path)

    def rm_file(self, path: str) -> None:
        _file(self._strip_protocol(path)).unlink()

    def rm(self, path: str, recursive: bool = False, maxdepth: int | None = None) -> None:
        assert not recursive and maxdepth is None
        self.rm_file(path)


class _Object(io.BytesIO):
    def __init__(self, name: str):
        super().__init__()
        self._name = name

    def close(self) -> None:
        if not self.closed:
            if (left := os.environ.get(FAILS_AFTER)) is not None:
                if left == "0":
                    super().close()
                    raise ConnectionResetError("the network is gone")
                os.environ[FAILS_AFTER] = str(int(left) - 1)
            hidden = Path(f"{_file(self._name)}.writing-{os.getpid()}")
            # Outside of the folder, where every file is an object.
            hidden = Path(os.environ[FOLDER]).parent / hidden.name[-100:]
            hidden.write_bytes(self.getvalue())
            hidden.rename(_file(self._name))
        super().close()


def _file(name: str) -> Path:
    return Path(os.environ[FOLDER]) / quote(name, safe="")
