"""The messages that a job is given: by a queue, one or a batch of them, or in a folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rq.errors import BadInput, is_busy
from rq.layout import ATTACH, JOB, MSG
from rq.message.table import PARAMS
from rq.words import visible
from rq.words.nesting import Json


@dataclass(frozen=True, slots=True)
class Given:
    """A message; `param1` … `param4` and what else it says are in `fields`."""

    msg_id: str
    folder: Path
    fields: Mapping[str, Json] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Json:
        """Return a field; None if the message does not say it."""
        return self.fields.get(name)

    @property
    def src(self) -> str:
        return str(self.fields.get("src") or "")

    @property
    def job(self) -> Path:
        """Its working directory, the same in all its attempts."""
        return self.folder / JOB

    @property
    def attachments(self) -> list[Path]:
        """Its attachments, by name; a plain file that is tried is its own."""
        if self.folder.is_file():
            return [self.folder]
        directory = self.folder / ATTACH
        entries = directory.iterdir() if directory.is_dir() else ()
        return sorted(e for e in entries if e.is_file() and not e.is_symlink())


@dataclass(frozen=True, slots=True)
class Batch:
    """All messages of one start of a job."""

    batch_id: str
    queue: str
    messages: tuple[Given, ...]
    is_one: bool = False  # a message of an ordinary queue

    @property
    def ids(self) -> list[str]:
        return [message.msg_id for message in self.messages]

    @property
    def readable(self) -> list[Path]:
        """The directories that its messages bring, and the working directory."""
        return [Path.cwd(), *(message.folder / ATTACH for message in self.messages)]


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
    params = {name: env.get(f"RQ_{name.upper()}", "") for name in PARAMS}
    message = Given(env["RQ_MSG_ID"], folder, {**_fields(folder), **params})
    queue = env["RQ_FULL_MSG_ID"].rpartition("/q/")[2].partition("/")[0]
    return Batch(message.msg_id, queue, (message,), is_one=True)


def _batch(path: Path) -> Batch:
    batch = json.loads(path.read_text("utf-8"))
    messages = [
        Given(fields["msg_id"], Path(fields["dir"]), fields)
        for fields in batch["messages"]
    ]
    return Batch(batch["batch_id"], batch["queue"], tuple(messages))


def from_folder(directory: Path) -> Batch:
    """Return the messages in a directory, searched to the bottom: folders with a `msg`;
    else each file is one, from the host that its directory is called by."""
    if not directory.is_dir():
        raise BadInput(f"there is no directory {directory}")
    folders = sorted({file.parent for file in directory.rglob(MSG) if file.is_file()})
    messages = [Given(folder.name, folder, _fields(folder)) for folder in folders]
    if not messages:
        files = sorted(path for path in directory.rglob("*") if path.is_file())
        messages = [_plain(file, file.relative_to(directory)) for file in files]
    if not messages:
        raise BadInput(f"there are neither messages nor files in {directory}")
    return Batch("try", "try", tuple(messages))


def of_folder(msg_id: str, folder: Path) -> Given:
    """Return a message that has ended, and is in its folder still."""
    return Given(msg_id, folder, _fields(folder))


def _plain(file: Path, name: Path) -> Given:
    # As an id in what is said of it; a name may be bytes that are no UTF-8.
    return Given(visible.line(str(name)), file, {"src": visible.line(name.parent.name)})


def _fields(folder: Path) -> Mapping[str, Json]:
    try:
        fields: Json = json.loads((folder / MSG).read_text("utf-8"))
    except OSError as error:
        if is_busy(error):  # what it says is not known
            raise
        return {}
    except ValueError:
        return {}
    return fields if isinstance(fields, dict) else {}
