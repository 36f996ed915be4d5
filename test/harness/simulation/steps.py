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
        kinds = [*kinds, chance.choice([_lose_disk, _reset, _restore, _restore])]
    number = chance.randrange(10, 80)
    steps = []
    for _ in range(number):
        wait = chance.choice([0.001, 0.01, 0.1, 0.5, 2.0])
        steps.append((wait, *chance.choice(kinds)(chance, size)))
    chance = Random(f"{seed}/return")
    if faulty and chance.random() < 0.15:
        steps += _return(chance, size)
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
    if chance.random() < 0.05:
        words += ["MAXLEN", chance.choice([1, 3])]
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
    counts = chance.choice([(), (), ("WITHCOUNTERS",)])
    words = ("GETJOB", *wait, "COUNT", chance.choice([1, 3]), *counts, "FROM", *QUEUES)
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
    bcast = chance.choice([(), ("bcast",)])
    return "pause", chance.randrange(size), chance.choice(QUEUES), how, *bcast


def _look(chance, size):
    return "look", chance.randrange(64), chance.choice(_LOOKS)


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


def _fail(chance, size):
    return "fail", chance.randrange(size), chance.choice([0.2, 1.0, 4.0])


def _forget(chance, size):
    return "forget", chance.randrange(size), chance.randrange(size)


def _meet(chance, size):
    return "meet", chance.randrange(size), chance.randrange(size)


def _lose_disk(chance, size):
    return "lose_disk", chance.randrange(size), chance.random() < 0.5


def _reset(chance, size):
    return "reset", chance.randrange(size), chance.random() < 0.5


def _restore(chance, size):
    return "restore", chance.randrange(size), chance.random()


def _return(chance, size):
    """Let one node be away while another one hands out and acknowledges what it has, and
    be asked for that as soon as it is back."""
    away = chance.randrange(size)
    other = (away + chance.randrange(1, size)) % size
    steps = [(0.01, "heal"), (0.5, "restart", away, 0.0), (0.5, "restart", other, 0.0)]
    words = ("ADDJOB", "q", "b", 2000, "RETRY", 1, "REPLICATE", min(size, 3))
    steps += [(0.1, "add", away, words)] * 3
    if chance.random() < 0.5:
        steps.append((2.0, "kill", away, False, 1.0))
        back = "restart", away, 0.0
    else:
        others = [each for each in range(size) if each != away]
        steps += [(0.5, "part", away, each, False) for each in others]
        back = ("heal",)
    steps += [(2.0, "consume", other)] * 4
    steps.append((chance.choice([0.001, 0.01, 0.1]), *back))
    return steps + [(chance.choice([0.01, 0.1, 1.0]), "consume", away)] * 4


_OF_WORK = [_add, _add, _add, _add_once, _consume, _consume]
_GETTING = [_get, _get, _ack, _ack]
_OF_TROUBLE = [
    *(_kill, _kill, _restart, _restart, _part, _part, _part, _heal, _wall, _memory),
    *(_leave, _pause, _touch, _touch, _touch, _delete, _hang_up, _get, _ack),
    *(_fail, _forget, _meet, _look),
]
_LOOKS = [
    ("SHOW",),
    ("JSCAN",),
    ("QSCAN", "MINLEN", 1),
    ("QSTAT", "q"),
    ("QPEEK", "q", -3),
    ("QLEN", "r"),
]
