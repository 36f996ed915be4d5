"""What happens in a run, drawn from its seed; each step stands alone, so that a run can be
shrunk by leaving steps out."""

from __future__ import annotations

from random import Random

QUEUES = ("q", "r")


def plan(seed):
    """Return the size of a cluster, whether things go wrong, and the steps."""
    chance = Random(f"{seed}/plan")
    size = chance.choice([2, 3, 3, 3, 4, 5, 7, 9])
    faulty = chance.random() < 0.75
    kinds = _OF_WORK * 3 + (_GETTING * 3 + _OF_TROUBLE if faulty else [])
    if faulty and chance.random() < 0.2:
        kinds = [*kinds, _lose_disk]
    number = chance.randrange(10, 60)
    steps = []
    for _ in range(number):
        wait = chance.choice([0.001, 0.01, 0.1, 0.5, 2.0])
        steps.append((wait, *chance.choice(kinds)(chance, size)))
    return size, faulty, steps


def _add(chance, size):
    retry = chance.choice([1, 3, 8, 8])
    copies = chance.randint(1, min(size, 4))
    words = ["ADDJOB", chance.choice(QUEUES), "b", chance.choice([0, 300, 2000])]
    words += ["RETRY", retry, "REPLICATE", copies]
    if chance.random() < 0.15:
        words += ["DELAY", chance.choice([1, 4])]
    if chance.random() < 0.05:
        words += ["TTL", 12]
    if chance.random() < 0.15:
        words += ["ASYNC"]
    return "add", chance.randrange(size), tuple(words)


def _add_once(chance, size):
    words = ["ADDJOB", chance.choice(QUEUES), "b", 1000, "RETRY", 0, "REPLICATE", 1]
    if chance.random() < 0.3:
        words += ["DELAY", chance.choice([1, 3])]
    return "add", chance.randrange(size), tuple(words)


def _get(chance, size):
    wait = chance.choice([("NOHANG",), ("TIMEOUT", 700)])
    words = ("GETJOB", *wait, "COUNT", chance.choice([1, 3]), "FROM", *QUEUES)
    return "get", chance.randrange(size), words


def _consume(chance, size):
    return "consume", chance.randrange(size)


def _ack(chance, size):
    return "ack", chance.randrange(64), chance.choice([-1, chance.randrange(size)])


def _touch(chance, size):
    verb = chance.choice(["NACK", "ENQUEUE", "DEQUEUE", "WORKING", "NACK"])
    return "touch", verb, chance.randrange(64), chance.randrange(size)


def _delete(chance, size):
    verb = chance.choice(["DELJOB", "FASTACK"])
    return "delete", verb, chance.randrange(64), chance.randrange(size)


def _hang_up(chance, size):
    return "hang_up", chance.randrange(8)


def _pause(chance, size):
    how = chance.choice(["in", "out", "all", "none", "none"])
    return "pause", chance.randrange(size), chance.choice(QUEUES), how


def _kill(chance, size):
    return "kill", chance.randrange(size), chance.random() < 0.5, chance.random()


def _restart(chance, size):
    return "restart", chance.randrange(size), chance.choice([0.0, 0.0, 5.0, 60.0])


def _part(chance, size):
    return "part", chance.randrange(size), chance.randrange(size), chance.random() < 0.3


def _heal(chance, size):
    return ("heal",)


def _wall(chance, size):
    return "wall", chance.randrange(size), chance.choice([-3600.0, -1.0, 1.0, 3600.0])


def _memory(chance, size):
    return "memory", chance.randrange(size), chance.random() < 0.5


def _leave(chance, size):
    return "leave", chance.randrange(size), chance.random() < 0.4


def _lose_disk(chance, size):
    return "lose_disk", chance.randrange(size)


_OF_WORK = [_add, _add, _add, _add_once, _consume, _consume]
_GETTING = [_get, _get, _ack, _ack]
_OF_TROUBLE = [
    *(_kill, _kill, _restart, _restart, _part, _part, _part, _heal, _wall, _memory),
    *(_leave, _pause, _touch, _touch, _touch, _delete, _hang_up, _get, _ack),
]
