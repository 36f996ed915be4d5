"""What may be done to a flow as a whole: cancel it, retry what failed, send a part again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from rq.builtin.flow import record
from rq.builtin.flow.record import QUEUE
from rq.errors import BadInput, RQError, WrongState
from rq.flow import marks
from rq.flow import plan as plans
from rq.flow.marks import Mark
from rq.flow.plan import Node, Plan
from rq.flow.view import Flow
from rq.layout import Root
from rq.message.actions import ACTIONS, Word
from rq.message.causes import Cause
from rq.rpc import client, wire
from rq.words.states import State

_TIMEOUT = 60.0  # seconds
_AT_ONCE = 200  # requests that are on their way
_WAIT = (State.QUE, "held", "after")  # of a message, as an owner says it


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What became of the messages of a flow."""

    changed: int
    failures: Sequence[str]  # a sentence each
    left: int = 0  # messages that a person has cancelled, and that stay so


def cancel(root: Root, flow: Flow, who: str) -> Done:
    """End what has not ended: what waits is removed, what runs is ended.

    The last in order comes first: when one is ended, all that waited for it are gone, and
    so no rule of theirs lets them run for that.
    """
    nodes = [n for layer in reversed(flow.plan.layers) for n in _by_queue(layer)]
    targets = {flow.sent[n.name]: n.name for n in nodes if n.name in flow.sent}
    sender = f"{QUEUE}/{flow.msg_id}"
    if flow.state in (State.QUE, State.RUN, "held"):
        # First of all: from then on nothing of it can begin.
        states = {**flow.states, sender: flow.state}
        targets = {sender: sender, **targets}
        return _each(root, targets, states, who, _end_of)
    with contextlib.suppress(OSError, RQError):  # the mark is not worth the cancel
        ended = [n for t, n in targets.items() if _end_of(flow.states.get(t, ""))]
        record.note_cancelled(root, flow.msg_id, ended)
    return _each(root, targets, flow.states, who, _end_of)


def retry(root: Root, flow: Flow, who: str, *, cancelled: bool = False) -> Done:
    """Run what has failed again; the rest goes on by itself. What a person has cancelled
    stays so, but for `cancelled`: then those of these run again that ran."""
    if flow.state != State.DONE:
        raise WrongState(
            f"flow {flow.msg_id} was not begun: `rq flow rerun {flow.msg_id}` sends it again"
        )
    marked = [(flow.mark_of(node), node) for node in flow.plan.nodes]
    ended = [node for mark, node in marked if mark is Mark.CANCELLED]
    wanted = [node for mark, node in marked if mark is Mark.FAILED]
    if cancelled:
        wanted += [node for node in ended if _has_run(flow, node)]
    left = len(ended) - sum(node in wanted for node in ended)
    targets = {flow.sent[node.name]: node.name for node in wanted}
    done = _each(root, targets, flow.states, who, lambda state: Word.RETRY)
    return replace(done, left=left)


def left_text(flow: Flow, left: int) -> str:
    """Return what a person should know of messages that stay cancelled."""
    stay = "1 message stays" if left == 1 else f"{left:,} messages stay"
    again = f"`rq flow retry {flow.msg_id} --cancelled` runs those again that ran"
    part = f"`rq flow rerun {flow.msg_id} --from NAME` sends a part again"
    return f"{stay} cancelled: {again}, {part}"


def _has_run(flow: Flow, node: Node) -> bool:
    """Return whether a message that was cancelled is still there: it ran."""
    return flow.states.get(flow.sent[node.name]) == Cause.CANCELLED


def part(flow: Flow, start: str) -> Plan:
    """Return the plan of what is sent again; `start` "": all of it. BadInput; WrongState:
    the flow goes on once what has failed is retried, and would then do the same twice."""
    if not start:
        return flow.plan
    counted = marks.sums(map(flow.mark_of, flow.plan.nodes))
    has_failed = counted.get(Mark.FAILED) or counted.get(Mark.CANCELLED)
    if has_failed and counted.get(Mark.WAITS):
        raise WrongState(
            f"flow {flow.msg_id} has not ended ({marks.in_words(counted)}): `rq flow retry "
            f"{flow.msg_id}` runs what failed again, and the rest goes on; to send a part "
            f"again in place of that, end it first by `rq flow cancel {flow.msg_id}`"
        )
    if flow.state != State.DONE:
        raise BadInput(
            f"flow {flow.msg_id} was not begun, so nothing of it has run: send all of it "
            "again, without a message to begin from"
        )
    return plans.part_from(flow.plan, start, flow.sent)


def _by_queue(layer: Sequence[Node]) -> list[Node]:
    return sorted(layer, key=lambda node: node.queue)


def _end_of(state: str) -> Word | None:
    if state == State.RUN:
        return Word.CANCEL
    return Word.DELETE if state in _WAIT else None


def _each(
    root: Root,
    targets: Mapping[str, str],
    states: Mapping[str, str],
    who: str,
    word_for: Callable[[str], Word | None],
) -> Done:
    """Do to each message what its state asks for, one run of the same queue after the
    other: those of a layer stand together, and none of them waits for another. `targets`:
    their names in the flow, by which a failure tells of them."""
    wanted = [(t, word) for t in targets if (word := word_for(states.get(t, "")))]
    changed, failures = 0, list[str]()
    for queue, run in groupby(wanted, key=lambda row: row[0].partition("/")[0]):
        rows = list(run)
        try:
            with client.Connection(root.queue(queue).socket, _TIMEOUT) as line:
                for at in range(0, len(rows), _AT_ONCE):
                    failed = _ask_all(line, rows[at : at + _AT_ONCE], who)
                    failures += (f"{targets[t]}: {why}" for t, why in failed.items())
                    changed += len(rows[at : at + _AT_ONCE]) - len(failed)
        except RQError as error:
            failures.append(f"{targets[rows[0][0]]}: queue {queue}: {error}")
    return Done(changed=changed, failures=failures)


def _ask_all(
    line: client.Connection, rows: Sequence[tuple[str, Word]], who: str
) -> Mapping[str, RQError]:
    """Ask for all at once, for they share a sync; return why some were not done."""
    for target, word in rows:
        request = {"msg_id": target.rpartition("/")[2], "who": who}
        line.send(ACTIONS[word].command, request)
    answers = {target: wire.failure_in(line.receive()) for target, _ in rows}
    return {target: error for target, error in answers.items() if error is not None}
