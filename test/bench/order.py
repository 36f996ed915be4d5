"""What a claim costs by the schedule alone, beside few and very many others: microseconds a
claim, milliseconds for a page of what runs next, bytes a message.

`order.py [NUMBER ...]`; all takes about a minute. Processor time, so that others at work
count little. A key gets its place once, by the first claim after its first message is due:
about 1 us, 2,000 keys a claim at the most, which is in `ms longest`.
"""

from __future__ import annotations

import gc
import itertools
import random
import sys
import time
import tracemalloc

from rq.message.rank import Rank, rank
from rq.queues.schedule.exclusion import Places
from rq.queues.schedule.line import Item
from rq.queues.schedule.waiting import Waiting

QUEUED = [1000, 100_000, 1_000_000]
WARM = 20  # claims before those that are measured: in these all keys get their places
CLAIMS = 500
KEYS = 10_000
NOW = 2e9


def ranks(what: str, number: int) -> list[Rank]:
    """Return the rank of each message."""
    dice = random.Random(7)
    match what:
        case "priority":
            return [rank(dice.randrange(10), "", "") for _ in range(number)]
        case "fair_params":
            return [rank(0, "", f"t{n % KEYS}") for n in range(number)]
        case "concurrency":
            return [rank(0, f"k{n % KEYS}", "") for n in range(number)]
        case "one key":
            return [rank(0, "k", "") for _ in range(number)]
        case "all three":
            keys = (f"k{n % KEYS}" for n in range(number))
            return [rank(dice.randrange(10), key, key) for key in keys]
    return [rank(0, "", "")] * number


def measure(what: str, number: int) -> str:
    """Return the figures of one row."""
    given = dict(enumerate(ranks(what, number)))
    by_id = {f"{n}": of for n, of in given.items()}
    items = [(Item(NOW - number + n, n, f"{n}"), of) for n, of in given.items()]
    gone: set[str] = set()
    schedule = Waiting(
        lambda item, priority: item.msg_id not in gone,
        lambda msg_id: "",
        {}.get,
        by_id.__getitem__,
    )
    places = Places(1)
    gc.collect()
    tracemalloc.start()
    begun = time.perf_counter()
    schedule.fill(items)
    filled = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    fill = time.perf_counter() - begun
    schedule.next_look()
    begun = time.perf_counter()
    list(itertools.islice(schedule.in_order(NOW), 100))
    page = time.perf_counter() - begun
    begun = time.perf_counter()
    schedule.first_due(NOW)
    first = time.perf_counter() - begun
    longest = 0.0
    for done in range(WARM + min(CLAIMS, number - WARM)):
        if done == WARM:
            begun = time.process_time()
        at = time.process_time()
        msg_id = claim(schedule, places, by_id)
        longest = max(longest, time.process_time() - at)
        gone.add(msg_id)
        end(schedule, places, by_id, msg_id)
    claims = (time.process_time() - begun) / min(CLAIMS, number - WARM)
    return (
        f"{claims * 1e6:10.1f} {longest * 1e3:10.2f} {page * 1e3:10.2f} "
        f"{first * 1e3:10.2f} {filled / number:8.0f} {fill:8.2f}"
    )


def claim(schedule: Waiting, places: Places, by_id: dict[str, Rank]) -> str:
    while True:
        msg_id, _ = schedule.next_due(NOW, lambda i: by_id[i].key or None, places)
        if msg_id is not None:
            if key := by_id[msg_id].key:
                places.take(key, msg_id)
            return msg_id


def end(schedule: Waiting, places: Places, by_id: dict[str, Rank], msg_id: str) -> None:
    if key := by_id[msg_id].key:
        places.free(key, msg_id)
        schedule.release(key)


def main() -> None:
    numbers = [int(word) for word in sys.argv[1:]] or QUEUED
    head = "us a claim, ms longest,   ms page,  ms first,    bytes,   s fill"
    print(f"{'':26}{head}")
    kinds = (
        "nothing",
        "priority",
        "fair_params",
        "concurrency",
        "one key",
        "all three",
    )
    for what in kinds:
        for number in numbers:
            print(f"{what:14}{number:>11,} {measure(what, number)}", flush=True)


if __name__ == "__main__":
    main()
