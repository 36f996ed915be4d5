"""The message to hand over, as the script finds it, and what of it travels."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

from rq import names
from rq.errors import BadInput, NotPlain, Refused
from rq.layout import ATTACH, MSG, QueueDir, Root
from rq.message import fieldnames
from rq.message import message as messages
from rq.message.fields import Attachment
from rq.message.message import Message
from rq.message.table import NOT_RELAYED, REBUILT
from rq.spool import ancestor_files, script_files
from rq.words.nesting import Json

_NOT_THERE = (
    FileNotFoundError,
    IsADirectoryError,
    NotADirectoryError,
    NotPlain,
    PermissionError,
)
MOST_HOPS = 25
# What belongs to this host: when to run here, and how it came about.
_STAYS = NOT_RELAYED | {REBUILT}


@dataclass(frozen=True, slots=True)
class Task:
    """A message of the queue `relay` that runs."""

    root: Root
    job: Path  # the working directory
    message: Message
    full_id: str

    @property
    def queue(self) -> QueueDir:
        return QueueDir(self.job.parents[2])

    @property
    def attachments(self) -> Mapping[str, Attachment]:
        return self.message.attachments

    def file(self, name: str) -> Path:
        return self.job.parent / ATTACH / name

    def prove(self, name: str) -> None:
        """Refused when an attachment is not what it was when it came."""
        with opened(self.file(name)) as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != self.attachments[name].sha256:
            raise Refused(f"attachment {name} has changed since it was attached")


def opened(path: Path) -> BufferedReader:
    """Open an attachment; Refused when it is not there: no fault of the other host."""
    try:
        return script_files.attachment(path.parent.parent, path.name)
    except _NOT_THERE as error:
        text = f"attachment {path.name} cannot be read: {error.strerror}"
        raise Refused(text) from None


def read(env: Mapping[str, str], job: Path) -> Task:
    """Return the message whose script runs in `job`."""
    data = script_files.read(job.parent, MSG)
    message = messages.from_disk(data, env["RQ_MSG_ID"], time.time())
    if not message.attachments and names.is_ancestors(message.msg_id):
        message = message.with_(attachments=_unnamed(job.parent))
    return Task(
        Root(Path(env["RQ_ROOT"])),
        job,
        message.with_(count=int(env.get("RQ_COUNT") or 0)),
        env["RQ_FULL_MSG_ID"],
    )


def _unnamed(folder: Path) -> Mapping[str, Attachment]:
    """Return what the ancestor attached; Refused when it cannot travel."""
    try:
        return ancestor_files.digests(folder)
    except BadInput as error:
        raise Refused(str(error)) from None


def travels(task: Task) -> Mapping[str, Json]:
    """Return the fields that the receiver gets; Refused when it has come too far."""
    fields = {k: v for k, v in task.message.to_json().items() if k not in _STAYS}
    count, hops = task.message.count + 1, _hops(task.message) + 1
    if count > task.message.max_count:
        raise Refused(
            f"count is {task.message.count}, and max_count {task.message.max_count}"
        )
    if hops > MOST_HOPS:
        raise Refused(f"it was relayed {MOST_HOPS} times: it goes round in a loop")
    origin = task.message.orig_msg_id or task.full_id
    return {**fields, "count": count, fieldnames.HOPS: hops, "orig_msg_id": origin}


def _hops(message: Message) -> int:
    hops = message.extra.get(fieldnames.HOPS)
    if not isinstance(hops, int) or isinstance(hops, bool):
        return 0
    return max(0, hops)


def key(task: Task, installation: str, again: int) -> str:
    """Return the key under which the receiver knows this hand-over for ever.

    It is made of what does not change from attempt to attempt, so that neither a lost
    `job/` nor a root restored from a backup makes a second message of it.
    """
    fields = {**task.message.to_json(), "count": 0}
    kept = sorted((k, repr(v)) for k, v in fields.items() if k not in _STAYS)
    text = "\n".join([installation, task.full_id, str(again), repr(kept)])
    return f"relay/{hashlib.sha256(text.encode()).hexdigest()[:32]}"
