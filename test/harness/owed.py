"""A queue whose clock can be set ahead, so that what it owes is in doubt."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from harness.checkout import CHECKOUT
from harness.queues import RunningQueue
from harness.waiting import wait_until

ON = "echo forward b >&3"
# What `date -s` would do, for one process: its clock is as far ahead as the file says.
CLOCK = """
import os, time
def ahead(real=time.time, path=os.environ["TEST_CLOCK"]):
    with open(path) as file:
        return real() + float(file.read())
time.time = ahead
"""
WEEK = 7 * 86400


class Owing(RunningQueue):
    """A queue whose clock can be set ahead."""

    def __init__(self, root: Path, name: str, script: str) -> None:
        super().__init__(root, name, script)
        place = root / "clock"
        place.mkdir()
        (place / "sitecustomize.py").write_text(CLOCK)
        self.offset = place / "offset"
        self.ahead(0)
        path = os.pathsep.join([str(place), str(CHECKOUT)])
        self.env = {"PYTHONPATH": path, "TEST_CLOCK": str(self.offset)}

    def ahead(self, seconds: float) -> None:
        new = self.offset.with_name("new")
        new.write_text(str(seconds))
        new.rename(self.offset)

    def crashed(self) -> None:
        """kill -9, and go on."""
        self.crash()
        self.start()

    def owed(self) -> Any:
        return self.ok("owed")


def in_doubt(a: Owing, **fields: Any) -> str:
    """Let a message owe what could not be delivered in six days; return its id."""
    ended = a.run(**{"param1": ON, **fields}, seconds=60)
    assert ended["state"] == "done", ended
    wait_until(lambda: a.owed()[0]["why"], 60)  # it was tried
    a.ahead(WEEK)
    [one] = a.owed()
    assert one["in_doubt"]
    return str(ended["msg_id"])
