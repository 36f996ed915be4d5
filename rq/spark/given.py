"""The messages that a job is given: by a queue, one or a batch of them, or in a folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rq.errors import BadInput, is_busy
from rq.layout import ATTACH, JOB, MSG
from rq.message import PARAMS


@dataclass(frozen=True, slots=True)
class Given:
    """A message; `param1` … `param4` and what else it says are in `fields`."""

    msg_id: str
    folder: Path
    fields: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        """Return a field; None if the message does not say it."""
        return self.fields.get(name)

    @property
    def src(self) -> str:
        return str(self.fields.get("src") or "")

    @property
    def job(self) -> Path:
        """Its working directory, which stays with it from attempt to attempt."""
        return self.folder / JOB

    @property
    def attachments(self) -> list[Path]:
        """Its attachments, by name; a plain file that is tried is its own."""
        if self.folder.is_file():
            return [self.folder]
        directory = self.folder / ATTACH
        found = directory.iterdir() if directory.is_dir() else ()
        return sorted(one for one in found if one.is_file() and not one.is_symlink())


@dataclass(frozen=True, slots=True)
class Batch:
    """All messages of one start of a job."""

    batch_id: str
    queue: str
    messages: tuple[Given, ...]
    is_one: bool = False  # a message of an ordinary queue

    @property
    def ids(self) -> list[str]:
        return [one.msg_id for one in self.messages]


def from_queue(env: Mapping[str, str]) -> Batch:
    """Return what the queue that started this process wants to be done."""
    if env.get("RQ_BATCH"):
        return _batch(Path(env["RQ_BATCH_FILE"]))
    if "RQ_MSG_ID" not in env:
        raise BadInput(
            "a job is started by a queue; without one: "
            "`rq spark try SCRIPT --messages DIR`"
        )
    folder = Path(env["RQ_MSG_DIR"]).parent
    said = {name: env.get(f"RQ_{name.upper()}", "") for name in PARAMS}
    one = Given(env["RQ_MSG_ID"], folder, {**_fields(folder), **said})
    queue = env["RQ_FULL_MSG_ID"].rpartition("/q/")[2].partition("/")[0]
    return Batch(one.msg_id, queue, (one,), is_one=True)


def _batch(path: Path) -> Batch:
    found = json.loads(path.read_text("utf-8"))
    messages = [
        Given(one["msg_id"], Path(one["dir"]), one) for one in found["messages"]
    ]
    return Batch(found["batch_id"], found["queue"], tuple(messages))


def from_folder(directory: Path) -> Batch:
    """Return the messages in a directory, searched to the bottom: folders with a `msg`;
    else each file is one, from the host that its directory is called by."""
    if not directory.is_dir():
        raise BadInput(f"there is no directory {directory}")
    folders = sorted({one.parent for one in directory.rglob(MSG) if one.is_file()})
    found = [Given(one.name, one, _fields(one)) for one in folders]
    if not found:
        files = sorted(one for one in directory.rglob("*") if one.is_file())
        found = [_plain(one, one.relative_to(directory)) for one in files]
    if not found:
        raise BadInput(f"there are neither messages nor files in {directory}")
    return Batch("try", "try", tuple(found))


def _plain(file: Path, name: Path) -> Given:
    return Given(str(name), file, {"src": name.parent.name})


def _fields(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / MSG).read_text("utf-8"))
    except OSError as error:
        if is_busy(error):  # what it says is not known
            raise
        return {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
