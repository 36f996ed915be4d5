"""What the folders of a queue without a process tell of its messages, in the words in which
its owner would: after a clean stop all is there."""

from __future__ import annotations

from rq.errors import RQError
from rq.layout import QueueDir
from rq.message import standings
from rq.message.after import Standing
from rq.replies import EndView
from rq.spool import folders
from rq.words.states import FINAL, State, public

_MAY_GO_ON = (State.RELAYED, State.DISMISSED)  # one that was moved or edited


def standing(queue: QueueDir, msg_id: str, *, deep: bool, follow: bool) -> str:
    """Return where a message is, as the command `get_states` does."""
    state = folders.find(queue, msg_id)
    if state is None:
        return str(State.GONE)
    if state is State.QUE:
        return _waiting(queue, msg_id)
    if state not in _MAY_GO_ON and not (deep and state is State.DONE):
        return public(state)
    result = folders.read_status(queue, state, msg_id)
    if follow and state in _MAY_GO_ON and (place := result.get("goes_on")):
        return f"{Standing.GOES_ON} {place}"
    return (
        public(state) if state is State.RELAYED else standings.state_word(state, result)
    )


def _waiting(queue: QueueDir, msg_id: str) -> str:
    try:
        message = folders.read_message(queue, State.QUE, msg_id)
    except RQError:
        return public(State.QUE)
    return "held" if message.held else "after" if message.wait else public(State.QUE)


def end(queue: QueueDir, msg_id: str) -> EndView:
    """Return what became of a message, as the command `get_ends` does."""
    state = folders.find(queue, msg_id)
    says = state in FINAL or state is State.RUN
    status = folders.read_status(queue, state, msg_id) if state and says else {}
    return {
        "state": public(state or State.GONE),
        "acknowledged": state is State.DISMISSED,
        "cause": status.get("cause", ""),
        "text": status.get("job_status", ""),
        "ended": status.get("finished"),
    }
