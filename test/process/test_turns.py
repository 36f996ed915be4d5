"""No turn of a queue's loop takes long, however much waits and whatever is asked.

Counted is the processor time of the loop's thread, by the queue itself.
"""

from __future__ import annotations

import json
import os
import time

import pytest
from harness import lease_words
from harness.extent import rotated
from harness.queues import RunningQueue, kept, short
from harness.spool import Owner
from harness.waiting import wait_until

from rq.proc import turnlimit
from rq.rpc import client
from rq.rpc.lines.commands import COMMANDS
from rq.words.states import Event, Role

pytestmark = pytest.mark.process
LIMIT = "0.05"  # seconds


@pytest.fixture
def queue(tmp_path):
    """A queue that tells of long turns, and has told of none."""
    made = RunningQueue(tmp_path / "root", "t", "obey")
    made.env[turnlimit.LIMIT] = LIMIT
    with kept(made) as queue:
        yield queue
        assert long_turns(queue) == []


def long_turns(queue):
    return [one for one in queue.log().splitlines() if turnlimit.HELD in one]


def test_a_turn_that_takes_long_is_told(tmp_path):
    made = RunningQueue(tmp_path / "root", "t", "obey")
    made.env[turnlimit.LIMIT] = "0.000000001"
    with kept(made) as queue:
        queue.ask("ping")
        assert long_turns(queue)


def test_what_lies_at_the_door_holds_nobody_up(queue):
    """Sixty folders with a megabyte each are hashed and synced beside the loop."""
    for number in range(60):
        made = queue.root.path / f"made-{number}"
        (made / "attach").mkdir(parents=True)
        (made / "attach" / "large").write_bytes(os.urandom(2**20))
        (made / "msg").write_text(json.dumps({"dest": "t", "due": 4e9}))
        made.rename(queue.dir.path / "new" / made.name)
    queue.ask("wake")
    wait_until(lambda: queue.ask("num_messages")["que"] == 60)
    assert long_turns(queue) == []


FLOODS = {
    "nonsense": "yes y >&3",
    "of a child when it has ended": "(yes y >&3 &); sleep 0.2",
    "questions": "yes dup 0-X-nowhere >&3",
}


@pytest.mark.parametrize("flood", rotated(FLOODS.values()), ids=FLOODS)
def test_a_script_that_floods_its_pipe_holds_nobody_up(queue, flood):
    msg_id = queue.send(param1=flood)
    queue.until(msg_id, "run")
    for _ in range(100):
        queue.ask("ping")
    assert resident(queue.pid) < 100_000
    queue.ask("destroy_message", {"msg_id": msg_id})
    queue.ended(msg_id)


def resident(pid):
    """Return the memory of a process, in KiB."""
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))


MANY = 40_000  # messages that wait; as many as a transaction may hold
ERRS = 1_000
SOME = (
    8_000  # of a decision, which is one turn: far from the limit on a busy machine too
)
LATER = 4e9


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """A queue with very many messages, whose folders are made as it starts."""
    root = tmp_path_factory.mktemp("root")
    owner = Owner(root, time.time, "t")
    spool = owner.open()
    for number in range(MANY + ERRS):
        msg_id = owner.submit(dest="t", due=LATER, param1=f"n{number}")
        if number < ERRS:
            facts = {"cause": "bad_message", "text": "of a test", "outcome": "err"}
            spool.fire(msg_id, Event.FAIL, Role.QUEUE, facts=facts)
        if spool.journal.full:
            spool.commit()
    spool.commit()
    owner.crash()
    made = RunningQueue(root, "t", "obey", pull={"max": 100_000})
    made.env[turnlimit.LIMIT] = LIMIT
    try:
        made.start()
        assert made.ask("ping") == ["pong"]
        made.told_at_start = long_turns(made)
        yield made
    finally:
        made.kill()


def waiting(queue):
    return queue.ok("list", {"state": "que", "limit": 1})[0]["msg_id"]


def ended(queue):
    return queue.ok("list", {"state": "err", "limit": 1})[0]["msg_id"]


def prepared(queue):
    return short(queue.ok("prep_message", {"dest": "t"}))


def of(find, **more):
    """Return what makes the argument of a command about one message."""
    return lambda queue: {"msg_id": find(queue), **more}


def asked_patiently(queue, command, arg):
    with client.Connection(queue.dir.socket, timeout=300) as line:
        return line.ask(command, arg)


def in_txn(queue, **more):
    return {"txn": queue.ok("open_txn", {})["txn"], **more}


def with_messages(queue, number):
    """Return a transaction and the messages that were prepared in it."""
    asked = in_txn(queue, messages=[{"due": LATER}] * number)
    word, ids = asked_patiently(queue, "prepare_txn", asked)
    assert word == "ok"
    return {"txn": asked["txn"], "ids": ids}


def leased(queue, number=1):
    """Return the tokens of so many leases, or of some fewer; none are given while most
    folders have still to be made."""
    due = [{"dest": "t"}] * (number + 5)  # its own script takes one or two
    assert asked_patiently(queue, "create_messages", {"messages": due})[0] == "ok"
    wanted = {"count": number, "seconds": 900}
    leases = wait_until(lambda: queue.ok("lease", wanted)["leases"], 120)
    return [lease["token"] for lease in leases]


def held(**more):
    """Return what makes the argument of a word about one lease."""
    return lambda queue: {"token": leased(queue)[0], **more}


def held_many(queue):
    return {"tokens": leased(queue, 1000)}


def ends(queue):
    tokens = leased(queue, 1000)
    return {"finishes": [{"token": token, "word": "done"} for token in tokens]}


def begun(queue):
    """Return a request for many messages that has begun."""
    asked = {"action": "delete", "filter": {"state": "que", "param1": "n7"}}
    word, view = asked_patiently(queue, "bulk", asked)
    assert word == "ok"
    return {"bulk": view["bulk"]}


@pytest.mark.slow
def test_words_about_large_messages_are_not_all_taken_in_one_turn(tmp_path):
    """Each end of a leased message that runs again reads and writes a megabyte."""
    made = RunningQueue(tmp_path / "root", "t", "obey", num_workers=0, pull={})
    made.env[turnlimit.LIMIT] = LIMIT
    text = "x" * 120_000
    with kept(made) as queue:
        for _ in range(50):
            queue.send(**{f"param{number}": text for number in range(1, 9)})
        taken = []
        while len(taken) < 50:
            taken += lease_words.lease(queue, count=50, seconds=900)
        ended = lease_words.finish(queue, *taken, word="resend", delay=9999)
        assert {row["state"] for row in ended} == {"que"}
        assert long_turns(queue) == []


# How each command is asked that may find much to do; several ways for some.
ASKED = {
    "ping": [b""], "uptime": [b""], "config": [b""], "status": [b""], "detail": [b""], "figures": [b""],
    "get_ends": [{"msg_ids": ["20260102.0304.05.006.7"] * 100}],
    "ends": [{"msg_ids": ["20260102.0304.05.006.7"] * 1000, "queue": "other"}],
    "get_states": [{"msg_ids": ["20260102.0304.05.006.7"] * 500}],
    "kinds": [b""], "wake": [b""], "num_messages": [b""], "seal": [b""], "owed": [b""],
    "owes": [json.dumps({"keys": ["x"] * 5000}).encode()],
    "get_message": [of(waiting), of(ended)], "get_message_state": [of(waiting)],
    "get_message_status": [of(ended)],
    "messages": [
        {"state": "que", "limit": 0}, {"state": "run"}, {"state": "prep"},
        {"state": "err"}, {"state": "done", "filter": "x"}, {"state": "errack"},
    ],
    "list": [
        {"state": "que", "order": "next", "limit": 1000},
        {"state": "que", "limit": 0}, {"state": "err", "limit": 0}, {"state": "run"},
        {"state": "prep"}, {"state": "done"},
    ],
    "expire": [b"", {"state": "dismissed", "keep": 0}],
    "create_messages": [{"messages": [{"due": LATER}] * 5000}],
    "await_end": [of(ended), of(waiting, wait=0)],
    "lease": [{"count": 0}, lambda q: leased(q, 1000) and {"count": 1000}],
    "leases": [b"", {"limit": 1000}], "start": [held_many], "renew": [held_many],
    "release": [held_many], "finish": [ends],
    "progress": [held(text="half", fraction=0.5)],
    "log": [held(offset=0, data="eHh4" * 250_000)],
    "file": [held(name="x", pathname="/etc/hostname")],
    "create_message": [{"dest": "t", "due": LATER, "_key": "k"}],
    "prep_message": [{"dest": "t"}, {"dest": "t", "_key": "p"}],
    "single_que": [{"dest": "t"}],
    "attach_message": [of(prepared, pathname="/etc/hostname", name="x")],
    "delete_attach_message": [of(prepared, attachment_name="x")],
    "commit_message": [of(prepared)], "clone_message": [of(ended)],
    "delete_message": [of(waiting)], "destroy_message": [of(waiting)],
    "cancel_message": [of(waiting)], "cancel_batch": [of(waiting)],
    "retry_message": [of(ended)], "run_message": [of(waiting)],
    "set_message": [of(waiting, priority=3)],
    "get_attempts": [of(ended)], "reopen_message": [of(ended)],
    "ack_message": [of(ended)], "unack_message": [of(ended)],
    "move_message": [of(waiting, queue="nowhere")], "edit_message": [of(ended)],
    "notices": [b""], "test_notice": [{}],
    "hold_message": [of(waiting)], "release_message": [of(waiting)],
    "release_after": [of(waiting)],
    "ack_errs": [of(ended), b""], "check": [b"", {"fix": True}, {"only": "counters"}],
    "bulk": [
        {"action": "cancel", "filter": {"state": "que", "param1": "n7"}, "dry_run": True},
        {"action": "delete", "filter": {"state": "que", "text": "x"}},
        {"action": "delete", "filter": {"state": "dismissed"}},
    ],
    "list_bulks": [b""], "show_bulk": [begun], "cancel_bulk": [begun],
    "open_txn": [{}], "list_txns": [{"limit": 1000}],
    "prepare_txn": [lambda q: in_txn(q, messages=[{"due": LATER}] * MANY)],
    "add_rows": [lambda q: in_txn(q, messages=[{"own": "x" * 100}] * 5000)],
    "drop_rows": [in_txn],
    "show_txn": [lambda q: in_txn(q, limit=1000)],
    "abort_txn": [lambda q: with_messages(q, 5000)], "commit_txn": [lambda q: with_messages(q, SOME)],
    "restored": [b"", {"limit": 1000}], "restore": [{"as": "same"}],
    "resolve_owed": [{"key": "x", "as": "dropped"}],
    "take_copy": [{"queue": "t", "msg_id": "20200101.0000.00.000.1", "message": {}}],
}  # fmt: skip
LAST = {"mind", "shutdown"}  # they end the queue, and it has a start of its own
ONCE = {"ack_errs", "expire"}  # they find nothing to do a second time


def test_every_command_is_asked_here():
    assert set(ASKED) | LAST == set(COMMANDS)


@pytest.mark.slow
@pytest.mark.parametrize("command", ASKED)
def test_no_command_takes_a_long_turn_with_very_many_messages(full, command):
    """What is long is so each time; a machine that is shared may take a processor away
    in the middle of a turn, and count that as work."""
    told = told_while_asked(full, command)
    for _ in range(2):
        if told and command not in ONCE:
            told = told_while_asked(full, command)
    assert told == []


def told_while_asked(queue, command):
    before = len(long_turns(queue))
    for asked in ASKED[command]:
        arg = asked(queue) if callable(asked) else asked
        reply = asked_patiently(queue, command, arg)
        assert "the command failed" not in str(reply)[:200]
        assert queue.ask("ping") == ["pong"]
    return long_turns(queue)[before:]


@pytest.mark.slow
def test_a_bulk_takes_no_long_turn_while_it_works(full):
    """As many messages as the queue has, and their folders."""
    told = long_turns(full)
    for action, state in (("cancel", "que"), ("retry", "dismissed"), ("cancel", "que")):
        asked = {"action": action, "filter": {"state": state}}
        bulk = asked_patiently(full, "bulk", asked)[1]["bulk"]
        wait_until(
            lambda bulk=bulk: full.ok("show_bulk", {"bulk": bulk})["state"] == "done",
            120,
        )
    assert long_turns(full) == told


def test_it_starts_without_a_long_turn(full):
    told = full.told_at_start
    for _ in range(2):
        if told:
            before = len(long_turns(full))
            full.restart()
            assert full.ask("ping") == ["pong"]
            told = long_turns(full)[before:]
    assert told == []
