"""A queue of flows, and two queues that flows send to."""

from __future__ import annotations

import contextlib
import json

from harness.checkout import CHECKOUT
from harness.queues import running_queue
from harness.waiting import wait_until
from rq.builtin.flow import door, look, record
from rq.flow import view
from rq.flow.plan import parse

NOTE = """#!/bin/sh
echo "$RQ_PARAM1 begun" >> "$RQ_ROOT/order"
eval "$RQ_PARAM2"
echo "${RQ_PARAM3:-done}" >&3
"""
FLOW = json.loads((CHECKOUT / "rq/bundled/flow/config.json").read_text())
GO = 'until [ -e "$RQ_ROOT/go" ]; do sleep 0.02; done'
SENDER = """#!/bin/sh
[ -e "$RQ_ROOT/kill" ] && RQ_CRASH_AT=$(cat "$RQ_ROOT/kill") && export RQ_CRASH_AT
rm -f "$RQ_ROOT/kill"
exec "$RQ_PYTHON" -I -m rq.builtin.flow
"""


def node(name, *after, queue="work", **fields):
    return {
        "name": name,
        "dest": queue,
        "after": list(after),
        "param1": name,
        **fields,
    }


DIAMOND = [
    node("first"),
    node("left", "first"),
    node("right", "first", queue="other"),
    node("last", "left", "right"),
]


class Stage:
    """A queue of flows, and two queues that flows send to."""

    def __init__(self, flow, work, other):
        self.flow, self.work, self.other = flow, work, other
        self.root = flow.root

    @property
    def queues(self):
        return {"flow": self.flow, "work": self.work, "other": self.other}

    def send(self, messages, **whose):
        return door.send(self.root, parse(messages), whose).msg_id

    def send_unchecked(self, messages):
        """Send what is refused at the door, as if a queue had gone just after."""
        return door.make(self.root, parse(messages), {}).msg_id

    def ended(self, msg_id):
        """Wait until F has ended; return its view."""
        return self.flow.ended(msg_id)

    def sent(self, msg_id):
        return record.read(self.root, msg_id)[1]

    def state(self, msg_id, name):
        return look.flow_of(self.root, msg_id).mark_of(
            next(n for n in record.read(self.root, msg_id)[0].nodes if n.name == name)
        )

    def until(self, msg_id, mark):
        wait_until(lambda: self.shown(msg_id)["mark"] == mark)
        return self.shown(msg_id)

    def shown(self, msg_id):
        return view.view(look.flow_of(self.root, msg_id), lambda queue: True)

    @property
    def order(self):
        path = self.root.path / "order"
        return path.read_text().split("\n")[:-1] if path.exists() else []

    def go(self):
        (self.root.path / "go").touch()

    def kill_sender(self, point):
        (self.root.path / "kill").write_text(point)

    def waiting(self):
        """Return how many messages are in que or run of the queues that flows send to."""
        counts = [q.ask("num_messages") for q in (self.work, self.other)]
        return sum(each["que"] + each["run"] for each in counts)


@contextlib.contextmanager
def running_stage(path, **settings):
    with (
        running_queue(path, NOTE, name="work", num_workers=4) as work,
        running_queue(path, NOTE, name="other", num_workers=4) as other,
        running_queue(path, SENDER, name="flow", **{**FLOW, **settings}) as flow,
    ):
        yield Stage(flow, work, other)
