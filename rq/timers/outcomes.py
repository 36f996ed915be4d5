"""What has become of the messages of a timer, as their queue tells it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rq import client
from rq.errors import NoSuchMessage
from rq.layout import Root
from rq.states import LIVE, State
from rq.timers.past import Fire

ASK_TIMEOUT = 10.0  # seconds
_LASTING = frozenset({State.DONE, State.RELAYED, State.GONE})


async def states_of(root: Root, fires: Sequence[Fire]) -> dict[str, str]:
    """Return the states of the messages of fires that may have changed, by their URLs.

    Unreachable, OutcomeUnknown: the queue of one of them does not answer.
    """
    return {
        fire.msg: await _state(root, *place(fire.msg))
        for fire in fires
        if fire.msg and fire.outcome not in _LASTING
    }


def with_states(fires: Sequence[Fire], states: Mapping[str, str]) -> tuple[Fire, ...]:
    """Return fires with the states that their messages were seen in."""
    return tuple(
        replace(fire, outcome=states.get(fire.msg, fire.outcome)) for fire in fires
    )


def live(states: Mapping[str, str]) -> dict[str, str]:
    """Return those that wait or run."""
    return {msg: state for msg, state in states.items() if state in LIVE}


async def end(root: Root, msg: str, state: str, who: str) -> None:
    """Take a message out that waits, or end one that runs, which takes a moment."""
    queue, msg_id = place(msg)
    command = "cancel_message" if state == State.RUN else "delete_message"
    request = {"msg_id": msg_id, "who": who}
    client.demanded(await _ask(root, queue, command, request))


def place(msg: str) -> tuple[str, str]:
    """Return the queue and the id in the URL of a message of ours.

    >>> place("http://h:3333/q/mail/20260102.0304.05.006.7")
    ('mail', '20260102.0304.05.006.7')
    """
    _, queue, msg_id = msg.rsplit("/", 2)
    return queue, msg_id


async def _state(root: Root, queue: str, msg_id: str) -> str:
    reply = await _ask(root, queue, "get_message_state", {"msg_id": msg_id})
    try:
        return str(client.demanded(reply))
    except NoSuchMessage:
        return State.GONE


async def _ask(root: Root, queue: str, command: str, request: object) -> object:
    socket = root.queue(queue).socket
    return await client.ask_async(socket, command, request, timeout=ASK_TIMEOUT)
