"""What may lie on disk after a power cut: the states of a recorded disk.

Two models of file systems. `ORDERED` is what the promise names (journaled ext4, xfs):
changes of names, sizes and modes reach the disk in their order, a file's data at any
time of its own, or not at all. `MEAN` is meaner than any of them: changes of different
directories in any order, sizes ahead of data, and what is in between is garbage.
In both a sync that returned holds all it was asked for, and a rename is whole or not.
`DEAF` is ordered, and its disk errs: of the errors before its descriptor was opened a sync
of the file system says nothing, for somebody else was told; what it did not get to disk is
lost.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from power.disk import (
    Cut,
    Disk,
    Mark,
    Moded,
    Moved,
    Named,
    Node,
    Synced,
    Unnamed,
    Written,
    _resize,
    _write,
)

SECTOR, PAGE = 512, 4096  # bytes: torn where data is overwritten, where a file grows
GARBAGE = b"\xa5"


class Model(StrEnum):
    ORDERED = "ordered"
    MEAN = "mean"
    DEAF = "deaf"


DISKS = (Model.ORDERED, Model.MEAN)
NEAR = {Model.ORDERED: 1, Model.MEAN: 0}  # changes taken one by one, every day


class Fate(StrEnum):
    """What becomes of a write that no sync holds."""

    LOST = "lost"
    KEPT = "kept"
    TORN = "torn"  # some sectors
    HOLE = "hole"  # the size only: zeros (mean)
    JUNK = "junk"  # the size only: garbage (mean)


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the states after operation `after`: which changes of names and sizes are
    there (all before `upto` but those in `lost`), and what became of writes."""

    after: int
    upto: int
    lost: frozenset[int] = frozenset()
    fate: Callable[[int], Fate] = field(default=lambda _: Fate.LOST, compare=False)
    seed: int = 0
    about: str = ""


@dataclass(slots=True)
class Held:
    """What the syncs up to a point hold."""

    floor: int = 0  # ordered: all changes of names and sizes before it
    all: int = 0  # everything before it
    nodes: dict[Node, int] = field(default_factory=dict)  # of a node: all before it
    doomed: set[int] = field(default_factory=set)  # writes that a failed sync dropped

    def of(self, node: Node) -> int:
        return max(self.all, self.nodes.get(node, 0))


@dataclass(slots=True)
class Tree:
    """A state: directories, files, names."""

    root: Node
    entries: dict[Node, dict[str, Node]]
    content: dict[Node, bytes]

    def fingerprint(self) -> bytes:
        digest = hashlib.sha1(usedforsecurity=False)
        for path, node in self.walk():
            digest.update(f"{path}\0{node.kind}\0".encode())
            digest.update(self.content.get(node, b""))
        return digest.digest()

    def walk(self) -> Iterator[tuple[str, Node]]:
        """Give all that has a name, directories before what is in them."""
        waiting = [("", self.root)]
        while waiting:
            path, node = waiting.pop()
            yield path, node
            if node.kind == "dir":
                inside = self.entries.get(node, {})
                waiting += [(f"{path}/{name}", inside[name]) for name in sorted(inside)]

    def make(self, top: Path) -> None:
        """Let it lie on disk, in the place of what is there."""
        names: dict[Node, str] = {}
        for path, node in self.walk():
            whole = f"{top}{path}"
            if node.kind == "dir":
                os.makedirs(whole, node.mode | 0o700, exist_ok=not path)
            elif node.kind == "link":
                os.symlink(node.target, whole)
            elif node in names:
                os.link(names[node], whole)
            else:
                names[node] = whole
                mode = os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_EXCL, node.mode)
                os.write(mode, self.content[node])
                os.close(mode)


class States:
    """Enumerates the states of a recorded disk."""

    def __init__(
        self,
        disk: Disk,
        model: Model,
        seed: int = 1,
        sure: Callable[[object], bool] = lambda op: False,
        spared: str = "",
    ) -> None:
        """`sure` tells what even a mean disk does not lose; `spared` is the directory
        of a machine whose power stays."""
        self.disk = disk
        self.model = model
        self.seed = seed
        self.ops = disk.ops
        self.sure = {number for number, op in enumerate(self.ops) if sure(op)}
        self.spared = {
            number
            for number, op in enumerate(self.ops)
            if spared and not isinstance(op, (Synced, Mark)) and op.node.site == spared
        }
        self.of_node: dict[Node, list[int]] = {}
        for number, op in enumerate(self.ops):
            if isinstance(op, (Cut, Written)):
                self.of_node.setdefault(op.node, []).append(number)
        self.metas = [
            number
            for number, op in enumerate(self.ops)
            if isinstance(op, (Named, Unnamed, Moved, Cut))
        ]

    # ---- which

    def choices(self, near: int = 10, some: int = 4) -> Iterator[Choice]:
        """Give, for a power cut after each operation: nothing that is not synced is
        there, everything, all but one, only one, and `some` at random. Of what waits
        for a sync the last `near` are taken one by one, of the others a few. After what
        a machine did that keeps its power, a few of all."""
        held = Held()
        for after in range(len(self.ops) + 1):
            if after:
                self._hold(held, after - 1)
            last = self.ops[after - 1] if after else None
            if isinstance(last, Moded):
                continue
            chance = random.Random(f"{self.seed}/{after}")
            every = self._mean if self.model is Model.MEAN else self._ordered
            self._held = held
            few = after - 1 in self.spared
            yield from every(after, held, chance, 0 if few else near, some)

    def _hold(self, held: Held, number: int) -> None:
        """Take what a sync holds."""
        op = self.ops[number]
        if not isinstance(op, Synced):
            return
        if op.failed:
            held.doomed |= set(self._waiting(held, op.since, op.node))
            return
        if op.node is None and self.model is Model.DEAF:
            held.doomed |= set(self._waiting(held, op.opened))
        if op.node is None:
            held.all, held.floor = max(held.all, op.since), max(held.floor, op.since)
            return
        held.nodes[op.node] = max(held.nodes.get(op.node, 0), op.since)
        for at in range(op.since - 1, held.floor - 1, -1):
            if _touches(self.ops[at], op.node, op.data_only):
                held.floor = at + 1
                break

    def _waiting(self, held: Held, upto: int, node: Node | None = None) -> list[int]:
        """Return the writes before `upto` that no sync holds."""
        nodes = [node] if node is not None else list(self.of_node)
        return sorted(
            number
            for one in nodes
            for number in self.of_node.get(one, ())
            if number < upto
            and number not in self.spared
            and isinstance(self.ops[number], Written)
            and (number >= held.of(one) or number in held.doomed)
        )

    def _ordered(
        self, n: int, held: Held, chance: random.Random, near: int, some: int
    ) -> Iterator[Choice]:
        loose = self._waiting(held, n)
        metas = [one for one in self.metas if held.floor <= one < n]
        metas = [one for one in metas if one not in self.spared]
        yield Choice(n, n, fate=_all(Fate.KEPT), about="all")
        yield Choice(n, n, fate=_all(Fate.LOST), about="no data")
        yield Choice(n, held.floor, fate=_all(Fate.LOST), about="nothing")
        for upto in _few(metas, near, chance):
            yield Choice(n, upto, fate=_all(Fate.LOST), about=f"names to {upto}")
            yield Choice(n, upto, fate=_all(Fate.KEPT), about=f"names to {upto}, data")
        for one in _few(loose, near, chance):
            yield Choice(n, n, fate=_but(one), about=f"all but {one}")
            yield Choice(n, n, fate=_only(one), about=f"no data but {one}")
        for number in range(some if loose else 0):
            upto = chance.choice([n, n, held.floor, *metas])
            seed = chance.getrandbits(32)
            fate = _random(seed, (Fate.LOST, Fate.KEPT, Fate.TORN))
            yield Choice(n, upto, fate=fate, seed=seed, about=f"random {number}")

    def _mean(
        self, n: int, held: Held, chance: random.Random, near: int, some: int
    ) -> Iterator[Choice]:
        loose = self._waiting(held, n)
        metas = [one for one in self.metas if one < n and not self._is_held(held, one)]
        for fate in (Fate.LOST, Fate.HOLE, Fate.JUNK):
            yield Choice(n, n, fate=_all(fate), about=f"data {fate}")
        none = self._closed(frozenset(metas), n, held)
        yield Choice(n, n, none, _all(Fate.LOST), about="nothing")
        for one in _few(metas, near, chance):
            lost = self._closed(frozenset([one]), n, held)
            for fate in (Fate.LOST, Fate.KEPT):
                yield Choice(n, n, lost, _all(fate), about=f"not {one}, data {fate}")
        for one in _few(loose, near, chance):
            for fate in (Fate.HOLE, Fate.JUNK):
                yield Choice(n, n, fate=_one(one, fate), about=f"{fate} of {one}")
        for number in range(some if loose or metas else 0):
            gone = frozenset(one for one in metas if chance.random() < 0.3)
            seed = chance.getrandbits(32)
            yield Choice(
                n,
                n,
                self._closed(gone, n, held),
                _random(seed, tuple(Fate)),
                seed,
                about=f"random {number}",
            )

    def _is_held(self, held: Held, number: int) -> bool:
        """Whether a change of names or sizes is on disk for certain (mean)."""
        op = self.ops[number]
        if number < held.all or number in self.sure or number in self.spared:
            return True
        if isinstance(op, Cut):
            return number < held.of(op.node)
        places = [op.place] if not isinstance(op, Moved) else [op.place, op.to_place]
        return any(number < held.of(one) for one in places)

    def _closed(self, lost: frozenset[int], n: int, held: Held) -> frozenset[int]:
        """Add to what is lost what came later in the same directory."""
        touched: set[Node] = set()
        all_lost = set()
        for number in self.metas:
            if number >= n:
                break
            op = self.ops[number]
            places = _places(op)
            if self._is_held(held, number):
                continue
            if number in lost or any(one in touched for one in places):
                all_lost.add(number)
                touched.update(places)
        return frozenset(all_lost)

    # ---- building

    def tree(self, choice: Choice) -> Tree:
        """Return what lies on disk by a choice; valid until the next one is asked."""
        entries = {node: dict(names) for node, names in self.disk.start.items()}
        for number in self.metas:
            if number >= choice.after:
                break
            if self._is_there(number, choice):
                _apply(entries, self.ops[number])
        tree = Tree(self.disk.root, entries, {})
        for _, node in tree.walk():
            if node.kind == "file" and node not in tree.content:
                tree.content[node] = self._content(node, choice)
        return tree

    def _is_there(self, number: int, choice: Choice) -> bool:
        """Whether a change of names or sizes is in a state."""
        kept = number < choice.upto and number not in choice.lost
        return kept or number in self.spared

    def _content(self, node: Node, choice: Choice) -> bytes:
        held, data, whole = self._held, bytearray(node.base), True
        for number in self.of_node.get(node, ()):
            if number >= choice.after:
                break
            op = self.ops[number]
            safe = number < held.of(node) and number not in held.doomed
            safe = safe or number in self.spared
            if isinstance(op, Cut):
                there = self._is_there(number, choice)
                whole = whole and (there or safe)
                if there or safe:
                    _resize(data, op.size)
            elif isinstance(op, Written) and (safe or whole):
                fate = Fate.KEPT if safe else choice.fate(number)
                grows = safe or number < choice.upto
                _put(data, op, fate, grows, choice.seed ^ number)
        return bytes(data)


def _put(data: bytearray, op: Written, fate: Fate, grows: bool, seed: int) -> None:
    """Let a write have the fate that was chosen for it."""
    if fate is Fate.LOST:
        return
    before = len(data)
    more = op.data if grows else op.data[: max(0, before - op.at)]
    if fate is Fate.KEPT:
        _write(data, op.at, more)
    elif fate is Fate.TORN:
        unit = PAGE if op.grown else SECTOR
        chance = random.Random(seed)
        for at, piece in _pieces(op.at, more, unit):
            if chance.random() < 0.5:
                _write(data, at, piece)
    elif op.at + len(more) > before:
        fill = GARBAGE if fate is Fate.JUNK else b"\0"
        start = max(before, op.at)
        _write(data, start, fill * (op.at + len(more) - start))


def _pieces(at: int, data: bytes, unit: int) -> Iterator[tuple[int, bytes]]:
    """Cut what is written at the borders of sectors or pages."""
    begin = 0
    while begin < len(data):
        end = min(len(data), begin + unit - (at + begin) % unit)
        yield at + begin, data[begin:end]
        begin = end


def _touches(op: object, node: Node, data_only: bool) -> bool:
    """Whether a sync of `node` must hold a change: of its size, of its names."""
    match op:
        case Cut(one, _):
            return one is node
        case Written(one, _, _, grown):
            return grown and one is node
        case Named(place, _, one):
            return place is node or (one is node and not data_only)
        case Unnamed(place, _, _):
            return place is node
        case Moved(place, _, to_place, _, _):
            return node in (place, to_place)
    return False


def _places(op: object) -> tuple[Node, ...]:
    match op:
        case Named(place, _, _) | Unnamed(place, _, _):
            return (place,)
        case Moved(place, _, to_place, _, _):
            return (place, to_place)
        case Cut(node, _):
            return (node,)
    return ()


def _apply(entries: dict[Node, dict[str, Node]], op: object) -> None:
    match op:
        case Named(place, name, node):
            entries.setdefault(place, {})[name] = node
        case Unnamed(place, name, _):
            entries.setdefault(place, {}).pop(name, None)
        case Moved(place, name, to_place, to_name, node):
            entries.setdefault(place, {}).pop(name, None)
            entries.setdefault(to_place, {})[to_name] = node


def _few(found: list[int], near: int, chance: random.Random) -> list[int]:
    """Return the last `near` of what was found, and a few of the others."""
    early = found[:-near] if near else found
    number = min(len(early), max(1, near // 3))
    return chance.sample(early, number) + found[len(early) :]


def _all(fate: Fate) -> Callable[[int], Fate]:
    return lambda _: fate


def _but(number: int) -> Callable[[int], Fate]:
    return lambda one: Fate.LOST if one == number else Fate.KEPT


def _only(number: int) -> Callable[[int], Fate]:
    return lambda one: Fate.KEPT if one == number else Fate.LOST


def _one(number: int, fate: Fate) -> Callable[[int], Fate]:
    return lambda one: fate if one == number else Fate.KEPT


def _random(seed: int, fates: tuple[Fate, ...]) -> Callable[[int], Fate]:
    return lambda one: random.Random(f"{seed}/{one}").choice(fates)


def levels(disk: Disk) -> list[int]:
    """Return, for each number of operations, how many marks they hold."""
    counts = [0]
    for op in disk.ops:
        counts.append(counts[-1] + isinstance(op, Mark))
    return counts
