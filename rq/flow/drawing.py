"""The graph of a flow as a picture: layers from left to right; pure.

What is drawn is a column of boxes for each layer, and lines from each box to those that
wait for it. What is too much to be looked at is drawn as one box with sums:

- a layer of many messages is one box, so a fan-out of 200 is as wide as one message;
- of many layers those side by side are one column, so 10,000 messages in a row are a
  short row of boxes.

Within a column boxes stand where what they wait for stands, as far as there is room
(barycentres, a few sweeps): that leaves few lines to cross. A line that passes a column
passes it between the boxes: it has a place there, as a box has, only thin.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from rq.flow import marks
from rq.flow.marks import Mark
from rq.replies.flow import NodeView

MOST_COLUMNS = 40
_FEW_COLUMNS = 12  # when layers are drawn together at all
_MOST_BOXES = 240
_MOST_IN_COLUMN = (24, 12, 6, 1)  # boxes; the first with which all are few enough
_MOST_LINES = 1000  # in so many no eye finds its way
_WIDE, _HIGH = 172, 34  # of a box
_GAP_X, _GAP_Y = 56, 12
_THIN = 10  # the room of a line that passes
_MARGIN = 8
_SWEEPS = 4
_SHORT = 20  # characters of a name that fit
_BAR = 148.0  # the sums in a box, as a bar
_LEAST = 5.0  # of it for each mark: what failed once in thousands is seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A stretch of the bar of a box."""

    mark: str
    x: float  # from the left of the box
    width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """One message, or many."""

    mark: str  # of many, the likeliest to need a person
    label: str
    title: str
    x: float
    y: float
    queue: str = ""
    msg_id: str = ""
    says: str = ""  # the last, of one that runs
    parts: Sequence[Part] = ()  # of many


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A graph, and how large it is."""

    width: float
    height: float
    boxes: Sequence[Box]
    lines: Sequence[tuple[str, str]]  # the mark of what is waited for, and an SVG path
    label: str  # for who does not see it
    is_whole: bool  # each message has a box of its own


@dataclass(slots=True, eq=False)
class _Item:
    """What has a place in a column: messages, or a line that passes (none)."""

    nodes: Sequence[NodeView] = ()
    before: list[_Item] = field(default_factory=list)
    y: float = 0.0

    @property
    def height(self) -> float:
        return _HIGH if self.nodes else _THIN


def picture(nodes: Sequence[NodeView]) -> Picture:
    """Return the picture of messages in topological order."""
    columns = _columns(nodes)
    edges = _edges(columns, nodes)
    lines_fit = len(edges) <= _MOST_LINES
    places = _with_passing(columns, edges) if lines_fit else columns
    height = _placed(places)
    return Picture(
        width=2 * _MARGIN + len(columns) * (_WIDE + _GAP_X) - _GAP_X,
        height=height,
        boxes=[_box(item, at) for at, column in enumerate(columns) for item in column],
        lines=_lines(places) if lines_fit else [],
        label=_label(nodes),
        is_whole=all(len(item.nodes) == 1 for column in columns for item in column),
    )


def _label(nodes: Sequence[NodeView]) -> str:
    counted = marks.sums(Mark(node["mark"]) for node in nodes)
    return f"the graph of {marks.messages(len(nodes))}: {marks.in_words(counted)}"


# ---- what gets a box


def _columns(nodes: Sequence[NodeView]) -> list[list[_Item]]:
    layers: dict[int, list[NodeView]] = {}
    for node in nodes:
        layers.setdefault(node["layer"], []).append(node)
    few = len(layers) <= MOST_COLUMNS
    per_column = 1 if few else -(-len(layers) // _FEW_COLUMNS)  # layers
    listed = list(layers.values())
    columns = [
        [node for layer in listed[at : at + per_column] for node in layer]
        for at in range(0, len(listed), per_column)
    ]
    most = 1 if per_column > 1 else _most_in_column(columns)
    return [_items(column, most) for column in columns]


def _most_in_column(columns: Sequence[Sequence[NodeView]]) -> int:
    for most in _MOST_IN_COLUMN:
        boxes = sum(len(each) if len(each) <= most else 1 for each in columns)
        if boxes <= _MOST_BOXES:
            return most
    return 1


def _items(column: Sequence[NodeView], most: int) -> list[_Item]:
    if len(column) > most:
        return [_Item(nodes=column)]
    return [_Item(nodes=[node]) for node in column]


def _edges(
    columns: Sequence[Sequence[_Item]], nodes: Iterable[NodeView]
) -> list[tuple[_Item, _Item]]:
    """Return which items wait for which, each pair once: before, and after it."""
    by_name = {
        node["name"]: item
        for column in columns
        for item in column
        for node in item.nodes
    }
    pairs = {
        (by_name[before], by_name[node["name"]]): None
        for node in nodes
        for before in node["after"]
        if before in by_name
    }
    return [(before, after) for before, after in pairs if before is not after]


# ---- where it stands


def _with_passing(
    columns: Sequence[Sequence[_Item]], edges: Iterable[tuple[_Item, _Item]]
) -> list[list[_Item]]:
    """Return the columns with a place for each line that passes one."""
    places = [list(column) for column in columns]
    at = {id(item): n for n, column in enumerate(columns) for item in column}
    for before, after in edges:
        last = before
        for number in range(at[id(before)] + 1, at[id(after)]):
            passing = _Item(before=[last])
            places[number].append(passing)
            last = passing
        after.before.append(last)
    return places


def _placed(columns: Sequence[list[_Item]]) -> float:
    """Give each item its place; return the height of all."""
    room = max((_height(column) for column in columns), default=0.0)
    for column in columns:
        _stack(column, room)
    followers = _followers(columns)
    for sweep in range(_SWEEPS):
        towards = (
            {id(i): i.before for c in columns for i in c}
            if sweep % 2 == 0
            else followers
        )
        for column in columns if sweep % 2 == 0 else reversed(columns):
            column.sort(key=lambda item: _middle(item, towards.get(id(item), [])))
            _stack(column, room)
    return room + 2 * _MARGIN


def _height(column: Sequence[_Item]) -> float:
    return sum(item.height + _GAP_Y for item in column) - _GAP_Y


def _stack(column: Sequence[_Item], room: float) -> None:
    """Place items below each other, in the middle of the room."""
    y = _MARGIN + (room - _height(column)) / 2
    for item in column:
        item.y = y
        y += item.height + _GAP_Y


def _followers(columns: Sequence[Sequence[_Item]]) -> Mapping[int, list[_Item]]:
    followers: dict[int, list[_Item]] = {}
    for column in columns:
        for item in column:
            for before in item.before:
                followers.setdefault(id(before), []).append(item)
    return followers


def _middle(item: _Item, others: Sequence[_Item]) -> float:
    """Return where an item would like to stand: in the middle of some others."""
    if not others:
        return item.y + item.height / 2
    return sum(other.y + other.height / 2 for other in others) / len(others)


# ---- how it looks


def _box(item: _Item, column: int) -> Box:
    x = float(_MARGIN + column * (_WIDE + _GAP_X))
    if len(item.nodes) > 1:
        return _box_of_many(item, x)
    node = item.nodes[0]
    mark = Mark(node["mark"])
    hidden = mark is Mark.HIDDEN
    name = "a message of another queue" if hidden else node["name"]
    parts = (name, node.get("queue", ""), marks.LOOKS[mark].words, node.get("text", ""))
    return Box(
        mark=mark,
        label=_short("another queue" if hidden else name),
        title=": ".join(dict.fromkeys(part for part in parts if part)),
        x=x,
        y=round(item.y, 1),
        queue=node.get("queue", ""),
        msg_id=node.get("msg_id", ""),
        says=node.get("text", "") if mark is Mark.RUNS else "",
    )


def _box_of_many(item: _Item, x: float) -> Box:
    counted = marks.sums(Mark(node["mark"]) for node in item.nodes)
    parts, start = [], 12.0
    for mark, number in counted.items():
        shared = _BAR - _LEAST * len(counted)
        width = _LEAST + shared * number / len(item.nodes)
        parts.append(Part(mark=mark, x=round(start, 1), width=round(width, 1)))
        start += width
    names = f"{item.nodes[0]['name']} … {item.nodes[-1]['name']}"
    return Box(
        mark=next(iter(counted)),
        label=_label_of_many(item.nodes),
        title=f"{names}: {marks.in_words(counted)}",
        x=x,
        y=round(item.y, 1),
        parts=parts,
    )


def _label_of_many(nodes: Sequence[NodeView]) -> str:
    """Return how many messages a box stands for, and of which queue if it is one."""
    queues = {node.get("queue", "") for node in nodes}
    queue = queues.pop() if len(queues) == 1 else ""
    return _short(f"{len(nodes):,} × {queue}") if queue else f"{len(nodes):,} messages"


def _short(name: str) -> str:
    return name if len(name) <= _SHORT else f"{name[: _SHORT - 1]}…"


def _lines(columns: Sequence[Sequence[_Item]]) -> list[tuple[str, str]]:
    """Return a path for each line: in curves from column to column, straight through
    those that it passes."""
    at = {id(item): n for n, column in enumerate(columns) for item in column}
    drawn = []
    for column in columns:
        for item in column:
            if item.nodes:
                drawn += [_line([*_back(before), item], at) for before in item.before]
    return drawn


def _back(item: _Item) -> list[_Item]:
    """Return the places of a line from the box where it begins."""
    places = [item]
    while not places[0].nodes:
        places.insert(0, places[0].before[0])
    return places


def _line(places: Sequence[_Item], at: Mapping[int, int]) -> tuple[str, str]:
    first, path = places[0], ""
    for before, after in pairwise(places):
        left = _MARGIN + at[id(before)] * (_WIDE + _GAP_X) + _WIDE
        right, half = left + _GAP_X, left + _GAP_X / 2
        y, to = before.y + before.height / 2, after.y + after.height / 2
        start = f"M{left} {y:.1f}" if not path else f"H{left}"
        path += f"{start}C{half:g} {y:.1f} {half:g} {to:.1f} {right} {to:.1f}"
    counted = marks.sums(Mark(node["mark"]) for node in first.nodes)
    return str(next(iter(counted))), path
