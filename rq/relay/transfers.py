"""Messages that the relay has begun to hand over: to which host, how far, what it said.

Read from the messages of the queue `relay` and from what its script keeps in `job/`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from rq import names
from rq.errors import BadMessage, NoSuchMessage, WrongState
from rq.layout import JOB, RELAY_STATE, QueueDir, Root
from rq.spool import folders
from rq.spool.script_files import read_json, write_json
from rq.words.nesting import Json
from rq.words.states import State

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
    in_doubt: bool = False  # only a person can find out whether it arrived

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def ls(root: Root, most: int | None = None) -> list[Transfer]:
    """Return all that have been tried and have not ended, those in doubt first.

    `most`: of each state only so many are looked at, of those that failed the newest,
    of the others the oldest, for they are tried first.
    """
    # A message that moves meanwhile may be seen in two states: the later one counts.
    by_id = {entry.msg_id: entry for entry in _all(root.queue(QUEUE), most)}
    return sorted(by_id.values(), key=lambda entry: (not entry.in_doubt, entry.msg_id))


def _all(queue: QueueDir, most: int | None = None) -> Iterator[Transfer]:
    for state in _STATES:
        ids = folders.list_state(queue, state)
        for msg_id in (ids if state is State.ERR else ids[::-1])[:most]:
            if (notes := _notes(queue, state, msg_id)) is not None:
                yield _transfer(queue, state, msg_id, notes)


def _notes(queue: QueueDir, state: State, msg_id: str) -> Mapping[str, Json] | None:
    """Return what the script of the relay has written about a message."""
    return read_json(queue.message(state, msg_id), _STATE)


def _transfer(
    queue: QueueDir, state: State, msg_id: str, notes: Mapping[str, Json]
) -> Transfer:
    try:
        dest = folders.read_message(queue, state, msg_id).dest
    except (BadMessage, NoSuchMessage, OSError):
        dest = "?"
    remote, since = notes.get("remote"), notes.get("since")
    return Transfer(
        msg_id=msg_id,
        state=str(state),
        dest=dest,
        peer=str(notes.get("peer") or ""),
        step=str(notes.get("step") or ""),
        answer=str(notes.get("answer") or ""),
        remote=remote if isinstance(remote, str) else None,
        since=since if isinstance(since, int | float) else None,
        in_doubt=state is State.ERR and bool(notes.get("doubt")),
    )


def find(root: Root, text: str) -> Transfer:
    """Return the transfer of a message; NoSuchMessage when there is none."""
    msg_id = names.msg_id(text.rpartition("/")[2])
    queue = root.queue(QUEUE)
    for state in (*_STATES, State.RUN):  # it may have moved behind the last look
        if (notes := _notes(queue, state, msg_id)) is not None:
            return _transfer(queue, state, msg_id, notes)
    raise NoSuchMessage(
        f"{msg_id} is not on its way to another host; `rq relay ls` lists what is"
    )


def command(transfer: Transfer) -> str | None:
    """Return the command with which the queue's owner tries a message at once; None
    while it is being tried."""
    if transfer.state == State.RUN:
        return None
    return "retry_message" if transfer.state == State.ERR else "run_message"


def send_again(root: Root, transfer: Transfer) -> None:
    """Write down that a message in doubt has not arrived: its next attempt makes a new
    one there. The caller retries it."""
    if not transfer.in_doubt:
        raise WrongState(
            f"{transfer.msg_id} is not in doubt: `rq relay retry` is enough"
        )
    queue = root.queue(QUEUE)
    notes = dict(_notes(queue, State.ERR, transfer.msg_id) or {})
    for name in ("remote", "keyed", "committing", "doubt", "since"):
        notes.pop(name, None)
    again = notes.get("again", 0)
    notes["again"] = (again if isinstance(again, int) else 0) + 1
    write_json(queue.message(State.ERR, transfer.msg_id), _STATE, notes)
