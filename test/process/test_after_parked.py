"""Messages that wait for those of a parked queue: its folders answer, and nothing starts it."""

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
