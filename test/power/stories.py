"""The stories whose power cuts are enumerated; run under strace by `trace.record`.

Each is a course of events over one queue, by the code that an owner process runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from power.tale import BEFORE, Tale, in_small, take_marks

from rq.states import Event


def accepted(tale: Tale) -> None:
    """Messages are accepted alone and in groups, and get their folders."""
    tale.submit()
    tale.commit()
    for _ in range(3):
        tale.submit(key=f"k/{len(tale.may)}")
    tale.commit()
    tale.apply()
    one = tale.submit()
    tale.commit()
    tale.reschedule(one, 1_900_000_000.0)
    tale.apply()
    tale.submit()


def attached(tale: Tale) -> None:
    """Messages are prepared, get attachments, and are accepted with them."""
    first = tale.prepare(b"small", b"larger " * 2000)
    tale.commit_prepared(first)
    tale.commit()
    second = tale.prepare(b"other")
    tale.apply()
    tale.commit_prepared(second, key="relay/k2")
    tale.commit()
    third = tale.prepare(b"never sent")
    tale.start(first)
    tale.commit()
    tale.end(first)
    tale.apply()
    tale.delete(third)
    tale.apply()


def ran(tale: Tale) -> None:
    """Messages run and end in every way."""
    ids = [tale.submit() for _ in range(5)]
    tale.commit()
    for one in ids:
        tale.start(one)
    tale.commit()
    tale.end(ids[0])
    tale.commit()
    tale.end(ids[1], Event.FAIL)
    tale.end(ids[2], Event.RELAY)
    tale.resend(ids[3])
    tale.commit()
    tale.apply()
    tale.requeue(ids[4])
    tale.apply()
    tale.start(ids[3])
    tale.apply()
    tale.end(ids[3])
    tale.apply()


def main(name: str, root: Path) -> None:
    take_marks()
    with in_small(BEFORE):
        STORIES[name](Tale(root))


STORIES: dict[str, Callable[[Tale], None]] = {
    one.__name__: one for one in (accepted, attached, ran)
}

if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
