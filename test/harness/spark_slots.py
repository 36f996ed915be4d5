"""Slots of a queue on Spark, for tests: the queue, its messages, and their scripts."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import psutil

from harness.waiting import wait_until
from harness.web_server import Served

SAY = 'say() { echo "$@" >&3; }\n'
HELD = """echo $$ >> {place}/pids
until [ -e {place}/go ]; do sleep 0.1; done
say done held"""
ENDED = ("done", "err")
STARTED_IN = 120.0  # seconds, on a busy machine


class Slots:
    """Slots that work on the messages of a queue, and the driver that has made them."""

    def __init__(
        self, web: Served, name: str, process: subprocess.Popen[bytes], place: Path
    ):
        """`place`: the root of the driver."""
        self.web, self.name, self.process, self.place = web, name, process, place

    def ask(self, command: str, **about: Any) -> Any:
        word, reply = self.web.daemon.ask_queue(self.name, command, about)
        assert word == "ok", reply
        return reply

    def shown(self, name: str, msg_id: str) -> dict[str, Any]:
        """Return how a message has ended, in the queue of this name."""
        wait_until(lambda: self.web.state(name, msg_id) in ENDED, STARTED_IN)
        message = self.web.daemon.ask_queue(name, "get_message", {"msg_id": msg_id})[1]
        return {
            key: message.get(key) for key in ("status", "state", "count", "attempt")
        }

    def held(self, place: Path) -> tuple[str, psutil.Process]:
        """Send a message that is held; return its id and the process of its script."""
        place.mkdir()
        msg_id = self.web.send(self.name, param1=SAY + HELD.format(place=place))
        wait_until((place / "pids").read_text, STARTED_IN)
        return msg_id, psutil.Process(int((place / "pids").read_text()))

    def sent_with(self, file: Path, text: str) -> str:
        """Send a message with an attachment, and a script; return its id."""
        full_id = self.ask("prep_message", dest=self.name, param1=SAY + text)
        msg_id = str(full_id).rpartition("/")[2]
        self.ask("attach_message", msg_id=msg_id, pathname=str(file), name=file.name)
        self.ask("commit_message", msg_id=msg_id)
        return msg_id
