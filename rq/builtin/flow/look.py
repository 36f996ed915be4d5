"""How a flow stands: asks the owners of its messages, or reads their folders.

A message that was moved or edited goes on under another id, which the one that was sent
names: that is followed, so what is told is how the message stands that did not end.

For a thread, or a program that waits: a large flow means a request for each queue, and one
more for each thousand messages.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import cast

from rq.builtin.flow.record import QUEUE, by_queue, read
from rq.config import parked
from rq.errors import CannotRead, NoSuchMessage, RQError
from rq.flow import marks
from rq.flow.marks import Mark, of_state
from rq.flow.view import Flow
from rq.layout import QueueDir, Root
from rq.message.after import Rule, Standing
from rq.message.causes import Cause
from rq.replies import EndView
from rq.rpc import client
from rq.spool import folders
from rq.words.states import COUNTED, FINAL, LIVE, State

_MOST = 500  # messages of a question
_MOST_ENDS = 100
_MOST_TEXTS = 100  # of messages that failed, and of those that run
_HOPS = 10  # ids under which one message goes on, at most
_GOES_ON = f"{Standing.GOES_ON} "
_TIMEOUT = 10.0  # seconds


def flow_of(root: Root, msg_id: str) -> Flow:
    """Return how a flow stands now; NoSuchMessage: there is none."""
    return _look(root, msg_id)[0]


def _look(root: Root, msg_id: str) -> tuple[Flow, EndView]:
    """As `flow_of`, and what became of the message that sends the others: both of one
    answer, for it may end between two."""
    plan, sent, by, ended, last = read(root, msg_id)
    ends = _ends(root, QUEUE, [msg_id, last] if last else [msg_id])
    end = ends.get(msg_id)
    if end is None or end["state"] == State.GONE:
        raise NoSuchMessage(f"there is no flow {msg_id}")
    # Only then may a message have ended in done without being run.
    deep = any(node.message.get("after_rule") == Rule.FAILED for node in plan.nodes)
    states, places = _followed(root, sent.values(), deep=deep)
    flow = Flow(
        msg_id=msg_id,
        plan=plan,
        state=_state_of(end),
        said=end["text"],
        by=by,
        sent={name: places.get(target, target) for name, target in sent.items()},
        was={name: target for name, target in sent.items() if target in places},
        states=states,
        texts=_texts(root, states),
        cancelled=ended,
        end=last,
        end_state=ends[last]["state"] if last in ends else "",
    )
    return flow, end


def _state_of(end: EndView) -> str:
    """Return the state of what sends a flow, as `get_states` calls that of a message."""
    is_cancel = end["acknowledged"] and end["cause"] == Cause.CANCELLED
    return str(Cause.CANCELLED) if is_cancel else end["state"]


def end_of(root: Root, msg_id: str) -> EndView:
    """Return what became of a flow as a whole, as an owner tells it of a message: `err` as
    soon as it has failed, also while messages of it wait for a person to retry what did;
    `run` while it goes on."""
    flow, end = _look(root, msg_id)
    if flow.state != State.DONE:
        return end
    counted = marks.sums(map(flow.mark_of, flow.plan.nodes))
    text = marks.in_words(counted)
    has_ended = marks.has_ended(counted)
    if counted.get(Mark.FAILED) and (
        has_ended or marks.of_flow(flow.state, counted) is Mark.FAILED
    ):
        return {**end, "state": State.ERR, "cause": "flow", "text": text}
    if not has_ended:
        return {**end, "state": State.RUN, "cause": "", "text": text, "ended": None}
    if counted.get(Mark.CANCELLED):
        ended: EndView = {**end, "state": State.ERR, "cause": Cause.CANCELLED}
        return {**ended, "acknowledged": True, "text": text}
    return {**end, "state": State.DONE, "cause": "done", "text": text}


def goes_on(flow: Flow) -> bool:
    """Return whether a message of a flow waits or runs, if only for a person."""
    if flow.state != State.DONE:
        return flow.state in LIVE
    return not marks.has_ended(marks.sums(map(flow.mark_of, flow.plan.nodes)))


def newest(root: Root, limit: int) -> list[Flow]:
    """Return how the newest flows stand, as many as `limit`."""
    queue = root.queue(QUEUE)
    ids = {
        each
        for state in COUNTED
        if state is not State.PREP
        for each in folders.list_state(queue, state, 2 * limit)  # some tell an end
    }
    flows: list[Flow] = []
    for msg_id in sorted(ids, reverse=True):
        # One that goes meanwhile, or is no flow, is left out.
        with contextlib.suppress(NoSuchMessage, CannotRead):
            flows.append(flow_of(root, msg_id))
        if len(flows) >= limit:
            break
    return flows


def _followed(
    root: Root, sent: Iterable[str], *, deep: bool
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the states of messages, and under which QUEUE/ID those go on that do not
    end where they were sent."""
    states, places = dict[str, str](), dict[str, str]()
    heads = {target: target for target in sent}  # what was sent, by where it is
    for _ in range(_HOPS):
        answers = {
            f"{queue}/{each}": state
            for queue, ids in by_queue(heads).items()
            for each, state in _states(root, queue, ids, deep=deep).items()
        }
        states |= answers
        heads = {
            place: heads[target]
            for target, state in answers.items()
            if (place := state.removeprefix(_GOES_ON)) != state
        }
        if not heads:
            break
        places |= {sent: place for place, sent in heads.items()}
    return states, places


def _states(
    root: Root, queue: str, msg_ids: Sequence[str], *, deep: bool
) -> dict[str, str]:
    """Return where messages of a queue are, as its owner or its folders say; of one that
    goes on elsewhere `goes_on QUEUE/ID`."""
    states: dict[str, str] = {}
    try:
        with client.Connection(root.queue(queue).socket, _TIMEOUT) as line:
            for at in range(0, len(msg_ids), _MOST):
                some = msg_ids[at : at + _MOST]
                request = {"msg_ids": some, "deep": deep, "follow": True}
                states |= client.demanded(line.ask("get_states", request))
    except RQError:
        directory = root.queue(queue)
        rest = (each for each in msg_ids if each not in states)
        states |= {each: _state_on_disk(directory, each) for each in rest}
    return states


def _state_on_disk(queue: QueueDir, msg_id: str) -> str:
    state = folders.find(queue, msg_id)
    if state in (State.RELAYED, State.DISMISSED):
        result = folders.read_status(queue, state, msg_id)
        if state is State.DISMISSED and result.get("cause") == Cause.CANCELLED:
            return str(Cause.CANCELLED)
        place = result.get("goes_on")
        return f"{_GOES_ON}{place}" if place else str(state)
    return str(state or State.GONE)


def _texts(root: Root, states: dict[str, str]) -> dict[str, str]:
    """Return what was last said of messages that failed, and of those that run, of the
    first of each."""
    texts: dict[str, str] = {}
    for mark in (Mark.FAILED, Mark.RUNS):
        some = [each for each, state in states.items() if of_state(state) is mark]
        texts |= {
            f"{queue}/{msg_id}": end["text"]
            for queue, ids in by_queue(some[:_MOST_TEXTS]).items()
            for msg_id, end in _ends(root, queue, ids).items()
        }
    return texts


def ends_while_parked(
    root: Root, queue: str, msg_ids: Sequence[str]
) -> dict[str, EndView] | None:
    """Return what became of messages of a parked queue, which would start if it was asked;
    None: it is not parked, or has been started meanwhile. Blocks."""
    if not parked.is_current(root, queue):
        return None
    ends = {each: _end_on_disk(root, queue, each) for each in msg_ids}
    return ends if parked.is_current(root, queue) else None


def _ends(root: Root, queue: str, msg_ids: list[str]) -> dict[str, EndView]:
    if (ends := ends_while_parked(root, queue, msg_ids)) is not None:
        return ends
    try:
        socket = root.queue(queue).socket
        request = {"msg_ids": msg_ids[:_MOST_ENDS], "running": True}
        reply = client.ask(socket, "get_ends", request, timeout=_TIMEOUT)
        return cast("dict[str, EndView]", client.demanded(reply))
    except RQError:
        return {each: _end_on_disk(root, queue, each) for each in msg_ids}


def _end_on_disk(root: Root, queue: str, msg_id: str) -> EndView:
    directory = root.queue(queue)
    state = folders.find(directory, msg_id)
    says = state in FINAL or state is State.RUN
    status = folders.read_status(directory, state, msg_id) if state and says else {}
    return {
        "state": State.ERR if state is State.DISMISSED else state or State.GONE,
        "acknowledged": state is State.DISMISSED,
        "cause": status.get("cause", ""),
        "text": status.get("job_status", ""),
        "ended": status.get("finished"),
    }
