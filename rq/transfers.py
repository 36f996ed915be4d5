"""What the relay has begun and not ended: at which host, in which step, with what answer.

Read from the messages of the queue `relay` and from what its script keeps in `job/`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from rq import names
from rq.errors import BadMessage, NoSuchMessage, WrongState
from rq.layout import JOB, RELAY_STATE, QueueDir, Root
from rq.spool import folders
from rq.spool.script_files import read_json, write_json
from rq.states import State

QUEUE = "relay"
_STATE = f"{JOB}/{RELAY_STATE}"
_STATES = (State.ERR, State.RUN, State.QUE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """A message that is being handed over."""

    msg_id: str
    state: str
    dest: str
    peer: str = ""  # as http://HOST:PORT
    step: str = ""  # the last that was taken
    answer: str = ""  # to that
    remote: str | None = None  # full id of the message there
    since: float | None = None  # epoch seconds of the first attempt that did not end it
    in_doubt: bool = False  # nobody but a person can know whether it arrived

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def ls(root: Root, most: int | None = None) -> list[Transfer]:
    """Return all that have been tried and have not ended, those in doubt first.

    `most`: of each state only so many are looked at, of those that failed the newest,
    of the others the oldest, for they are tried first.
    """
    # One that moves while this looks may be seen in two states: the later one counts.
    found = {one.msg_id: one for one in _all(root.queue(QUEUE), most)}
    return sorted(found.values(), key=lambda one: (not one.in_doubt, one.msg_id))


def _all(queue: QueueDir, most: int | None = None) -> Iterator[Transfer]:
    for state in _STATES:
        ids = folders.list_state(queue, state)
        for msg_id in (ids if state is State.ERR else ids[::-1])[:most]:
            if (kept := _kept(queue, state, msg_id)) is not None:
                yield _transfer(queue, state, msg_id, kept)


def _kept(queue: QueueDir, state: State, msg_id: str) -> dict[str, Any] | None:
    return read_json(queue.message(state, msg_id), _STATE)


def _transfer(
    queue: QueueDir, state: State, msg_id: str, kept: dict[str, Any]
) -> Transfer:
    try:
        dest = folders.read_message(queue, state, msg_id).dest
    except (BadMessage, NoSuchMessage, OSError):
        dest = "?"
    return Transfer(
        msg_id=msg_id,
        state=str(state),
        dest=dest,
        peer=str(kept.get("peer") or ""),
        step=str(kept.get("step") or ""),
        answer=str(kept.get("answer") or ""),
        remote=kept.get("remote"),
        since=kept.get("since"),
        in_doubt=state is State.ERR and bool(kept.get("doubt")),
    )


def find(root: Root, text: str) -> Transfer:
    """Return the transfer of a message; NoSuchMessage when there is none."""
    msg_id = names.msg_id(text.rpartition("/")[2])
    queue = root.queue(QUEUE)
    for state in (*_STATES, State.RUN):  # it may have moved behind the last look
        if (kept := _kept(queue, state, msg_id)) is not None:
            return _transfer(queue, state, msg_id, kept)
    raise NoSuchMessage(
        f"{msg_id} is not being handed over; `rq relay ls` lists what is"
    )


def command(one: Transfer) -> str | None:
    """Return what to ask the queue's owner for, so that a message is tried at once; None
    while it is."""
    if one.state == State.RUN:
        return None
    return "retry_message" if one.state == State.ERR else "run_message"


def send_again(root: Root, one: Transfer) -> None:
    """Write down that a message in doubt has not arrived: its next attempt makes a new
    one there. The caller sends it round again."""
    if not one.in_doubt:
        raise WrongState(f"{one.msg_id} is not in doubt: `rq relay retry` is enough")
    queue = root.queue(QUEUE)
    kept = _kept(queue, State.ERR, one.msg_id) or {}
    for name in ("remote", "keyed", "committing", "doubt", "since"):
        kept.pop(name, None)
    kept["again"] = int(kept.get("again", 0)) + 1
    write_json(queue.message(State.ERR, one.msg_id), _STATE, kept)
