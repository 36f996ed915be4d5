"""Where a job writes tables: a directory, or a place in a store."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from rq.config import files
from rq.errors import BadInput, Refused, RQError, Unreachable
from rq.spark import remote
from rq.spark.attachments import Bad
from rq.spark.given import Given
from rq.spark.remote import STORE
from rq.words import visible
from rq.words.nesting import Json

if TYPE_CHECKING:
    from pyarrow import fs

_OWN = "dir"  # of its fields this one is told by the queue: where it lies
OURS = "_rq"  # what is in it, readers of Parquet pass over
_FILE = "file://"
# How delta-rs begins: with what it has asked.
_REQUEST = re.compile(
    r"^.*?Generic S3 error\b.* in [\d.]+[µnm]?s(?:,.*?)? - ", re.DOTALL
)
_NO_BUCKET = re.compile("NO_SUCH_BUCKET|NoSuchBucket")
_NO_RIGHTS = re.compile(
    r"ACCESS_DENIED|INVALID_ACCESS_KEY_ID|INVALID_CLIENT_TOKEN_ID|SIGNATURE_DOES_NOT_MATCH"
    r"|UNRECOGNIZED_CLIENT|MISSING_AUTHENTICATION_TOKEN|HTTP status 40[13]"
    r"|No response body"
    # and as delta-rs says it
    r"|lacked the necessary privileges|40[13] (?:Forbidden|Unauthorized)|Unauthenticated"
    r"|no providers in chain|not authenticated"
)


@dataclass(frozen=True, slots=True)
class Target:
    """A directory of tables; `path` is that on `system`, without a slash at the end."""

    where: str  # as the code of a job says it
    system: fs.FileSystem
    path: str
    is_store: bool

    @property
    def name(self) -> str:
        """What people are told: without what comes after a `?`."""
        return self.where.partition("?")[0] if self.is_store else self.where

    @property
    def address(self) -> str:
        """What leads to a table that is there: a path, or where its store is as well."""
        return self.where if self.is_store else self.path

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

    def has_below(self, inner: str) -> bool:
        """Whether there is a directory."""
        from pyarrow.fs import FileType

        info = self.system.get_file_info(f"{self.path}/{inner}")
        return bool(info.type is FileType.Directory)

    def names(self, inner: str) -> list[str]:
        """Return the names of the files in a directory, sorted."""
        from pyarrow.fs import FileSelector

        infos = self.system.get_file_info(FileSelector(f"{self.path}/{inner}"))
        return sorted(info.base_name for info in infos if info.is_file)

    def put(self, inner: str, data: bytes) -> None:
        """Write a small file, whole or not at all, durably."""
        path = f"{self.path}/{inner}"
        if self.is_store:
            with self.system.open_output_stream(path) as stream:
                stream.write(data)
        else:
            files.write_shared(Path(path), data)

    def read(self, inner: str) -> bytes | None:
        """Return what is in a small file; None if there is none."""
        if not self.has(inner):
            return None
        with self.system.open_input_stream(f"{self.path}/{inner}") as stream:
            return bytes(stream.read())

    def remove(self, inner: Iterable[str]) -> None:
        """Remove files, durably; some may be gone."""
        names = list(inner)
        for name in names:
            if self.has(name):
                self.system.delete_file(f"{self.path}/{name}")
        folders = {os.path.dirname(name) for name in names}
        self.sync(f for f in folders if os.path.isdir(f"{self.path}/{f}"))

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
        """Let the names in some directories, and these in those above them, outlast a
        power cut; in a store they do."""
        if self.is_store:
            return
        for folder in _with_above(folders):
            # The way to a place may be a link.
            files.sync(Path(os.path.realpath(f"{self.path}/{folder}")))

    @contextlib.contextmanager
    def translated(self) -> Iterator[None]:
        """Do something there; what fails is BadInput, or Unreachable."""
        try:
            yield
        except OSError as error:
            raise self.trouble(error) from error

    def trouble(self, error: Exception) -> RQError:
        """Return what an error of the place means."""
        return trouble(self.name, error)


def _with_above(folders: Iterable[str]) -> set[Path]:
    every = {Path(folder) for folder in folders}
    return every.union(*(folder.parents for folder in every))


def trouble(name: str, error: Exception) -> RQError:
    """Return what an error of a place means."""
    text = str(error)
    if remote.is_passing(error) or remote.is_away(text):
        return Unreachable(f"{name}: {one_line(_REQUEST.sub('', text))}")
    if _NO_BUCKET.search(text):
        return BadInput(f"{name}: there is no such bucket")
    if name.startswith(STORE) and _NO_RIGHTS.search(text):
        return BadInput(
            f"{name}: the store refuses it: the rights to write there (AWS_…) "
            "are set in the queue's env_vars"
        )
    number = getattr(error, "errno", None)
    why = one_line(text) if number is None else os.strerror(number)
    return BadInput(f"{name}: {why}")


def one_line(text: str) -> str:
    """Return what a library says as one line; delta-rs colours parts of it.

    >>> one_line("no room \\x1b[31m↳\\x1b[0m\\n on disk")
    'no room ↳ on disk'
    """
    return " ".join(visible.SEQUENCE.sub("", text).split())[:300]


def target(where: str) -> Target:
    """Return the place that the code of a job names; BadInput if it is none,
    Unreachable when its store, asked for its region, does not answer."""
    if where.startswith(STORE):
        name = where.partition("?")[0]
        try:
            system, path = remote.store(where, None)
        except OSError as error:
            raise trouble(name, error) from error
        return Target(where, system, path, is_store=True)
    path = where.removeprefix(_FILE)
    if not path.startswith("/") or "\0" in path or ".." in path.split("/"):
        raise BadInput(
            f"q.write: {where!r:.120} is neither an absolute path nor s3://BUCKET/PREFIX/"
        )
    from pyarrow.fs import LocalFileSystem

    return Target(where, LocalFileSystem(), os.path.normpath(path), is_store=False)


def strays(where: str, messages: Iterable[Given], allow: list[str]) -> list[Bad]:
    """Return the messages that lead to where something is written, unless it is a store
    that the queue's config names: a sender may choose no other place."""
    place = _parts(where)
    named = [each.msg_id for each in messages if _names(each, place)]
    if not named:
        return []
    why = f"a message names {where!r:.120}: let the code of the job say where it writes"
    if where.startswith(STORE):
        try:
            remote.store(where, remote.allow(allow))
        except Refused as error:
            why = str(error)
        else:
            return []
    return [Bad(msg_id, f"q.write: {why}", is_passing=False) for msg_id in named]


def _names(message: Given, place: list[str]) -> bool:
    """Whether a message says a place, or one above it."""
    named = (_parts(text) for text in _texts(message))
    return any(parts and place[: len(parts)] == parts for parts in named)


def _texts(message: Given) -> Iterator[str]:
    """Give what the sender of a message may have written, however deep."""
    left: list[Json] = [v for name, v in message.fields.items() if name != _OWN]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            left += value.values()
        elif isinstance(value, list):
            left += value
        elif isinstance(value, str):
            yield value
            if value.startswith(("{", "[")):  # as a script gets what is no text
                with contextlib.suppress(ValueError, RecursionError):
                    left.append(json.loads(value))


def _parts(text: object) -> list[str]:
    """Return the names on the way to a place, the same ones however it is written; none
    if a text is no place, or is all that there is of a kind.

    >>> _parts("file:///data//hits/"), _parts(" S3://lake/a%20b?region=x "), _parts("a/b")
    (['/', 'data', 'hits'], ['s3://', 'lake', 'a b'], [])
    """
    where = remote.address(str(text)).removeprefix(_FILE)
    if where.startswith(STORE):
        where, top = unquote(where.partition("?")[0].removeprefix(STORE)), STORE
    elif where.startswith("/"):
        where, top = os.path.normpath(where), "/"
    else:
        return []
    parts = [part for part in where.split("/") if part]
    return [top, *parts] if parts else []


def tried(where: str, below: Path) -> str:
    """Return the directory that stands for a place when a job is tried."""
    target(where)
    inner = re.sub(r"^(s3|file)://|\?.*$", "", where).strip("/")
    return str(below / inner)
