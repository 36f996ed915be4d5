"""The folder of a message at work, laid out as in a queue: `msg`, `attach/`, `job/`."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from io import FileIO

import orjson

from rq import names
from rq.errors import BadInput, NoRoom, NotPlain, NotWhole
from rq.files import beneath, durable
from rq.layout import AFTER_FILE, ATTACH, JOB, MSG, STDIO_LOG
from rq.logs import fields
from rq.work.answers import File, Lease
from rq.work.place import Place
from rq.work.service import Service

RESULTS = "results"  # in `job/`: what lies there is handed in with `done`
MOST_RESULTS = 100  # as many as a queue takes
KEPT_FREE = 16 * 1024 * 1024  # bytes of the disk that attachments leave
_MODE = 0o750
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_PIECE = 1024 * 1024
PAUSE = 0.1  # seconds in which folders gather before they are removed

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Folder:
    """The folder of one attempt."""

    place: Place
    name: str

    @property
    def path(self) -> str:
        return f"{self.place.messages}/{self.name}"

    @property
    def job(self) -> str:
        """The script's directory, below that of all messages."""
        return f"{self.name}/{JOB}"

    @property
    def log(self) -> str:
        """Its log, below the directory of all messages."""
        return f"{self.job}/{STDIO_LOG}"

    def lay_out(self, lease: Lease) -> None:
        """Make it, without attachments; OSError."""
        fd = self.place.dir_fd
        try:
            os.mkdir(self.name, _MODE, dir_fd=fd)
        except FileExistsError:  # of an agent that had leased the same
            self.remove()
            os.mkdir(self.name, _MODE, dir_fd=fd)
        os.mkdir(self.job, _MODE, dir_fd=fd)
        if lease.files:
            os.mkdir(f"{self.name}/{ATTACH}", _MODE, dir_fd=fd)
        self._write(MSG, lease.message.encode())
        if lease.after:
            rows = (orjson.dumps(row) + b"\n" for row in lease.after)
            self._write(AFTER_FILE, b"".join(rows))

    def _write(self, name: str, data: bytes) -> None:
        """Make a file of it: all of it, or an error."""
        path = f"{self.name}/{name}"
        fd = os.open(path, _NEW, 0o640, dir_fd=self.place.dir_fd)
        with open(fd, "wb") as file:
            file.write(data)

    def open_job(self) -> int:
        """Return a descriptor of the script's directory."""
        return beneath.open_place(self.job, self.place.dir_fd)

    def log_size(self) -> int:
        """Return how long its log is, in bytes."""
        try:
            return os.stat(self.log, dir_fd=self.place.dir_fd).st_size
        except OSError:
            return 0

    def has(self, name: str) -> bool:
        """Return whether the script has made something in its directory."""
        try:
            path = f"{self.job}/{name}"
            os.stat(path, dir_fd=self.place.dir_fd, follow_symlinks=False)
        except OSError:
            return False
        return True

    def remove_plain(self) -> bool:
        """Remove it if it holds nothing but what most hold; return whether it is gone."""
        fd = self.place.dir_fd
        try:
            os.unlink(f"{self.name}/{MSG}", dir_fd=fd)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.log, dir_fd=fd)
            os.rmdir(self.job, dir_fd=fd)
            os.rmdir(self.name, dir_fd=fd)
        except OSError:
            return False
        return True

    def remove(self) -> None:
        """Remove it with all that the script has made; OSError."""
        durable.remove_tree(self.name, self.place.dir_fd)


async def fetch(folder: Folder, lease: Lease, service: Service) -> None:
    """Fetch the attachments of a message; NoRoom, NotWhole, OSError."""
    room = os.statvfs(folder.place.dir_fd)
    wanted = sum(file.size for file in lease.files)
    if wanted + KEPT_FREE > room.f_bavail * room.f_frsize:
        raise NoRoom(f"its attachments have {wanted} bytes, and its worker no room")
    for file in lease.files:
        await _fetch(folder, lease.msg_id, file, service)


async def _fetch(folder: Folder, msg_id: str, file: File, service: Service) -> None:
    path = f"{folder.name}/{ATTACH}/{names.attachment(file.name)}"
    fd = os.open(path, _NEW, 0o640, dir_fd=folder.place.dir_fd)
    with open(fd, "wb", buffering=0) as opened:
        arrival = _Arrival(opened)
        await service.fetch(msg_id, file, arrival.begin)
        is_whole = arrival.is_of(file)
    if not is_whole:
        raise NotWhole(f"attachment {file.name} did not arrive as it was sent")


class _Arrival:
    """A file that arrives, perhaps from its beginning again."""

    def __init__(self, opened: FileIO) -> None:
        self._opened = opened
        self._digest = hashlib.sha256()

    def begin(self) -> Callable[[bytes], None]:
        """Forget what has arrived; return what takes the next piece."""
        self._opened.seek(0)
        self._opened.truncate()
        self._digest = hashlib.sha256()
        return self._take

    def _take(self, piece: bytes) -> None:
        self._digest.update(piece)
        while piece:
            piece = piece[self._opened.write(piece) :]

    def is_of(self, file: File) -> bool:
        """Whether all has arrived, as it was sent."""
        whole = self._opened.tell() == file.size
        return whole and self._digest.hexdigest() == file.sha256


# ---- results


@dataclass(frozen=True, slots=True)
class ResultFile:
    """A result that is handed in."""

    file: File
    path: str  # below the directory of all messages


async def results(folder: Folder) -> list[ResultFile]:
    """Return what the script has left in `results/`, with digests; BadInput when it
    cannot be handed in."""
    loop = asyncio.get_running_loop()
    place = f"{folder.job}/{RESULTS}"
    listed = sorted(beneath.names(place, folder.place.dir_fd))
    if len(listed) > MOST_RESULTS:
        raise BadInput(f"{RESULTS}/ holds {len(listed)} files, at most {MOST_RESULTS}")
    return [
        await loop.run_in_executor(None, _measured, folder, f"{place}/{name}", name)
        for name in listed
    ]


def _measured(folder: Folder, path: str, name: str) -> ResultFile:
    try:
        fd = beneath.open_plain(path, folder.place.dir_fd)
    except (OSError, NotPlain) as error:
        raise BadInput(f"{RESULTS}/{name}: {error.strerror or error}") from None
    with open(fd, "rb", buffering=0) as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
        size = os.fstat(opened.fileno()).st_size
    return ResultFile(File(name=names.attachment(name), size=size, sha256=digest), path)


def read_piece(folder: Folder, path: str, start: int) -> bytes:
    """Return the next bytes of a file of an attempt; empty at its end, and when it is
    no plain file any more."""
    try:
        fd = beneath.open_plain(path, folder.place.dir_fd)
    except OSError:
        return b""
    try:
        return os.pread(fd, _PIECE, start)
    finally:
        os.close(fd)


# ---- their end


class Sweeper:
    """Removes the folders of messages that are handed in, in a thread: a disk may take
    longer for that than the script took for its work."""

    def __init__(self) -> None:
        self._folders: list[Folder] = []
        self._task: asyncio.Task[None] | None = None

    def remove(self, folder: Folder) -> None:
        """Remove a folder, soon."""
        self._folders.append(folder)
        if self._task is None:
            self._task = asyncio.create_task(self._sweep())

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while self._folders:
            await asyncio.sleep(PAUSE)
            folders, self._folders = self._folders, []
            await loop.run_in_executor(None, _remove_all, folders)
        self._task = None

    async def ended(self) -> None:
        """Wait until all are gone."""
        if self._task is not None:
            await self._task


def _remove_all(folders: list[Folder]) -> None:
    for folder in folders:
        if folder.remove_plain():
            continue
        try:
            folder.remove()
        except FileNotFoundError:
            continue
        except OSError as error:
            log.error(
                "a folder stays until the next start: %s",
                fields(folder=folder.name, reason=error.strerror or error),
            )
