"""The commands of bananaq: events that each group of consumers has once.

bananaq's first README and its later code differ; where they do, the README decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rq.access.roles import Role
from rq.broker.desks.group_desk import Getting
from rq.broker.dialects.call import (
    BLOCKED,
    NO_MEMORY,
    QUEUE,
    QUEUES,
    SYNTAX,
    Blocked,
    Call,
    Command,
    Places,
    Refusal,
    Table,
    at_most,
    decimal,
    queues_in,
    quoted,
    wait_at,
)
from rq.broker.state import groups
from rq.broker.state.bounds import MOST_QUEUES
from rq.broker.state.groups import Came, Done, Flushed
from rq.broker.state.waiters import Waiter
from rq.resp import OK, Value

_SECONDS = 30.0  # that a group has for an event, unless it says others
_LONGEST = 10.0 * 365 * 86400  # seconds that a number may mean
_ROWS = "groups of queues"
# What bananaq's code tells of a group.
_SHORT = {"avail": "available", "inProg": "inprogress", "redo": "redo"}
_IN_CODE = tuple(_SHORT.values())


def _name(data: bytes) -> bytes:
    if b":" in data:
        text = data.decode(errors="replace")
        raise Refusal(f"ERR key part \"{text:.64}\" contains invalid character ':'")
    return data


def seconds_in(data: bytes, now: float, wall_ms: int) -> float:
    """Return how long something is, in seconds, given so or as `@` and a time of day."""
    at = data.startswith(b"@")
    number = decimal(data[at:])
    if number is None:
        text = data.decode(errors="replace")
        raise Refusal(f"ERR '{text:.64}' is not a number of seconds")
    seconds = number - wall_ms / 1000 if at else number
    return min(seconds, _LONGEST)


def add(call: Call) -> Value:
    """Take an event, until its time is over; its id is the answer."""
    name, expire, contents, *words = call.args
    if [word.upper() for word in words] not in ([], [b"NOBLOCK"]):
        raise Refusal(SYNTAX)
    seconds = life_in(expire, call.now, call.wall_ms)
    node = call.node
    number = node.groups.next_number(call.wall_ms * 1000)
    event = Came(_name(name), number, int((call.now + seconds) * 1e6), contents)
    node.emit(event, call.now)
    node.consumers.serve(event.queue, call.now)
    return OK if words else groups.text_of(event)


def life_in(data: bytes, now: float, wall_ms: int) -> float:
    """Return for how many seconds an event lives."""
    seconds = seconds_in(data, now, wall_ms)
    if seconds <= 0:
        raise Refusal("ERR an event lives for more than 0 seconds")
    return seconds


def get(call: Call) -> Value | Blocked:
    """Hand out an event, or wait for one."""
    name, group, *words = call.args
    seconds, block = getting_in(words, call.now, call.wall_ms)
    if not call.node.takes_group(name, group, call.now):
        raise Refusal(NO_MEMORY)
    getting = Getting(_name(group), seconds)
    event = call.node.consumers.get(_name(name), getting, call.client, call.now)
    if event is not None:
        return [groups.text_of(event), event.contents]
    if not block:
        return None
    call.node.consumers.waiters.add(
        Waiter(call.client, [name], getting, call.now + block)
    )
    return BLOCKED


def getting_in(words: list[bytes], now: float, wall_ms: int) -> tuple[float, float]:
    """Return for how long QGET has an event, and how long it waits for one, in seconds."""
    seconds, block = _SECONDS, 0.0
    if len(words) % 2:
        raise Refusal(SYNTAX)
    for option, value in zip(words[::2], words[1::2], strict=True):
        if option.upper() not in (b"EX", b"DEADLINE", b"BLOCK"):
            raise Refusal(SYNTAX)
        length = seconds_in(value, now, wall_ms)
        if option.upper() == b"BLOCK":
            block = max(0.0, length)
        elif length < 0:  # 0 means that it is done with it
            raise Refusal("ERR a group has an event for 0 seconds or more")
        else:
            seconds = length
    return seconds, block


def ack(call: Call) -> Value:
    """A group is done with an event: 1, or 0 when it comes too late."""
    name, group, event_id = call.args
    first, _, second = event_id.partition(b"_")
    if not (first.isdigit() and second.isdigit() and len(event_id) < 48):
        raise Refusal("ERR invalid ID string")
    queue = call.node.groups.by_name.get(name)
    its_group = queue.groups.get(group) if queue is not None else None
    number = int(first)
    wake = its_group.in_progress.get(number) if its_group is not None else None
    if wake is None or wake.at < call.now:
        return 0
    call.node.emit(Done(name, group, number), call.now)
    return 1


def notify(call: Call) -> Value | Blocked:
    """Tell in which queue there is an event for a group, or wait for one."""
    group, timeout, *names = call.args
    node = call.node
    names = queues_in(names or list(node.groups.by_name))
    for name in names:
        queue = node.groups.by_name.get(name)
        if queue is not None and queue.next_for(group) is not None:
            return name
    seconds = seconds_in(timeout, call.now, call.wall_ms)
    if seconds <= 0 or not names:
        return None
    getting = Getting(group, 0.0, only_told=True)
    unique = list(dict.fromkeys(names))
    waiter = Waiter(call.client, unique, getting, call.now + seconds)
    return wait_at(node.consumers.waiters, waiter)


def flush(call: Call) -> Value:
    """Remove the events of a queue; what a group works on it may still be done with."""
    name = call.args[0]
    queue = call.node.groups.by_name.get(name)
    if queue is not None and queue.events:
        last = queue.events.keys()[-1]
        call.node.emit(Flushed(name, last), call.now)
    return OK


# ---- looking


def _groups_by_queue(call: Call) -> dict[bytes, list[bytes]]:
    """Return which groups of which queues are asked about; all, if none is named."""
    words = list(call.args)
    if _has_pairs(call):
        pairs = _pairs(queues_in(words))
        at_most(MOST_QUEUES, range(_rows(call, pairs)), _ROWS)
        return {name: of or _groups(call, name) for name, of in pairs.items()}
    upper = [word.upper() for word in words]
    at = upper.index(b"GROUPS") if b"GROUPS" in upper else len(words)
    every = call.node.groups.by_name
    names, wanted = queues_in(words[:at] or list(every)), words[at + 1 :]
    names = names if at else sorted(names)
    at_most(MOST_QUEUES, wanted, "groups")
    chosen = dict.fromkeys(names, wanted)
    at_most(MOST_QUEUES, range(_rows(call, chosen)), _ROWS)
    return {name: wanted or _groups(call, name) for name in chosen}


def _has_pairs(call: Call) -> bool:
    """Whether queues are named as bananaq's code has it, QUEUE q GROUP g …; it answers
    that in a form of its own."""
    return bool(call.args) and call.args[0].upper() == b"QUEUE"


def _rows(call: Call, chosen: Mapping[bytes, Sequence[bytes]]) -> int:
    """Return of how many groups an answer tells, before anything is made of them."""
    every, none = call.node.groups.by_name, groups.EventQueue()
    return sum(len(of or every.get(name, none).groups) for name, of in chosen.items())


def _groups(call: Call, name: bytes) -> list[bytes]:
    queue = call.node.groups.by_name.get(name)
    return sorted(queue.groups) if queue is not None else []


def _pairs(words: list[bytes]) -> dict[bytes, list[bytes]]:
    """Return what QUEUE and GROUP name, one after the other."""
    chosen: dict[bytes, list[bytes]] = {}
    name = b""
    if len(words) % 2:
        raise Refusal(SYNTAX)
    for word, value in zip(words[::2], words[1::2], strict=True):
        if word.upper() == b"QUEUE":
            name = value
            chosen.setdefault(name, [])
        elif word.upper() == b"GROUP":
            chosen[name].append(value)
        else:
            raise Refusal(SYNTAX)
    return chosen


def _counts(
    call: Call, name: bytes, wanted: Sequence[bytes]
) -> list[tuple[bytes, Mapping[str, int]]]:
    """Return of groups how their events stand, and how many clients wait."""
    queue = call.node.groups.by_name.get(name) or groups.EventQueue()
    waits = call.node.consumers.waiters.groups_at(name)
    return [
        (group, {**queue.counts(group), "consumers": waits.get(group, 0)})
        for group in wanted
    ]


def _total(call: Call, name: bytes) -> int:
    queue = call.node.groups.by_name.get(name)
    return len(queue.events) if queue is not None else 0


def status(call: Call) -> Value:
    """Tell of queues and groups, in numbers."""
    of_queue = _status if _has_pairs(call) else _status_of_groups
    rows = [
        (name, of_queue(call, name, wanted))
        for name, wanted in _groups_by_queue(call).items()
    ]
    return _flat(rows) if _has_pairs(call) else [list(row) for row in rows]


def _flat(pairs: Iterable[tuple[Value, Value]]) -> list[Value]:
    return [value for pair in pairs for value in pair]


def _status_of_groups(call: Call, name: bytes, wanted: Sequence[bytes]) -> Value:
    rows = _counts(call, name, wanted)
    return _flat((group, _flat(counts.items())) for group, counts in rows)


def _status(call: Call, name: bytes, wanted: Sequence[bytes]) -> Value:
    """Return of a queue what bananaq's code tells."""
    consumers = _flat(
        (group, _flat((each, counts[each]) for each in _IN_CODE))
        for group, counts in _counts(call, name, wanted)
    )
    return ["total", _total(call, name), "consumers", consumers]


def info(call: Call) -> Value:
    """Tell of queues and groups, a line each."""
    lines = _lines if _has_pairs(call) else _lines_of_groups
    chosen = _groups_by_queue(call).items()
    return [line for name, wanted in chosen for line in lines(call, name, wanted)]


def _lines_of_groups(call: Call, name: bytes, wanted: Sequence[bytes]) -> list[bytes]:
    return [
        b"%b %b %b" % (name, group, _numbers(counts.items()))
        for group, counts in _counts(call, name, wanted)
    ]


def _numbers(counts: Iterable[tuple[str, int]]) -> bytes:
    return " ".join(f"{name}:{count}" for name, count in counts).encode()


def _lines(call: Call, name: bytes, wanted: Sequence[bytes]) -> list[bytes]:
    """Return the lines of a queue as bananaq's code has them: columns are as wide as the
    widest of them."""
    rows = [
        [
            f"consumerGroup:{quoted(group)}",
            *(f"{short}:{counts[each]}" for short, each in _SHORT.items()),
        ]
        for group, counts in _counts(call, name, wanted)
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = [" ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    first = f"queue:{quoted(name)} total:{_total(call, name)}"
    return [line.encode() for line in (first, *padded)]


# What the contents of bananaq's README list, and its sections replace.
_REPLACED = {
    b"QLPUSH": "QADD",
    b"QRPUSH": "QADD",
    b"QLPEEK": "QSTATUS or QINFO",
    b"QRPEEK": "QSTATUS or QINFO",
    b"QRPOP": "QGET",
}


def _replaced(name: bytes, by: str) -> Command:
    def refuse(_: Call) -> Value:
        raise Refusal(f"ERR bananaq has no {name.decode()} any more: say {by}")

    refuse.__doc__ = f"Nothing: say {by}."
    return Command(refuse, -1, queues=QUEUE)


def register(_: Call) -> Value:
    """Say of which queues a consumer is: there is nothing to do, for QNOTIFY names them."""
    return OK


TABLE: Table = {
    b"QADD": Command(
        add,
        -4,
        Role.PRODUCER,
        writes=True,
        grows=True,
        queues=QUEUE,
        bodies=slice(2, 3),
    ),
    b"QGET": Command(get, -3, Role.WORKER, writes=True, queues=QUEUE),
    b"QACK": Command(ack, 4, Role.WORKER, writes=True, queues=QUEUE),
    b"QNOTIFY": Command(notify, -3, Role.WORKER, queues=Places(3, -1)),
    b"QFLUSH": Command(flush, 2, writes=True, queues=QUEUE),
    b"QSTATUS": Command(status, -1),
    b"QINFO": Command(info, -1),
    b"QREGISTER": Command(register, -2, queues=QUEUES),
    **{name: _replaced(name, by) for name, by in _REPLACED.items()},
}
