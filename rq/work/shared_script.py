"""The script that a queue shares: fetched as a tar, kept by its digest, laid out here."""

from __future__ import annotations

import asyncio
import hashlib
import io
import logging
import os
import tarfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from rq.errors import BadInput, Refused, RQError
from rq.logs import fields
from rq.work import place
from rq.work.service import SCRIPT_LIMIT, Service

LOOK = 60.0  # seconds between looks at whether the queue has another one
MOST = 10_000  # files
_DEEPEST = 32  # directories in each other
_PARTIAL = ".new"

log = logging.getLogger(__name__)


class SharedScript:
    """The script of one queue, below a directory."""

    def __init__(self, service: Service, base: Path) -> None:
        self._service = service
        self._base = base
        self._digest = ""
        self.followers: list[Callable[[Path], None]] = []  # told of another one

    @property
    def directory(self) -> Path:
        """Where the newest one lies."""
        return self._base / self._digest

    async def fetch(self) -> bool:
        """Fetch the script unless it is here; return whether it is another one. RQError
        when there is none, or none that can be used."""
        answer = await self._service.script(self._digest)
        if answer is None:
            return False
        tag, data = answer
        digest = hashlib.sha256(data).hexdigest()
        if digest == self._digest:
            return False
        if tag and tag != digest:
            raise BadInput("the queue's script did not arrive as it was sent")
        loop = asyncio.get_running_loop()
        if not self._digest:  # what earlier agents have laid out, perhaps in part
            await loop.run_in_executor(None, _empty, self._base)
        await loop.run_in_executor(None, lay_out, data, self._base / digest)
        self._digest = digest
        return True

    async def follow(self) -> None:
        """Fetch each new one; what runs, runs on."""
        while True:
            await asyncio.sleep(LOOK)
            try:
                if not await self.fetch():
                    continue
            except (RQError, OSError) as error:
                log.error("the queue's script is not fetched anew: %s", error)
                continue
            log.info("the queue has another script: %s", fields(digest=self._digest))
            for follow in self.followers:
                follow(self.directory)


def _empty(directory: Path) -> None:
    for path in directory.iterdir():
        place.remove(path)


def lay_out(data: bytes, directory: Path) -> None:
    """Make a directory of a tar, with regular files only; BadInput when it holds what
    could lead anywhere else, Refused when it holds too much, OSError. Its name says that
    it is whole: all of it is on disk before. If it is not made, nothing of it stays."""
    if directory.exists():
        return
    partial = directory.with_name(directory.name + _PARTIAL)
    place.remove(partial)
    partial.mkdir(mode=0o755)
    try:
        _unpack(data, partial)
        os.rename(partial, directory)
    except BaseException:
        place.remove(partial)
        raise


def _unpack(data: bytes, partial: Path) -> None:
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as tar:
            _extract(tar, partial)
    except FileExistsError as error:
        name = os.path.relpath(error.filename, partial)
        raise BadInput(f"the queue's script holds {name!r:.80} twice") from None
    except (tarfile.TarError, ValueError, RecursionError, OverflowError) as error:
        # tarfile lets the latter three through, of headers that make no sense.
        raise BadInput(f"the queue's script is no tar: {error}") from None


def _extract(tar: tarfile.TarFile, directory: Path) -> None:
    left, count = SCRIPT_LIMIT, 0
    for member in tar:
        count += 1
        left -= member.size
        if count > MOST or left < 0:
            raise Refused(
                f"the queue's script has more than {MOST} files or {SCRIPT_LIMIT} bytes"
            )
        path = directory / _inside(member.name)
        if member.isdir():
            path.mkdir(mode=0o755, parents=True, exist_ok=True)
            continue
        if not member.isreg():
            raise BadInput(
                f"the queue's script holds {member.name!r:.80}: no plain file"
            )
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        _write(tar, member, path)


def _inside(name: str) -> PurePosixPath:
    """Return a path that stays in its directory; BadInput."""
    path = PurePosixPath(name)
    is_odd = path.is_absolute() or ".." in path.parts or "\0" in name or not path.parts
    if is_odd and name not in (".", "./"):
        raise BadInput(f"the queue's script holds {name!r:.80}: a path out of it")
    if len(path.parts) > _DEEPEST or any(
        len(part.encode()) > 255 for part in path.parts
    ):
        raise BadInput(f"the queue's script holds {name!r:.80}: too deep or too long")
    return path


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    content = tar.extractfile(member)
    assert content is not None  # it is a plain file
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    mode = 0o755 if member.mode & 0o100 else 0o644
    with open(os.open(path, flags, mode), "wb") as file:
        while piece := content.read(1024 * 1024):
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
