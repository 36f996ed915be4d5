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
from rq.errors import CannotRead, NoSuchMessage, RQError
from rq.flow import marks
from rq.flow.marks import Mark, of_state
from rq.flow.view import Flow
from rq.layout import Root
from rq.message.after import Rule, Standing
from rq.message.causes import Cause
from rq.replies import EndView
from rq.rpc import client
from rq.rpc.lines import parked_answers
from rq.rpc.lines.commands import MOST_ENDS, MOST_STATES
from rq.spool import at_rest, folders
from rq.words.states import COUNTED, LIVE, State

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
        with contextlib.ExitStack() as stack:
            line: client.Connection | None = None
            for at in range(0, len(msg_ids), MOST_STATES):
                some = msg_ids[at : at + MOST_STATES]
                request = {"msg_ids": some, "deep": deep, "follow": True}
                answer = parked_answers.answer(root, queue, "get_states", request)
                if answer is None:
                    line = line or stack.enter_context(_connected(root, queue))
                    answer = line.ask("get_states", request)
                states |= client.demanded(answer)
    except RQError:
        directory = root.queue(queue)
        states |= {
            each: at_rest.standing(directory, each, deep=deep, follow=True)
            for each in msg_ids
            if each not in states
        }
    return states


def _connected(root: Root, queue: str) -> client.Connection:
    return client.Connection(root.queue(queue).socket, _TIMEOUT)


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


def _ends(root: Root, queue: str, msg_ids: list[str]) -> dict[str, EndView]:
    request = {"msg_ids": msg_ids[:MOST_ENDS], "running": True}
    try:
        answer = parked_answers.answer(root, queue, "get_ends", request)
        if answer is None:
            socket = root.queue(queue).socket
            answer = client.ask(socket, "get_ends", request, timeout=_TIMEOUT)
        return cast("dict[str, EndView]", client.demanded(answer))
    except RQError:
        return {each: at_rest.end(root.queue(queue), each) for each in msg_ids}
