"""How a message stands that has ended, by its state and its last result."""

from __future__ import annotations

from rq.message.after import Standing
from rq.message.causes import Cause
from rq.replies import Result
from rq.words.states import State, public

NOT_RUN = "not_run"  # the outcome of a message that was cancelled for a predecessor
_OF_STATE = {
    State.DONE: Standing.DONE,
    State.RELAYED: Standing.RELAYED,
    State.ERR: Standing.FAILED,
    State.DISMISSED: Standing.FAILED,
}
_NOT_RUN = (Standing.NOT_RUN, Standing.NOT_NEEDED)


def of_end(state: State, result: Result) -> Standing:
    """Return how a message stands that has ended, in the words of those that wait for it."""
    cause = result.get("cause")
    if cause == Cause.NOT_NEEDED:
        return Standing.NOT_NEEDED
    if cause == Cause.AFTER and result.get("outcome") == NOT_RUN:
        return Standing.NOT_RUN
    standing = _OF_STATE[state]
    is_cancelled = standing is Standing.FAILED and cause == Cause.CANCELLED
    return Standing.CANCELLED if is_cancelled else standing


def state_word(state: State, result: Result) -> str:
    """Return the word for a message that has ended, as the command `get_states` has it:
    `not_run` when others have decided against it, `cancelled` when a person has."""
    if result.get("cause") == Cause.CANCELLED:
        return str(Cause.CANCELLED)
    return NOT_RUN if of_end(state, result) in _NOT_RUN else public(state)
