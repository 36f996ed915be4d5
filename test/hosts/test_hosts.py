"""Three hosts, cables that are pulled, processes that are killed:
every message arrives, once."""

import os
from collections import Counter

import pytest
from harness.queues import short
from harness.waiting import wait_until

from rq.spool import folders
from rq.words.states import State

pytestmark = pytest.mark.system


def send(host, to, name, file=None):
    asked = {"dest": to.url(), "param1": name}
    if file is None:
        word, text = host.ask_queue("relay", "create_message", asked)
        assert word == "ok", text
        return
    msg_id = short(host.ask_queue("relay", "prep_message", asked)[1])
    about = {"msg_id": msg_id, "pathname": str(file), "name": "parcel"}
    assert host.ask_queue("relay", "attach_message", about)[0] == "ok"
    assert host.ask_queue("relay", "commit_message", {"msg_id": msg_id})[0] == "ok"


def arrived(host):
    """Return how often each message was accepted, by its param1. One that moves
    meanwhile may lie in two of the directories that are listed."""
    queue = host.root.queue("sink")
    found = {}
    for state in (State.QUE, State.RUN, State.DONE, State.ERR):
        for msg_id in folders.list_state(queue, state):
            message = folders.read_message(queue, state, msg_id)
            found[msg_id] = message.params["param1"]
    return Counter(found.values())


def kill(host, name):
    """kill -9 of a child; return when its supervisor knows."""
    pid = host.kill(name)
    wait_until(lambda: host.child(name)["pid"] != pid)


def waiting(host):
    counts = host.ask_queue("relay", "num_messages")
    assert counts["err"] == 0
    return counts["que"] + counts["run"]


def hurry(host):
    """Let what waits be tried at once."""
    (host.root.queue("relay").path / "backoff.json").unlink(missing_ok=True)
    for msg_id, _ in host.ask_queue("relay", "messages", {"state": "que"}):
        host.ask_queue("relay", "run_message", {"msg_id": msg_id})


def settled(host):
    """Whether it has handed all over; what waits is tried again."""
    hurry(host)
    return waiting(host) == 0


def test_every_message_between_three_hosts_arrives_once(net, tmp_path):
    parcel = tmp_path / "parcel"
    parcel.write_bytes(os.urandom(300_000))
    sent = {host.address: set() for host in net.hosts}
    troubles = iter(
        [
            lambda: net.hosts[1].plug("down"),
            lambda: kill(net.hosts[0], "relay"),
            lambda: kill(net.hosts[1], "sink"),
            lambda: net.hosts[2].plug("down"),
            lambda: kill(net.hosts[2], "web"),
            lambda: net.hosts[1].plug("up"),
            lambda: net.hosts[2].plug("up"),
            lambda: kill(net.hosts[0], "web"),
        ]
    )
    for number in range(40):
        here = net.hosts[number % 3]
        there = net.hosts[(number + 1 + number // 3 % 2) % 3]
        name = f"{here.address} to {there.address}, {number}"
        here.until_up("relay", 60)
        send(here, there, name, parcel if number % 4 == 0 else None)
        sent[there.address].add(name)
        if number % 5 == 4:
            next(troubles)()
    for host in net.hosts:
        host.until_up("relay", 60)
        host.until_up("web", 60)
    wait_until(lambda: all(settled(host) for host in net.hosts), 120)
    for host in net.hosts:
        found = arrived_all(host, sent[host.address])
        assert set(found) == sent[host.address]
        assert set(found.values()) == {1}


def arrived_all(host, names):
    wait_until(lambda: set(arrived(host)) >= names, 60)
    assert host.ask_queue("sink", "check")[1] == {"problems": []}
    return wait_until(lambda: arrived(host))


@pytest.mark.slow
def test_a_host_that_is_unplugged_holds_up_nobody_else(net):
    here, there, gone = net.hosts
    gone.plug("down")
    for number in range(12):
        send(here, gone, f"gone {number}")
    for number in range(12):
        send(here, there, f"there {number}")
    wait_until(lambda: len(arrived(there)) == 12, 60)
    assert arrived(gone) == {}
    gone.plug("up")
    wait_until(lambda: hurry(here) or len(arrived(gone)) == 12, 120)
    assert set(wait_until(lambda: arrived(gone)).values()) == {1}
