"""The story of a sender whose power may go, and of a receiver whose power stays.

Two machines in one recording: `sender` and `receiver` under its root. The receiver is a
queue with its web, as on any other host.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

from harness.kills import Queue, Site
from harness.ports import free_port
from harness.queues import short
from harness.waiting import wait_until
from harness.web_server import start_web
from power.queue_stories import OFTEN, PATIENCE, RELAY, TAKER, Act
from power.tale import NOWHERE, take_marks

from rq.outbound import permits

FILE = b"attached " * 3000


class Hosts:
    """A sender with its queue `relay`, a receiver with its queue `sink` and its web."""

    def __init__(self, root: Path) -> None:
        # An address of the test's own: nobody else can have its port meanwhile.
        host = f"127.{random.randrange(1, 255)}.{os.getpid() % 250 + 1}.7"
        own = {"host": host, "addr": host, "port": str(free_port())}
        self.act = Act(root / "sender")
        self.there = Site(root / "receiver", **own)
        self.dest = f"http://{host}:{own['port']}/q/sink"
        self.relay = self.act.site.queue(
            "relay", RELAY, num_workers=2, worker="persistent"
        )
        self.sink = self.there.queue("sink", TAKER)
        permits.allow(self.act.site.root, [host])
        os.sync()
        self.web, said = start_web(self.there.root.path)
        assert said == "\n", said

    def send(self, token: str, *files: bytes) -> str:
        """Give the relay a message; return its id."""
        act, relay, fields = self.act, self.relay, {"dest": self.dest, "src": token}
        act.may(self.sink, token, NOWHERE, "prep", "que", "run", "done")
        if not files:
            return act.submit(relay, token, "", "relayed", dest=self.dest)
        act.may(relay, token, NOWHERE, "prep", "que", "run", "relayed")
        msg_id = short(relay.ok("prep_message", fields))
        for number, data in enumerate(files):
            source = act.site.root.path / "log" / "source"
            source.write_bytes(data)
            wanted = {"msg_id": msg_id, "pathname": str(source), "name": f"{number}"}
            relay.ok("attach_message", wanted)
        relay.ok("commit_message", {"msg_id": msg_id})
        act.must(relay, token, "que", "run", "relayed")
        return msg_id

    def until_relayed(self, token: str, msg_id: str) -> None:
        wait_until(lambda: hurry(self.relay, msg_id) == "relayed", PATIENCE)
        self.act.must(self.relay, token, "relayed")

    def kill(self) -> None:
        wait_until(self._is_taken, PATIENCE)
        self.act.kill(self.relay)
        self.act.kill(self.sink)

    def _is_taken(self) -> bool:
        return all(self.sink.state(one) == "done" for one in self.sink.ids())

    def close(self) -> None:
        self.web.kill()
        self.web.wait()
        self.act.site.close()
        self.there.close()


def hurry(relay: Queue, msg_id: str) -> str:
    """Let a message that waits be tried at once; return its state."""
    state = relay.state(msg_id)
    if state == "que":
        (relay.dir.path / "backoff.json").unlink(missing_ok=True)
        relay.ask("run_message", {"msg_id": msg_id})
    return state


def told(hosts: Hosts) -> None:
    """One message goes at once, before any checkpoint; one finds nobody and is tried
    again, and one follows with its files."""
    hosts.relay.start("", TEST_SEGMENT=OFTEN["TEST_SEGMENT"])
    hosts.sink.start("", **OFTEN)
    plain = hosts.send("plain")
    hosts.until_relayed("plain", plain)
    hosts.kill()
    hosts.relay.start("", **OFTEN)
    late = hosts.send("late")
    wait_until(lambda: hosts.relay.show(late)["attempt"] > 0, PATIENCE)
    wait_until(lambda: hosts.relay.state(late) == "que", PATIENCE)
    hosts.sink.start("", **OFTEN)
    hosts.until_relayed("late", late)
    whole = hosts.send("whole", FILE, b"small")
    hosts.until_relayed("whole", whole)
    hosts.kill()


if __name__ == "__main__":
    take_marks()
    hosts = Hosts(Path(sys.argv[1]))
    try:
        told(hosts)
    finally:
        hosts.close()
