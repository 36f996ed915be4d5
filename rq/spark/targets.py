"""Where a job writes tables: a directory, or a place in a store."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rq.config import files
from rq.errors import BadInput, Refused, RQError, Unreachable
from rq.message import PARAMS
from rq.spark import remote
from rq.spark.given import Given
from rq.spark.remote import STORE

if TYPE_CHECKING:
    from pyarrow import fs

OURS = "_rq"  # what is in it, readers of Parquet pass over
_FILE = "file://"
_NO_RIGHTS = re.compile(
    r"ACCESS_DENIED|INVALID_ACCESS_KEY_ID|INVALID_CLIENT_TOKEN_ID|SIGNATURE_DOES_NOT_MATCH"
    r"|UNRECOGNIZED_CLIENT|MISSING_AUTHENTICATION_TOKEN|HTTP status 40[13]"
    r"|No response body"
)


@dataclass(frozen=True, slots=True)
class Target:
    """A directory of tables; `path` is that on `system`, without a slash at the end."""

    name: str  # for people: without what comes after a `?`
    system: fs.FileSystem
    path: str
    is_store: bool

    def demand(self) -> None:
        """Raise BadInput or Unreachable if nothing can be written there."""
        from pyarrow.fs import FileType

        with self.translated():
            if not self.is_store:
                self.system.create_dir(f"{self.path}/{OURS}", recursive=True)
                return
            bucket = self.path.partition("/")[0]
            info = self.system.get_file_info(bucket)
        if info.type is FileType.NotFound:
            raise BadInput(f"{self.name}: there is no bucket {bucket}")

    def has(self, inner: str) -> bool:
        """Whether there is a file."""
        from pyarrow.fs import FileType

        info = self.system.get_file_info(f"{self.path}/{inner}")
        return bool(info.type is FileType.File)

    def put(self, inner: str, data: bytes) -> None:
        """Write a small file, whole or not at all, durably."""
        path = f"{self.path}/{inner}"
        if self.is_store:
            with self.system.open_output_stream(path) as stream:
                stream.write(data)
        else:
            files.write_state_bytes(Path(path), data)

    def name_file(self, inner: str, to: str) -> None:
        """Let a file have a name; in a store, which renames nothing, it keeps the other
        one as well."""
        source, aim = f"{self.path}/{inner}", f"{self.path}/{to}"
        if self.is_store:
            self.system.copy_file(source, aim)
            return
        self.system.create_dir(os.path.dirname(aim), recursive=True)
        self.system.move(source, aim)

    def sync(self, folders: Iterable[str]) -> None:
        """Let the names in some directories outlast a power cut; in a store they do."""
        if not self.is_store:
            for folder in folders:
                files.sync(Path(self.path, folder))

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        """Do something there; what fails is BadInput, or Unreachable."""
        try:
            yield
        except OSError as error:
            raise self.trouble(error) from error

    def trouble(self, error: OSError) -> RQError:
        """Return what an error of the place means."""
        text = str(error)
        if remote.is_passing(error):
            return Unreachable(f"{self.name}: {_first(text)}")
        if "NO_SUCH_BUCKET" in text:
            return BadInput(f"{self.name}: there is no such bucket")
        if self.is_store and _NO_RIGHTS.search(text):
            return BadInput(
                f"{self.name}: the store refuses it: the rights to write there (AWS_…) "
                "are set in the queue's env_vars"
            )
        why = _first(text) if error.errno is None else os.strerror(error.errno)
        return BadInput(f"{self.name}: {why}")


def _first(text: str) -> str:
    return " ".join(text.split())[:300]


def target(where: str) -> Target:
    """Return the place that the code of a job names; BadInput if it is none."""
    if not isinstance(where, str):
        raise BadInput(f"q.write: {where!r:.80} is no text: name a place as one")
    if where.startswith(STORE):
        system, path = remote.store(where, None)
        return Target(where.partition("?")[0], system, path, is_store=True)
    path = where.removeprefix(_FILE)
    if not path.startswith("/") or "\0" in path or ".." in path.split("/"):
        raise BadInput(
            f"q.write: {where!r:.120} is neither an absolute path nor s3://BUCKET/PREFIX/"
        )
    from pyarrow.fs import LocalFileSystem

    return Target(where, LocalFileSystem(), os.path.normpath(path), is_store=False)


def check_named(where: str, messages: Iterable[Given], allow: list[str]) -> None:
    """Refused if a message leads to where something is written, unless it is a store that
    the queue's config names: whoever sends may choose no other place."""
    named = {str(m[name]) for m in messages for name in PARAMS if m[name]}
    if not any(where.startswith(text) for text in named if _is_place(text)):
        return
    if where.startswith(STORE):
        remote.store(where, remote.allow(allow))
        return
    raise Refused(
        f"q.write: a message names {where!r:.120}: let the code of the job say where "
        "it writes"
    )


def _is_place(text: str) -> bool:
    return text.startswith((STORE, _FILE, "/")) and len(text) > 1


def tried(where: str, below: Path) -> str:
    """Return the directory that stands for a place when a job is tried."""
    target(where)
    inner = re.sub(r"^(s3|file)://|\?.*$", "", where).strip("/")
    return str(below / inner)
