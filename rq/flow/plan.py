"""The plan of a flow: which messages are sent, and which waits for which; pure.

A plan comes as JSON, from a program, a file or a timer: a list of messages with names of
their own, or an object with `messages`, and perhaps a `name` for people and a `key`. It
is parsed once, at the door, and again by who sends its messages; in between it lies as an
attachment. What is true of every `Plan`:

- `nodes` stand in topological order: layer by layer, and within a layer as they were
  written. A node of a layer waits for none of the same layer, so a layer is sent at once.
- There is no circle. The sentence that refuses one names its messages.
- `Node.after` names nodes before it. `Node.others` are messages that exist already, as
  QUEUE/ID: a part of a flow that is sent again waits for what the first one has done. A
  name holds no slash, so neither is taken for the other.
- `Node.message` is a message that an owner would accept, by itself: what is wrong with a
  field is said before the first message is sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from rq import names
from rq.errors import BadInput
from rq.message import fieldnames
from rq.message.after import NO_SELF, SELF
from rq.message.message import from_request
from rq.words import visible
from rq.words.nesting import Json

MOST_NODES = 10_000
MOST_EDGES = 200_000
LONGEST_NAME = 100  # characters
LONGEST_KEY = 200
RELAY = "relay"  # the queue that takes what is for other hosts
NAME_RULE = (
    f"letters, digits, . _ and -, at most {LONGEST_NAME}, not starting with . or -"
)
_NAME = re.compile(rf"[A-Za-z0-9_][A-Za-z0-9._-]{{0,{LONGEST_NAME - 1}}}")
WEBHOOKS = "post_run_webhook"
_PARTS = frozenset({"messages", "name", "key", WEBHOOKS})
_SOME_ID = "20260102.0304.05.006.7"
_SHAPE = (
    'a flow is a list of messages, or {"messages": [...]}, each with a name of its own: '
    '[{"name": "fetch", "dest": "fetch"}, '
    '{"name": "pack", "dest": "pack", "after": ["fetch"]}]'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A message of a flow, by its local name."""

    name: str
    message: Mapping[str, Json]  # as it is sent, without `after`
    after: tuple[str, ...] = ()  # names of nodes
    others: tuple[str, ...] = ()  # QUEUE/ID of messages that exist

    @property
    def dest(self) -> str:
        return str(self.message["dest"])

    @property
    def queue(self) -> str:
        """The queue of this root that takes it."""
        return RELAY if names.is_remote(self.dest) else self.dest

    def to_json(self) -> dict[str, Json]:
        after: list[Json] = [*self.after, *self.others]
        return {
            "name": self.name,
            **self.message,
            **({"after": after} if after else {}),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The messages of a flow, in the order in which they are sent."""

    name: str = ""  # for people
    key: str | None = None  # names the request that sends it
    layers: tuple[tuple[Node, ...], ...]
    webhooks: tuple[str, ...] = ()  # URLs that are told when all of it has ended

    @property
    def nodes(self) -> list[Node]:
        return [node for layer in self.layers for node in layer]

    @property
    def edges(self) -> int:
        return sum(len(node.after) for node in self.nodes)

    @property
    def queues(self) -> list[str]:
        """The queues of its messages, by name."""
        return sorted({node.queue for node in self.nodes})

    def to_json(self) -> dict[str, Json]:
        """Return the plan as it lies on disk, without its key."""
        messages: list[Json] = [node.to_json() for node in self.nodes]
        hooks: dict[str, Json] = {WEBHOOKS: [*self.webhooks]} if self.webhooks else {}
        return {"name": self.name, **hooks, "messages": messages}


# ---- reading one


def parse(value: object, own: str = "") -> Plan:
    """Return the plan in JSON that came from anybody; BadInput says what is wrong. `own`:
    the QUEUE/ID of the message that the asking script works on, which it calls `self`."""
    parts = _parts_of(value)
    nodes = _nodes_of(parts["messages"], own)
    _check_edges(nodes)
    return Plan(
        name=_title(parts.get("name")),
        key=_key(parts.get("key")),
        layers=in_layers(nodes),
        webhooks=_webhooks(parts.get(WEBHOOKS)),
    )


def _parts_of(value: object) -> Mapping[str, object]:
    if isinstance(value, list):
        return {"messages": value}
    if not isinstance(value, dict) or "messages" not in value:
        raise BadInput(_SHAPE)
    strange = sorted(map(str, value.keys() - _PARTS))
    if strange:
        raise BadInput(
            f"{strange[0]!r:.60} is no part of a flow: messages, name, key and {WEBHOOKS} are"
        )
    return value


def _nodes_of(messages: object, own: str) -> dict[str, Node]:
    if not isinstance(messages, list):
        raise BadInput(_SHAPE)
    if not messages:
        raise BadInput("this flow has no messages: name one at least")
    if len(messages) > MOST_NODES:
        raise BadInput(
            f"this flow has {len(messages):,} messages, and one has at most "
            f"{MOST_NODES:,}: send several, or let a script send the parts"
        )
    nodes: dict[str, Node] = {}
    for at, fields in enumerate(messages, 1):
        node = _node(at, fields, own)
        if node.name in nodes:
            raise BadInput(f"two messages of the flow are called {node.name}")
        nodes[node.name] = node
    return nodes


def _node(at: int, fields: object, own: str) -> Node:
    if not isinstance(fields, dict):
        raise BadInput(f"message {at} of the flow is no JSON object: {_SHAPE}")
    name = _name(at, fields.get("name"))
    message = {
        field: v for field, v in fields.items() if field not in ("name", "after")
    }
    after, others = _after(name, fields.get("after"), own)
    _check_message(name, message)
    return Node(name=name, message=message, after=after, others=others)


def _name(at: int, value: object) -> str:
    if value is None:
        raise BadInput(f"message {at} of the flow has no name: say one, {NAME_RULE}")
    if not isinstance(value, str) or not _NAME.fullmatch(value) or value == SELF:
        raise BadInput(
            f"message {at} of the flow cannot be called {value!r:.60}: a name is "
            f"{NAME_RULE}, and not {SELF}"
        )
    return value


def _after(
    name: str, value: object, own: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of nodes, and the other messages, that a node waits for."""
    if value is None:
        return (), ()
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise BadInput(f"{name}: after is no list of names: {value!r:.80}")
    distinct = dict.fromkeys(own if own and each == SELF else each for each in value)
    if SELF in distinct:
        raise BadInput(f"{name}: {NO_SELF}")
    local = tuple(each for each in distinct if "/" not in each)
    return local, tuple(_other(name, each) for each in distinct if "/" in each)


def _other(name: str, text: str) -> str:
    queue, _, msg_id = text.partition("/")
    if names.is_queue_name(queue) and names.is_msg_id(msg_id):
        return text
    raise BadInput(
        f"{name}: after names {text!r:.80}, which is no name of this flow and no "
        f"QUEUE/ID, as fetch/{_SOME_ID}"
    )


def _check_message(name: str, message: Mapping[str, Json]) -> None:
    """BadInput unless an owner would take the fields of a message."""
    dest = message.get("dest")
    if not isinstance(dest, str) or not dest:
        raise BadInput(f"{name} has no dest: say the queue that it goes to")
    kept = {field: v for field, v in message.items() if field != fieldnames.KEY}
    try:
        if kept.keys() != message.keys():
            raise BadInput(f"{fieldnames.KEY} is RQ's: the flow as a whole has a key")
        if not names.is_remote(dest):
            names.queue_name(dest)
        from_request(kept, _SOME_ID, 0.0, _SOME_ID, is_new=True)
    except BadInput as error:
        raise BadInput(f"{name}: {error}") from None


def _title(value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > LONGEST_NAME:
        raise BadInput(f"name is no text of at most {LONGEST_NAME} characters")
    return visible.line(" ".join(value.split()))


def _key(value: object) -> str | None:
    if value is None:
        return None
    if isinstance(value, str) and 0 < len(value) <= LONGEST_KEY and value.isprintable():
        return value
    raise BadInput(f"key is not 1 to {LONGEST_KEY} printable characters")


def _webhooks(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    fields: dict[str, Json] = {"dest": "flow", WEBHOOKS: cast(Json, value)}
    return from_request(fields, _SOME_ID, 0.0, _SOME_ID, is_new=True).post_run_webhook


def _check_edges(nodes: Mapping[str, Node]) -> None:
    """BadInput when a node waits for what the flow has not, or too many are waited for."""
    edges = sum(len(node.after) + len(node.others) for node in nodes.values())
    if edges > MOST_EDGES:
        raise BadInput(
            f"this flow has {edges:,} names in its lists of after, and one has at most "
            f"{MOST_EDGES:,}: let a message of its own gather some"
        )
    for node in nodes.values():
        missing = next((each for each in node.after if each not in nodes), None)
        if missing is not None:
            raise BadInput(
                f"{node.name} waits for {missing!r:.60}, and no message of the flow is "
                "called so"
            )


# ---- the order


def in_layers(nodes: Mapping[str, Node]) -> tuple[tuple[Node, ...], ...]:
    """Return nodes in layers: each waits for some of the layer before, and for none of
    its own or a later one. BadInput names a circle."""
    open_names = {name: len(node.after) for name, node in nodes.items()}
    followers = _followers(nodes.values())
    place = {name: at for at, name in enumerate(nodes)}
    layers: list[tuple[Node, ...]] = []
    ready = [name for name, number in open_names.items() if not number]
    while ready:
        layers.append(tuple(nodes[name] for name in ready))
        freed = set[str]()
        for name in ready:
            for after in followers.get(name, ()):
                open_names[after] -= 1
                if not open_names[after]:
                    freed.add(after)
            del open_names[name]
        ready = sorted(freed, key=place.__getitem__)
    if open_names:
        raise BadInput(_circle(nodes, open_names))
    return tuple(layers)


def _followers(nodes: Iterable[Node]) -> Mapping[str, Sequence[str]]:
    """Return which nodes wait for each."""
    followers: dict[str, list[str]] = {}
    for node in nodes:
        for before in node.after:
            followers.setdefault(before, []).append(node.name)
    return followers


def _circle(nodes: Mapping[str, Node], left_over: Mapping[str, int]) -> str:
    """Return the sentence that names a circle among nodes of which each waits for one of
    them."""
    name = next(iter(left_over))
    seen: dict[str, int] = {}
    while name not in seen:
        seen[name] = len(seen)
        name = next(each for each in nodes[name].after if each in left_over)
    circle = [*list(seen)[seen[name] :], name]
    if len(circle) == 2:
        return f"{name} waits for itself: take it out of its after"
    few = circle if len(circle) <= 8 else [*circle[:6], "…", name]
    return (
        f"messages of the flow wait for each other in a circle: {' after '.join(few)}"
    )


def part_from(plan: Plan, name: str, ids: Mapping[str, str]) -> Plan:
    """Return the plan of a node and all after it; it waits for what it waited for, as it
    has run: `ids` are the QUEUE/ID of the nodes before. BadInput: there is no such node."""
    nodes = {node.name: node for node in plan.nodes}
    if name not in nodes:
        raise BadInput(f"this flow has no message called {name!r:.60}")
    chosen = {name}
    for node in plan.nodes:  # in order, so those before have been looked at
        if not chosen.isdisjoint(node.after):
            chosen.add(node.name)
    part = {each: _joined(nodes[each], chosen, ids) for each in nodes if each in chosen}
    return replace(plan, key=None, layers=in_layers(part))


def _joined(node: Node, chosen: set[str], ids: Mapping[str, str]) -> Node:
    """Return a node that waits for messages that have run where it waited for nodes that
    are not chosen."""
    inner = tuple(name for name in node.after if name in chosen)
    outer = [ids[name] for name in node.after if name not in chosen and name in ids]
    others = tuple(dict.fromkeys([*node.others, *outer]))
    return Node(name=node.name, message=node.message, after=inner, others=others)
