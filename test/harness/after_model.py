"""The model of messages that wait for others: random graphs, and what becomes of each."""

from __future__ import annotations

import random
from collections.abc import Container
from dataclasses import dataclass, field

SCRIPT = """#!/bin/sh
while [ -e "$RQ_ROOT/shut" ]; do sleep 0.02; done
echo "start $RQ_DEST_QUEUE/$RQ_MSG_ID" >> "$RQ_ROOT/ran"
case "$RQ_PARAM1" in
done) word=done ;;
err) word=err ;;
mend) word=done; [ -e "$RQ_ROOT/mended" ] || word=err ;;
esac
[ $(( $$ % 3 )) != 0 ] || sleep 0.1
echo "end $RQ_DEST_QUEUE/$RQ_MSG_ID" >> "$RQ_ROOT/ran"
echo "$word" >&3
"""
SIGNS = ("ran", "mended", "shut")  # files in the root of which scripts know
NAMES = ("t", "u", "v")
POINTS = (
    "journal:before-write",
    "journal:written",
    "make:before-msg",
    "segment:before-link",
    "recovery:before-retire",
    "checkpoint:before-syncfs",
    "index:before-rename",
)
DONE, ERR, NOT_RUN, NOT_NEEDED, FAILED, WAITS = (
    "done", "said_err", "not_run", "not_needed", "after", "waits"
)  # fmt: skip
DELETED, LOST = "deleted", "lost"
# What people do with messages that are due in the year 2096.
DEEDS = ["run", "run", "move", "delete", "lose"]


@dataclass
class Node:
    queue: str
    act: str
    after: list[int]
    rule: str
    fail: str
    place: str = ""
    fate: str = WAITS
    deed: str = ""
    been: list[str] = field(default_factory=list)  # where it was before


def graph(chance: random.Random, number: int, late: Container[int] = ()) -> list[Node]:
    """Return nodes of which each waits for some before it; those at the places `late`
    wait until a person does something with them."""
    nodes: list[Node] = []
    for at in range(number):
        most = min(at, chance.choice([0, 1, 1, 2, 3, 6]))
        if at in late:
            nodes.append(Node(chance.choice(NAMES), "late", [], "done", "hold"))
            nodes[-1].deed = DEEDS[at % len(DEEDS)]
            continue
        nodes.append(
            Node(
                chance.choice(NAMES),
                chance.choice(["done", "done", "done", "err", "mend"]),
                chance.sample(range(at), most),
                chance.choice(["done", "done", "ended", "failed"]),
                chance.choice(["hold", "err", "cancel"]),
            )
        )
    return nodes


def fate(node: Node, nodes: list[Node], mended: bool) -> str:
    """Return what becomes of a node, when those before it have their fates."""
    fates = [nodes[at].fate for at in node.after]
    bad = any(each in (ERR, FAILED, DELETED) for each in fates)
    waits = WAITS in fates or LOST in fates
    if node.act == "late":
        return node.fate
    runs = ERR if node.act == "err" or (node.act == "mend" and not mended) else DONE
    if not fates:
        return runs
    if node.rule == "done":
        if bad:
            return {"hold": WAITS, "err": FAILED, "cancel": NOT_RUN}[node.fail]
        if waits:
            return WAITS
        if NOT_RUN in fates:
            return NOT_RUN
        return NOT_NEEDED if NOT_NEEDED in fates else runs
    if waits:
        return WAITS
    return runs if node.rule == "ended" or bad else NOT_NEEDED
