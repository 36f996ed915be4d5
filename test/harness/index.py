"""Fills an index for tests, from lines as a journal has them, without any queue."""

import itertools
import time

from rq.index.batch import Source
from rq.index.store import Place, Store
from rq.layout import Root
from rq.words.states import State


def bare_root(path):
    """Make a root in which nothing has run yet."""
    root = Root(path)
    root.config_dir.mkdir()
    root.config.write_text('{"host": "127.0.0.1", "port": 3333}')
    return root


class Lines:
    """Lines of one queue: what each message goes through, a second apart by default."""

    def __init__(self, queue, now=None):
        self.queue = queue
        self.now = time.time() - 3600 if now is None else now
        self.lines = []
        self._numbers = itertools.count(1)
        self._states = {}

    def line(self, msg_id, ev, state, after=1.0, **fields):
        """Add a line; its message was where the last line has left it."""
        self.now += after
        was = self._states.get(msg_id, State.NOWHERE)
        self._states[msg_id] = State(state)
        seq = next(self._numbers)
        self.lines.append(
            {
                "seq": seq,
                "ts": int(self.now * 1e6),
                "queue": self.queue,
                "msg": msg_id,
                "ev": ev,
                "state": state,
                "was": was,
                "count": 0,
                "attempt": fields.pop("attempt", 1),
                **fields,
            }
        )

    def accept(self, msg_id, key="", **message):
        fields = {"key": key} if key else {}
        content = {"msg_id": msg_id, "dest": self.queue, **message}
        self.line(msg_id, "commit", "que", attempt=0, message=content, **fields)

    def run(self, msg_id, ev="finish", state="done", cause="done", text="", ran=2.0):
        """An attempt that ends so."""
        self.line(msg_id, "claim", "run", after=0.5)
        facts = {"cause": cause, "text": text, "outcome": cause}
        run_us, wait_us = int(ran * 1e6), 500_000
        self.line(msg_id, ev, state, after=ran, run_us=run_us, wait_us=wait_us, **facts)

    def fail(self, msg_id, cause="exit", text="status 3"):
        self.run(msg_id, "fail", "err", cause, text)


def fill(root, *queues, hides=None, is_built=True):
    """Write the lines of queues into the index of a root."""
    store = Store(root)
    batch, places = store.batch(), {}
    for lines in queues:
        number = store.number(lines.queue)
        for line in lines.lines:
            batch.take(Source(number, lines.queue, hides or {}), line)
        last = lines.lines[-1]["seq"] if lines.lines else 0
        places[number] = Place(journal="0badcafe", seq=last, checksum="00000000")
    store.write(
        batch, places, {"built": int(is_built), "as_of": time.time(), "read": 1}
    )
    store.close()


def message_id(number):
    """Return an id as RQ gives them."""
    return f"20260102.0304.05.006.{1_700_000_000_000 + number}"
