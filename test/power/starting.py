"""Starts over what power cuts have left, under strace: they may be cut as well.

What the first start has shown to anybody is what the next one must find.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

from harness.spool import Clock, Owner
from power.recovering import BACK, Recovered, look, power_is_back
from power.tale import ANY, Seen, mark, take_marks

from rq.spool import checkpoint

BETWEEN = "boot-between"  # the boot id of the machine that starts, and is cut


def start(owner: Owner, prefix: str, top: Path) -> None:
    """Open a queue, accept a message, checkpoint, stop and open it again."""
    owner.open()
    owner.spool.commit()  # as before each answer
    seen = look(owner, Recovered())
    shown = {f"{prefix}{one}": [asdict(seen[one])] for one in seen}
    _mark(top, shown=prefix, may=shown)
    token = owner.spool.new_id()
    new = Seen(state="que", count=ANY)
    _mark(top, may={f"{prefix}{token}": [asdict(Seen()), asdict(new)]})
    owner.submit(src=token)
    owner.spool.commit()
    _mark(top, may={f"{prefix}{token}": [asdict(new)]})
    owner.apply()
    point = checkpoint.begin(owner.spool, BETWEEN)
    checkpoint.finish(owner.spool.dir_fd, owner.queue, point)
    owner.stop()
    owner.open()
    owner.crash()


def _mark(top: Path, **said: object) -> None:
    mark({"top": str(top), **said})


def main(names: str, *roots: str) -> None:
    take_marks()
    with power_is_back(BETWEEN):
        for root in map(Path, roots):
            for name in filter(None, names.split(",")):
                start(Owner(root, Clock(BACK), name), f"{name}/", root / "queue")
            if not names:
                start(Owner(root, Clock(BACK)), "", root)


if __name__ == "__main__":
    main(*sys.argv[1:])
