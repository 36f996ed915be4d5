"""Messages that wait for those of a parked queue: its folders answer, and nothing starts it."""

import os
import signal

import pytest
from harness.queues import short
from harness.supervisor import daemon_on
from harness.waiting import wait_until

pytestmark = [pytest.mark.process, pytest.mark.slow]


def is_parked(daemon):
    return daemon.child("q")["state"] == "PARKED"


def test_who_asks_a_parked_queue_does_not_start_it(tmp_path):
    with daemon_on(tmp_path / "root") as daemon:
        daemon.start()
        daemon.create("q", park="1s")
        daemon.create("w")
        asked = {"dest": "q", "due": 4e9}
        first = short(daemon.ask_queue("q", "create_message", asked)[1])
        wait_until(lambda: is_parked(daemon))
        wanted = {"dest": "w", "after": [f"q/{first}"]}
        word, full_id = daemon.ask_queue("w", "create_message", wanted)
        assert (word, is_parked(daemon)) == ("ok", True)
        gone = {"dest": "w", "after": [f"q/{first[:-1]}9"]}
        word, why = daemon.ask_queue("w", "create_message", gone)
        assert (word, is_parked(daemon)) == ("fail", True), why
        daemon.ask_queue("q", "run_message", {"msg_id": first})  # that starts it
        second = {"msg_id": short(full_id)}
        wait_until(
            lambda: daemon.ask_queue("w", "get_message_state", second)[1] == "done"
        )


def test_what_was_moved_to_where_no_one_takes_it_is_not_waited_for(tmp_path):
    with daemon_on(tmp_path / "root") as daemon:
        daemon.start()
        daemon.create("q", park="1s")
        daemon.create("w")
        daemon.create("x")
        silent = daemon.child("x")["pid"]
        os.kill(silent, signal.SIGSTOP)
        asked = {"dest": "q", "due": 4e9}
        first = short(daemon.ask_queue("q", "create_message", asked)[1])
        moved = {"msg_id": first, "to": "x", "who": "ann"}
        reply = daemon.ask_queue("q", "move_message", moved)
        assert reply[0] == "ok", reply
        (entry,) = wait_until(lambda: daemon.ask_queue("q", "owed")[1])
        dropped = {"key": entry["key"], "as": "dropped"}
        assert daemon.ask_queue("q", "resolve_owed", dropped)[0] == "ok"
        os.kill(silent, signal.SIGCONT)
        wait_until(lambda: is_parked(daemon))
        wanted = {"dest": "w", "after": [f"q/{first}"]}
        second = {"msg_id": short(daemon.ask_queue("w", "create_message", wanted)[1])}
        wait_until(
            lambda: daemon.ask_queue("w", "get_message_state", second)[1] == "done"
        )
        assert is_parked(daemon)
