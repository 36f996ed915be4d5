"""Queues full of message folders for those who read them; no owner has made them."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rq.layout import Root, folder
from rq.message.message import from_request
from rq.words.states import State

BEGAN = datetime(2026, 1, 2, 3, 0, tzinfo=UTC)


def make_queue(root: Root, name: str) -> None:
    root.queue(name).path.mkdir(parents=True)
    root.queue(name).config.write_text(json.dumps({"name": name, "script": "x"}))


def make_message(
    root: Root, name: str, state: State, number: int, when: datetime, **fields: object
) -> str:
    """Make a message as it lies when it has come to a state; return its id."""
    msg_id = f"{when:%Y%m%d.%H%M.%S}.{when.microsecond // 1000:03d}.{number}"
    origin = f"http://127.0.0.1:3333/q/{name}/{msg_id}"
    asked = {"dest": name, "due": when.timestamp(), "param1": f"p{number}", **fields}
    place = root.queue(name).path / folder(state, msg_id)
    place.mkdir(parents=True)
    message = from_request(asked, msg_id, 0.0, origin)
    (place / "msg").write_bytes(message.encode())
    if state in (State.DONE, State.ERR, State.RELAYED):
        cause = "done" if state is State.DONE else "said_err"
        status = {
            "job_status": f"fine {number}",
            "cause": cause,
            "outcome": str(state),
            "attempt": 1,
            "wait_us": 1000 + number,
            "run_us": 2000 + number,
            "finished": when.timestamp() + 1.5,
        }
        (place / "status").write_text(json.dumps(status))
    return msg_id


def make_done(root: Root, name: str, number: int, minutes: int) -> None:
    """Make messages in done, spread over as many minutes."""
    for one in range(number):
        when = BEGAN + timedelta(minutes=one * minutes // number)
        make_message(root, name, State.DONE, one, when)


def plain_read(root: Path, name: str) -> list[dict[str, object]]:
    """Read what a queue has done with what Python has, and nothing of RQ."""
    found = []
    for path in sorted(Path(root).glob(f"queue/{name}/done/*/*/*/*/msg")):
        message = json.loads(path.read_bytes())
        status = json.loads((path.parent / "status").read_bytes())
        found.append({**message, **status})
    return found


def deepen(top: Path) -> None:
    """Make 3,000 directories in each other, as a script may: no path is so long, and no
    stack of Python's so deep."""
    fd = os.open(top, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=fd)
        inner = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(fd)
