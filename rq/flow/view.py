"""What a reader is told of a flow; pure.

A door that shows one reads its plan and which messages were sent, asks the owners how these
stand, and hands all of it over. A reader who may not see a queue learns that the flow has a
message there, between which others it stands, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import cast

from rq import names
from rq.flow import marks
from rq.flow.marks import Mark
from rq.flow.plan import Node, Plan
from rq.message.after import Rule
from rq.replies.flow import FlowRow, FlowView, NodeView
from rq.words.states import State

_SAYS = {
    Mark.UNSENT: "its messages are being sent; none runs before all are",
    Mark.DONE: "{all} done",
}
_WAITS = "{} waits for the end of all of them, and tells the flow's webhooks then"
_END_SAYS = {
    Mark.READY: _WAITS,
    Mark.RUNS: _WAITS,
    Mark.DONE: "{} has told the flow's webhooks how it ended",
    Mark.FAILED: "{} could not tell the flow's webhooks how it ended",
}
# The mark of a flow of which none ran, once what sends it has ended.
_NOT_BEGUN = frozenset({Mark.FAILED, Mark.CANCELLED, Mark.GONE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """What is known of a flow."""

    msg_id: str
    plan: Plan
    state: str  # of what sends it
    said: str = ""  # by what sends it, the last
    by: str = ""  # who has sent it; "": RQ itself
    sent: Mapping[str, str] = field(default_factory=dict)  # QUEUE/ID by name
    was: Mapping[str, str] = field(default_factory=dict)  # as sent, of what was moved
    states: Mapping[str, str] = field(default_factory=dict)  # by QUEUE/ID
    texts: Mapping[str, str] = field(default_factory=dict)  # by QUEUE/ID
    cancelled: frozenset[str] = frozenset()  # names of those that were ended with it
    end: str = ""  # the message of the queue `flow` that tells its webhooks; "": none
    end_state: str = ""  # of that

    def mark_of(self, node: Node) -> Mark:
        target = self.sent.get(node.name)
        mark = marks.of_state(None if target is None else self.states.get(target, ""))
        was_ended = mark is Mark.GONE and node.name in self.cancelled
        return Mark.CANCELLED if was_ended else mark

    def queue(self, node: Node) -> str:
        """Return the queue where a message is now."""
        target = self.sent.get(node.name)
        return node.queue if target is None else target.partition("/")[0]

    @property
    def queues(self) -> list[str]:
        """The queues of its messages, also of those that were moved, by name."""
        moved = (self.sent[name].partition("/")[0] for name in self.was)
        return sorted({*self.plan.queues, *moved})

    @property
    def mark(self) -> Mark:
        """How it stands as a whole."""
        return marks.of_flow(self.state, marks.sums(map(self.mark_of, self.plan.nodes)))

    @property
    def awaited(self) -> str:
        """QUEUE/ID of a message whose end may be that of the flow: the last in order of
        those that are nearest to theirs; "": nothing of it goes on by itself."""
        mark, sender = self.mark, f"flow/{self.msg_id}"
        if mark is Mark.UNSENT:
            return sender
        marked = {node.name: self.mark_of(node) for node in self.plan.nodes}
        if mark not in marks.GOES_ON:
            marked = {name: marked[name] for name in self._near_decision(marked)}
        by_mark = {mark: name for name, mark in marked.items()}
        name = next((by_mark[each] for each in marks.GOES_ON if each in by_mark), "")
        return self.sent.get(name, sender) if name else ""

    def _near_decision(self, marked: Mapping[str, Mark]) -> Iterator[str]:
        """Give what waits, though all that it waits for has ended: in a moment its owner
        decides. One of rule `done` waits on for what has failed."""
        for node in self.plan.nodes:
            if marked[node.name] is not Mark.WAITS or node.others:
                continue
            ends = {marked[name] for name in node.after}
            is_open = not marks.OPEN.isdisjoint(ends)
            rule = node.message.get("after_rule") or Rule.DONE
            if not is_open and (rule != Rule.DONE or ends <= marks.DECIDE_DONE):
                yield node.name

    def is_seen(self, node: Node, sees: Callable[[str], bool]) -> bool:
        """Return whether a reader may see a message, where it is and where it was."""
        return sees(node.queue) and sees(self.queue(node))


def view(flow: Flow, sees: Callable[[str], bool]) -> FlowView:
    """Return what a reader is told who may see some queues."""
    names = _Names(flow, sees)
    views = [
        _node(flow, node, at, names)
        for at, layer in enumerate(flow.plan.layers, 1)
        for node in layer
    ]
    row_of_it = _row(flow, marks.sums(Mark(node["mark"]) for node in views))
    answer = cast(FlowView, {**row_of_it, "nodes": views})
    if text := _END_SAYS.get(marks.of_state(flow.end_state or None)):
        said = text.format(f"flow/{flow.end}")
        answer["end"] = {"msg_id": flow.end, "state": flow.end_state, "text": said}
    return answer


def row(flow: Flow, sees: Callable[[str], bool]) -> FlowRow:
    """Return what a list tells of a flow."""
    return _row(
        flow,
        marks.sums(
            flow.mark_of(node) if flow.is_seen(node, sees) else Mark.HIDDEN
            for node in flow.plan.nodes
        ),
    )


def _row(flow: Flow, counted: Mapping[Mark, int]) -> FlowRow:
    mark = flow.mark
    return {
        "msg_id": flow.msg_id,
        "name": flow.plan.name,
        "mark": mark,
        "text": _text(flow, mark, counted),
        "is_begun": flow.state in (State.DONE, State.RELAYED),
        "sent": names.created(flow.msg_id),
        "by": flow.by,
        "sums": {str(each): number for each, number in counted.items()},
    }


def _text(flow: Flow, mark: Mark, counted: Mapping[Mark, int]) -> str:
    is_begun = marks.of_state(flow.state) is Mark.DONE
    if mark in _NOT_BEGUN and not is_begun:
        why = "" if Mark.HIDDEN in counted else flow.said  # it may name another queue
        return (
            f"it was not begun, and none of its messages ran{': ' if why else ''}{why}"
        )
    says = _SAYS.get(mark, "{sums}")
    if mark is Mark.DONE and Mark.GONE in counted:
        says = "{sums}"  # "all are done" would call what was cancelled done
    number = sum(counted.values())
    every = "its message is" if number == 1 else f"all of its {number:,} messages are"
    return says.format(sums=marks.in_words(counted), all=every)


class _Names:
    """How the messages of a flow are called for a reader."""

    def __init__(self, flow: Flow, sees: Callable[[str], bool]) -> None:
        self._sees = sees
        self._names = {
            node.name: node.name if flow.is_seen(node, sees) else f"#{at}"
            for at, node in enumerate(flow.plan.nodes, 1)
        }

    def of(self, node: Node) -> str:
        return self._names[node.name]

    def after(self, node: Node) -> list[str]:
        others = [each for each in node.others if self._sees(each.partition("/")[0])]
        return [*(self._names[name] for name in node.after), *others]


def _node(flow: Flow, node: Node, layer: int, names: _Names) -> NodeView:
    name, after = names.of(node), names.after(node)
    if name != node.name:
        return {"name": name, "mark": Mark.HIDDEN, "layer": layer, "after": after}
    target = flow.sent.get(name, "")
    view_of_node: NodeView = {
        "name": name,
        "mark": flow.mark_of(node),
        "layer": layer,
        "after": after,
        "queue": flow.queue(node),
    }
    if name in flow.was:
        view_of_node["was"] = flow.was[name]
    if target:
        view_of_node["msg_id"] = target.rpartition("/")[2]
        view_of_node["state"] = flow.states.get(target, "")
    if text := flow.texts.get(target):
        view_of_node["text"] = text
    return view_of_node
