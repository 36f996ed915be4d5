"""What travels, what stays, who is left alone for a while, and what ends in err."""

import json
import re

import pytest
from harness.queues import RunningQueue, kept, running_queue
from harness.relay import pair_at
from harness.waiting import wait_until

from rq.message.message import MESSAGE_LIMIT
from rq.relay import host_back_off, transfers

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    with pair_at(tmp_path_factory.mktemp("pair")) as pair:
        yield pair


def arrived(pair, msg_id):
    """Return what the receiver has of a message that was relayed."""
    ended = pair.relayed(msg_id)
    assert ended["state"] == "relayed", ended
    return pair.sink.get(ended["result"]["job_status"].rpartition("/")[2])


def test_the_fields_of_a_message_travel_with_it(pair):
    sent = {
        "src": "me",
        "param1": 'a "b" & ü\n',
        "param2": {"deep": [1, None]},
        "param4": "",
        "count": 3,
        "max_count": 9,
        "orig_msg_id": "http://first/q/x/1",
        "invoice": {"kept": True},
    }
    got = arrived(pair, pair.send(**sent))
    for name, value in {**sent, "count": 4, "hops": 1}.items():
        assert got[name] == value
    assert got["dest"] == pair.url()
    assert "force_remote" not in got


def test_the_first_of_a_chain_is_remembered_by_its_full_id(pair):
    msg_id = pair.send()
    assert (
        arrived(pair, msg_id)["orig_msg_id"] == pair.sender.get(msg_id)["orig_msg_id"]
    )


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"hops": 25}, "it goes round in a loop"),
        ({"count": 14, "max_count": 14}, "max_count"),
        ({"dest": "http://h:1/x"}, "is not http(s)://HOST"),
        ({"dest": "http://u:p@h:1/q/x"}, "peers.json"),
        ({"dest": "http://h:99999/q/x"}, "Port out of range"),
        ({"dest": "http://h/ä/q/x"}, "as %XX"),
        ({"dest": f"http://h/{'a' * 1000}/q/x"}, "at most 1000 characters"),
        ({"dest": "http://h/q/../x"}, "queue name has invalid characters"),
    ],
)
def test_what_cannot_be_handed_over_goes_to_err_with_the_reason(pair, fields, reason):
    ended = pair.relayed(pair.send(**fields))
    assert ended["state"] == "err"
    assert reason in ended["status"]


def test_a_queue_that_is_not_there_is_an_error(pair):
    ended = pair.relayed(pair.send(dest=pair.url("nobody")))
    assert ended["state"] == "err"
    assert "there is no queue nobody" in ended["status"]


def test_a_message_for_this_host_goes_over_the_socket(pair, tmp_path):
    with_here = RunningQueue(
        pair.sender.root.path, "here", "#!/bin/sh\necho done >&3\n"
    )
    with kept(with_here):
        before = len(pair.proxy.requests)
        port = json.loads(pair.sender.root.config.read_text())["port"]
        msg_id = pair.send({"a b.txt": b"x"}, dest=f"http://localhost:{port}/q/here")
        ended = pair.relayed(msg_id)
        assert ended["state"] == "relayed", ended
        got = with_here.ended(ended["result"]["job_status"].rpartition("/")[2])
        assert got["attachments"] == ended["attachments"]
        assert (got["count"], got["hops"]) == (1, 1)
        assert len(pair.proxy.requests) == before


def test_a_queue_of_this_host_that_is_not_there_is_an_error(pair):
    port = json.loads(pair.sender.root.config.read_text())["port"]
    ended = pair.relayed(pair.send(dest=f"http://127.0.0.1:{port}/q/nobody"))
    assert "there is no queue nobody here" in ended["status"]


def test_what_a_queue_of_this_host_never_takes_is_an_error(pair):
    here = RunningQueue(pair.sender.root.path, "narrow", "#!/bin/sh\necho done >&3\n")
    port = json.loads(pair.sender.root.config.read_text())["port"]
    fields = {"dest": f"http://localhost:{port}/q/narrow", "due": 1, "bulk": ""}
    with kept(here):
        # As large as the relay takes; on its way it grows by what tells of that.
        fields["bulk"] = "x" * MESSAGE_LIMIT
        text = pair.sender.refused("create_message", fields)
        size = int(re.search(r"the message is (\d+) bytes", text)[1])
        fields["bulk"] = "x" * (2 * MESSAGE_LIMIT - size - 8)
        ended = pair.relayed(pair.send(**fields))
        assert ended["state"] == "err"
        assert "send large data as an attachment" in ended["status"]


def left_alone(pair):
    """Return how often each that is left alone has failed."""
    path = pair.sender.dir.path / "backoff.json"
    table = json.loads(path.read_text()) if path.exists() else {}
    return {name: one["failures"] for name, one in table.items()}


def test_a_queue_of_this_host_that_is_down_is_left_alone_till_it_is_back(pair):
    root = pair.sender.root
    here = RunningQueue(root.path, "resting", "#!/bin/sh\necho done >&3\n")
    port = json.loads(root.config.read_text())["port"]
    try:
        here.start()
        root.down("resting").touch()
        msg_id = pair.send(dest=f"http://localhost:{port}/q/resting")
        wait_until(lambda: "here/resting" in left_alone(pair), 60)
        assert wait_until(lambda: transfers.find(root, msg_id), 60).peer == "here"
        root.down("resting").unlink()

        def again():
            host_back_off.pardon(pair.sender.dir, "here")
            pair.sender.ask("run_message", {"msg_id": msg_id})
            return pair.sender.state(msg_id) == "relayed"

        wait_until(again, 60)
        assert "here/resting" not in left_alone(pair)
        here.close()
    finally:
        root.down("resting").unlink(missing_ok=True)
        here.kill()


@pytest.mark.slow
def test_none_is_started_for_a_dead_host_but_one_now_and_then(pair):
    pair.proxy.is_down = True
    host = f"http://127.0.0.1:{pair.proxy.own_port}"
    first = pair.send()
    wait_until(lambda: "waits for" in pair.sender.get(first)["story"]["why"], 60)
    waiting = [pair.send(param1=str(n)) for n in range(50)]
    # Another host is served meanwhile.
    got = pair.sender.ended(pair.send(dest=pair.direct), 60)
    assert got["state"] == "relayed"
    wait_until(lambda: left_alone(pair)[host] >= 3, 60)
    shown = [pair.sender.get(one) for one in (first, *waiting)]
    assert {one["count"] for one in shown} == {0}
    assert {one["state"] for one in shown} <= {"que", "run"}
    assert f"It waits for {host}, which is tried again in" in shown[-1]["story"]["why"]
    tried = {one["msg_id"]: one["attempt"] for one in shown}
    failures = left_alone(pair)[host]
    assert sum(tried.values()) <= failures + 1  # one may be at it
    assert sum(1 for one in waiting if not tried[one]) >= len(waiting) - 1 - failures
    pair.proxy.is_down = False
    for one in (first, *waiting):
        assert pair.sender.ended(one, 60)["state"] == "relayed"
    assert left_alone(pair) == {}


def test_a_host_is_asked_again_after_a_restart_of_the_queue(pair):
    pair.proxy.is_down = True
    waiting = [pair.send() for _ in range(5)]
    wait_until(lambda: left_alone(pair), 60)
    pair.sender.restart()
    pair.proxy.is_down = False
    for one in waiting:
        assert pair.sender.ended(one, 60)["state"] == "relayed"


def test_a_queue_that_is_down_there_does_not_hold_up_its_host(pair):
    with running_queue(
        pair.sink.root.path, "#!/bin/sh\necho done >&3\n", "other"
    ) as other:
        pair.sink.root.down("other").touch()
        other.ask("wake")
        held = pair.send(dest=pair.url("other"))
        wait_until(lambda: "DOWN" in pair.sender.get(held)["status"].upper())
        assert pair.sender.ended(pair.send())["state"] == "relayed"
        pair.sink.root.down("other").unlink()
        other.ask("wake")
        assert pair.relayed(held)["state"] == "relayed"
