"""The graph of a flow in a terminal: a line for each message, layer below layer; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rq.flow import marks
from rq.flow.marks import LOOKS, Mark
from rq.replies.flow import FlowView, NodeView

MOST_SHOWN = 12  # messages of a layer that stand in a line of their own
_MOST_NAMED = 3  # of those that one waits for

Paint = Callable[[str, str | None], str]  # a text, and the name of its colour


def lines(flow: FlowView, paint: Paint, *, whole: bool = False) -> Iterator[str]:
    """Give the lines of a flow's graph; `whole`: no layer is shortened."""
    nodes = flow["nodes"]
    name_width = max((len(node["name"]) for node in nodes), default=0)
    layer_width = len(str(nodes[-1]["layer"])) if nodes else 1
    for layer in _layers(nodes):
        head = str(layer[0]["layer"]).rjust(layer_width)
        in_lines = layer if whole or len(layer) <= MOST_SHOWN else _worst(layer)
        for node in in_lines:
            yield f"{head}  {_node(node, name_width, paint)}".rstrip()
            head = " " * layer_width
        if len(in_lines) < len(layer):
            hidden = [node for node in layer if node not in in_lines]
            counted = marks.sums(Mark(node["mark"]) for node in hidden)
            yield f"{head}  … {len(hidden):,} more: {marks.in_words(counted)}"


def _layers(nodes: Sequence[NodeView]) -> Iterator[list[NodeView]]:
    layer: list[NodeView] = []
    for node in nodes:
        if layer and node["layer"] != layer[0]["layer"]:
            yield layer
            layer = []
        layer.append(node)
    if layer:
        yield layer


def _worst(layer: Sequence[NodeView]) -> list[NodeView]:
    """Return those of a long layer of which a person wants to know first."""
    order = list(Mark)
    ordered = sorted(layer, key=lambda node: order.index(Mark(node["mark"])))
    return ordered[: MOST_SHOWN - 1]


def _node(node: NodeView, width: int, paint: Paint) -> str:
    look = LOOKS[Mark(node["mark"])]
    if node["mark"] == Mark.HIDDEN:
        where = "a message of another queue"
    else:
        where = "/".join(filter(None, (node.get("queue"), node.get("msg_id"))))
        where += f" (was {node['was']})" if "was" in node else ""
    parts = [
        paint(f"{look.shape} {node['name'].ljust(width)}", look.colour),
        paint(look.words.ljust(12), look.colour),
        where,
        _after(node["after"]),
        node.get("text", ""),
    ]
    return "  ".join(part for part in parts if part)


def _after(names: Sequence[str]) -> str:
    if not names:
        return ""
    few = names if len(names) <= _MOST_NAMED else names[: _MOST_NAMED - 1]
    more = len(names) - len(few)
    return f"after {', '.join(few)}" + (f" and {more:,} more" if more else "")
