"""The commands of bananaq: events that each group of consumers has once. Source:
spec/resp.md 3 and 4; where they differ, 3 decides."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from rq.broker import groups
from rq.broker.bounds import MOST_QUEUES
from rq.broker.dialects.call import (
    BLOCKED,
    NO_MEMORY,
    SYNTAX,
    Blocked,
    Call,
    Command,
    Refusal,
    Table,
    at_most,
    queues_in,
)
from rq.broker.group_desk import Getting
from rq.broker.groups import Came, Done, Flushed
from rq.broker.waiters import Waiter
from rq.resp import OK, Value

_SECONDS = 30.0  # that a group has for an event, unless it says others
_LONGEST = 10.0 * 365 * 86400  # seconds that a number may mean
_ROWS = "groups of queues"
_COUNTS = ("total", "inprogress", "redo", "done", "available")


def _name(data: bytes) -> bytes:
    if b":" in data:
        text = data.decode(errors="replace")
        raise Refusal(f"ERR key part \"{text:.64}\" contains invalid character ':'")
    return data


def seconds_in(data: bytes, now: float, wall_ms: int) -> float:
    """Return how long something is, in seconds, given so or as `@` and a time of day."""
    try:
        at = data.startswith(b"@")
        number = float(data[at:])
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
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
    event = call.node.consumers.get(_name(name), _name(group), seconds, call.now)
    if event is not None:
        return [groups.text_of(event), event.contents]
    if not block:
        return None
    getting = Getting(group, seconds)
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
        length = max(0.0, seconds_in(value, now, wall_ms))
        if option.upper() == b"BLOCK":
            block = length
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
    node.consumers.waiters.add(Waiter(call.client, unique, getting, call.now + seconds))
    return BLOCKED


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
    if words and words[0].upper() == b"QUEUE":
        return _bounded(_pairs(queues_in(words)))
    upper = [word.upper() for word in words]
    at = upper.index(b"GROUPS") if b"GROUPS" in upper else len(words)
    every = call.node.groups.by_name
    names, wanted = queues_in(words[:at] or list(every)), words[at + 1 :]
    names = names if at else sorted(names)
    at_most(MOST_QUEUES, wanted, "groups")
    if wanted:
        at_most(MOST_QUEUES, range(len(names) * len(wanted)), _ROWS)
    return _bounded({name: wanted or sorted(_groups(call, name)) for name in names})


def _bounded(chosen: dict[bytes, list[bytes]]) -> dict[bytes, list[bytes]]:
    """Return what is asked about; Refusal when that is too much for one answer."""
    at_most(MOST_QUEUES, range(sum(map(len, chosen.values()))), _ROWS)
    return chosen


def _groups(call: Call, name: bytes) -> Iterable[bytes]:
    queue = call.node.groups.by_name.get(name)
    return queue.groups if queue is not None else ()


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


def _counts(call: Call, name: bytes, group: bytes) -> Mapping[str, int]:
    queue = call.node.groups.by_name.get(name) or groups.EventQueue()
    waits = sum(
        waiter.want.group == group for waiter in call.node.consumers.waiters.at(name)
    )
    return {**queue.counts(group), "consumers": waits}


def status(call: Call) -> Value:
    """Tell of queues and groups, in numbers."""
    return [
        [name, *(_flat(group, _counts(call, name, group)) for group in wanted)]
        for name, wanted in _groups_by_queue(call).items()
    ]


def _flat(group: bytes, counts: Mapping[str, int]) -> Sequence[Value]:
    flat: list[Value] = [group]
    for name, count in counts.items():
        flat += [name, count]
    return flat


def info(call: Call) -> Value:
    """Tell of queues and groups, a line each."""
    return [
        b"%b %b %b" % (name, group, _line(_counts(call, name, group)))
        for name, wanted in _groups_by_queue(call).items()
        for group in wanted
    ]


def _line(counts: Mapping[str, int]) -> bytes:
    return " ".join(f"{name}:{count}" for name, count in counts.items()).encode()


TABLE: Table = {
    b"QADD": Command(add, -4, writes=True, grows=True),
    b"QGET": Command(get, -3, writes=True),
    b"QACK": Command(ack, 4, writes=True),
    b"QNOTIFY": Command(notify, -3),
    b"QFLUSH": Command(flush, 2, writes=True),
    b"QSTATUS": Command(status, -1),
    b"QINFO": Command(info, -1),
}
