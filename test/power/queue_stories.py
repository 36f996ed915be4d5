"""Stories of real queue processes and their clients; run under strace as the others.

What a client was promised counts from the moment at which the answer left the queue's
process, not from when the client could say so.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness.checkout import CHECKOUT
from harness.kills import Queue, Site
from harness.queues import short
from harness.waiting import wait_until
from power.tale import ANY, NOWHERE, SEGMENT, Seen, mark, take_marks

from rq.spool import checkpoint

SCRIPT = '#!/bin/bash\neval "$RQ_PARAM1"\n'
TAKER = "#!/bin/sh\necho done got it >&3\n"
BATCH = "#!/bin/sh\necho done all >&3\n"
STAYS = """#!/bin/sh
. "$RQ_SHARE/rq_worker.sh"
while rq_next; do eval "$RQ_PARAM1"; done
"""
# The code beside this test, whatever else is installed.
RELAY = f"#!/bin/sh\nPYTHONPATH='{CHECKOUT}' exec \"$RQ_PYTHON\" -m rq.relay\n"
PATIENCE = 60.0  # seconds; strace slows all down
LATER = "[ $RQ_COUNT -gt 0 ] || { echo resend 0-later >&3; exit 0; }; echo done >&3"
# At its first attempt it never ends: only the next owner can end it.
HANGS = "[ $RQ_COUNT -gt 0 ] || sleep 600; echo done >&3"
OFTEN = {"TEST_CHECKPOINT_SECONDS": "0.4", "TEST_SEGMENT": str(2 * SEGMENT)}
DUP = "echo dup 0-X-b >&3; read -r answer <&4; echo done $answer >&3"


class Act:
    """Queues of a site, and what their clients are told."""

    def __init__(self, root: Path) -> None:
        self.site = Site(root)

    def start(self, *names: str, script: str = SCRIPT, **settings: Any) -> list[Queue]:
        """Make queues and start them; settings in capitals are for the process."""
        env = {name: settings.pop(name) for name in list(settings) if name.isupper()}
        every = [
            self.site.queue(name, one, num_workers=2, **settings)
            for name, one in zip(names, (script, TAKER), strict=False)
        ]
        os.sync()  # what the test has made; strace does not let it through
        return [one.start("", **OFTEN, **env) for one in every]

    def decided(self, queue: Queue, key: str, standing: str) -> None:
        assert queue.process is not None
        said = {"decided": {f"{queue.name}/{key}": standing}}
        mark({**said, "answered_by": queue.process.pid})

    def may(self, queue: Queue, token: str, *states: str, key: str = "") -> None:
        mark({"may": _said(queue, token, states, key)})

    def must(self, queue: Queue, token: str, *states: str, key: str = "") -> None:
        assert queue.process is not None
        said = {"may": _said(queue, token, states, key)}
        mark({**said, "answered_by": queue.process.pid})

    def submit(
        self, queue: Queue, token: str, act: str, *ends: str, **more: Any
    ) -> str:
        self.may(queue, token, NOWHERE, "que", "run", *ends)
        asked = {"dest": queue.name, "param1": act, "src": token, **more}
        msg_id = short(queue.ok("create_message", asked))
        self.must(queue, token, "que", "run", *ends)
        return msg_id

    def kill(self, queue: Queue) -> None:
        """kill -9 when all folders are made: of a call that it cuts short nobody knows
        whether it was done."""
        queue.ok("check")
        queue.kill()

    def until(self, queue: Queue, token: str, msg_id: str, state: str) -> None:
        wait_until(lambda: queue.state(msg_id) == state, PATIENCE)
        self.must(queue, token, state)


def _said(
    queue: Queue, token: str, states: tuple[str, ...], key: str
) -> dict[str, Any]:
    seen = [asdict(Seen(state=one, count=ANY, key=key)) for one in states]
    return {f"{queue.name}/{token}": seen}


def served(act: Act) -> None:
    """Messages run, fail, come again, are acknowledged, deleted, sent round again."""
    (queue,) = act.start("a")
    good = act.submit(queue, "good", "echo done fine >&3", "done")
    bad = act.submit(queue, "bad", "echo err bad >&3", "err")
    late = act.submit(queue, "late", LATER, "done")
    act.until(queue, "good", good, "done")
    act.until(queue, "bad", bad, "err")
    act.may(queue, "bad", "err", "que", "run")
    assert queue.ask("retry_message", {"msg_id": bad})[0] == "ok"
    act.must(queue, "bad", "que", "run", "err")
    act.until(queue, "late", late, "done")
    act.may(queue, "good", "done", NOWHERE)
    assert queue.ask("delete_message", {"msg_id": good})[0] == "ok"
    act.must(queue, "good", NOWHERE)
    act.until(queue, "bad", bad, "err")
    act.kill(queue)


def hurried(act: Act) -> None:
    """A person lets a message run at once that has waited since the last checkpoint."""
    (queue,) = act.start("a")
    waits = act.submit(queue, "waits", "echo done >&3", "done", due=4e9)
    wait_until(lambda: _covered(queue), PATIENCE)
    assert queue.ask("run_message", {"msg_id": waits})[0] == "ok"
    act.until(queue, "waits", waits, "done")
    act.kill(queue)


def batched(act: Act) -> None:
    """Messages run in one process, which ends them one by one and together."""
    (queue,) = act.start("b", script=BATCH, batch={"max": 3, "wait": 0.2})
    sent = [act.submit(queue, f"m{one}", "", "done") for one in range(4)]
    for number, msg_id in enumerate(sent):
        act.until(queue, f"m{number}", msg_id, "done")
    act.kill(queue)


def stayed(act: Act) -> None:
    """A worker that stays takes message after message, and its owner dies over one."""
    _stay(act)


def stayed_without_folders(act: Act) -> None:
    """The same where a message that runs has no folder of its own."""
    _stay(act, worker_dir=False)


def _stay(act: Act, **settings: Any) -> None:
    (queue,) = act.start("s", script=STAYS, worker="persistent", **settings)
    good = act.submit(queue, "good", "echo done fine >&3", "done")
    bad = act.submit(queue, "bad", "echo err bad >&3", "err")
    late = act.submit(queue, "late", LATER, "done")
    for token, msg_id, end in (("good", good, "done"), ("bad", bad, "err")):
        act.until(queue, token, msg_id, end)
    act.until(queue, "late", late, "done")
    hangs = act.submit(queue, "hangs", HANGS, "done")
    waits = act.submit(queue, "waits", "echo done >&3", "done", due=4e9)
    wait_until(lambda: queue.state(hangs) == "run", PATIENCE)
    act.kill(queue)
    queue.start("", **OFTEN)
    act.until(queue, "hangs", hangs, "done")
    act.may(queue, "waits", "que", NOWHERE)
    assert queue.ask("delete_message", {"msg_id": waits})[0] == "ok"
    act.must(queue, "waits", NOWHERE)
    act.kill(queue)


def _covered(queue: Queue) -> bool:
    point = checkpoint.read(queue.dir)
    return point is not None and point.seq > 0


def delivered(act: Act) -> None:
    """A receiver is handed the same message twice, under one key."""
    (queue,) = act.start("a")
    key = "relay/origin/1"
    asked = {"dest": "a", "param1": "echo done >&3", "src": "k", "_key": key}
    act.may(queue, "k", NOWHERE, "prep", "que", "run", "done", key=key)
    msg_id = short(queue.ok("prep_message", asked))
    source = act.site.root.path / "source"
    source.write_text("attached")
    queue.ok("attach_message", {"msg_id": msg_id, "pathname": str(source)})
    queue.ok("commit_message", {"msg_id": msg_id})
    act.must(queue, "k", "que", "run", "done", key=key)
    assert short(queue.ask("prep_message", asked)[1]) == msg_id
    wait_until(lambda: queue.state(msg_id) == "done", PATIENCE)
    act.must(queue, "k", "done", key=key)
    act.kill(queue)


def passed(act: Act) -> None:
    """Messages are forwarded, doubled and moved to another queue."""
    here, there = act.start("a", "b")
    for token, script in (("fwd", "echo forward b >&3"), ("dup", DUP)):
        act.may(there, token, NOWHERE, "que", "run", "done")
        mark({"passed": {f"a/{token}": f"b/{token}"}})
        msg_id = act.submit(here, token, script, "done")
        act.until(here, token, msg_id, "done")
    act.may(there, "mv", NOWHERE, "que", "run", "done")
    mark({"passed": {"a/mv": "b/mv"}})
    msg_id = act.submit(here, "mv", "echo done >&3", "relayed", due=4e9)
    assert here.ask("move_message", {"msg_id": msg_id, "to": "b"})[0] == "ok"
    act.must(here, "mv", "relayed")
    wait_until(lambda: len(there.ids()) == 3, PATIENCE)
    act.kill(here)
    act.kill(there)


def relayed_here(act: Act) -> None:
    """A message is relayed to a queue of the same host, with its attachment."""
    (there,) = act.start("b", script=TAKER)
    (here,) = act.start("relay", script=RELAY, worker="persistent")
    act.may(there, "file", NOWHERE, "prep", "que", "run", "done")
    mark({"passed": {"relay/file": "b/file"}})
    act.may(here, "file", NOWHERE, "prep", "que", "run", "relayed")
    asked = {"dest": "http://127.0.0.1:3333/q/b", "src": "file"}
    msg_id = short(here.ok("prep_message", asked))
    source = act.site.root.path / "source"
    source.write_text("attached")
    here.ok("attach_message", {"msg_id": msg_id, "pathname": str(source)})
    here.ok("commit_message", {"msg_id": msg_id})
    act.must(here, "file", "que", "run", "relayed")
    act.until(here, "file", msg_id, "relayed")
    act.must(there, "file", "que", "run", "done")
    act.kill(here)
    act.kill(there)


def transacted(act: Act) -> None:
    """Transactions of a client are committed, once and again, and aborted."""
    (queue,) = act.start("a", TEST_INLINE="1")
    tokens = [f"t{one}" for one in range(3)]
    for token in [*tokens, "never"]:
        act.may(queue, token, NOWHERE, "prep", "que", "run", "done")
    first, ids = _prepared(queue, "first", *tokens)
    mark({"together": {"first": dict.fromkeys([f"a/{one}" for one in tokens], "prep")}})
    asked = {"txn": first, "ids": ids[:2]}
    told = queue.ok("commit_txn", asked)
    act.decided(queue, "first", "committed")
    for token in tokens[:2]:
        act.must(queue, token, "que", "run", "done")
    act.must(queue, tokens[2], NOWHERE)
    assert queue.ok("commit_txn", asked) == told
    second, _ = _prepared(queue, "second", "never")
    queue.ok("abort_txn", {"txn": second})
    act.decided(queue, "second", "aborted")
    act.must(queue, "never", NOWHERE)
    for token, msg_id in zip(tokens[:2], ids, strict=False):
        act.until(queue, token, msg_id, "done")
    assert queue.ok("commit_txn", asked) == told
    act.kill(queue)


def rowed(act: Act) -> None:
    """Rows of a client are accepted, become messages, few at a time, and run."""
    (queue,) = act.start("a", TEST_ROWS="3")
    tokens = [f"r{one}" for one in range(8)]
    for token in tokens:
        act.may(queue, token, NOWHERE, "que", "run", "done")
    act.may(queue, "never", NOWHERE)
    mark({"together": {"rows": dict.fromkeys([f"a/{one}" for one in tokens], NOWHERE)}})
    txn = queue.ok("open_txn", {"key": "rows"})["txn"]
    files = [_handed_in(queue, txn, *some) for some in (tokens[:5], tokens[5:])]
    _handed_in(queue, txn, "never")
    asked = {"txn": txn, "ids": [], "rows": files}
    told = queue.ok("commit_txn", asked)
    act.decided(queue, "rows", "committed")
    for token in tokens:
        act.must(queue, token, "que", "run", "done")
    wait_until(lambda: queue.ok("detail")["counts"]["done"] == len(tokens), PATIENCE)
    for token in tokens:
        act.must(queue, token, "done")
    assert queue.ok("commit_txn", asked) == told
    other = queue.ok("open_txn", {"key": "other"})["txn"]
    _handed_in(queue, other, "never")
    queue.ok("abort_txn", {"txn": other})
    act.kill(queue)


def _handed_in(queue: Queue, txn: str, *tokens: str) -> str:
    """Hand in rows; return the name of their file."""
    wanted = [{"param1": "echo done >&3", "src": one} for one in tokens]
    view = queue.ok("add_rows", {"txn": txn, "messages": wanted})
    return str(view["rows"])


def _prepared(queue: Queue, key: str, *tokens: str) -> tuple[str, list[str]]:
    """Open a transaction and prepare messages in it."""
    txn = queue.ok("open_txn", {"key": key})["txn"]
    wanted = [{"param1": "echo done >&3", "src": one} for one in tokens]
    asked = {"txn": txn, "messages": wanted}
    return txn, [short(one) for one in queue.ok("prepare_txn", asked)]


STORIES: dict[str, Callable[[Act], None]] = {
    one.__name__: one
    for one in (
        served,
        hurried,
        batched,
        stayed,
        stayed_without_folders,
        delivered,
        passed,
        relayed_here,
        transacted,
        rowed,
    )
}

if __name__ == "__main__":
    take_marks()
    act = Act(Path(sys.argv[2]))
    try:
        STORIES[sys.argv[1]](act)
    finally:
        act.site.close()
