"""A sender whose power goes loses no message, and nobody gets one twice."""

import shutil
from pathlib import Path

import pytest
from harness.extent import share
from harness.queues import RunningQueue
from harness.relay import RUN, SETTINGS, SINK, Pair, Proxy
from harness.web_server import Client, start_web
from power.disk import Synced, Written
from power.pairs import PAIR, recorded_pair, recover_pair
from power.proving import Way, is_here, prove
from power.states import DISKS, NEAR, Model, States
from power.twice import FIRST

from rq import config
from rq.layout import Root
from rq.outbound import permits
from rq.spool import folders
from rq.words.states import State

pytestmark = pytest.mark.process
GOING = (State.QUE, State.RUN, State.RELAYED)


@pytest.mark.slow
@pytest.mark.parametrize("model", share(DISKS[::-1], 1, ci=2))
def test_no_power_cut_of_a_sender_loses_or_doubles_a_message(model, tmp_path):
    again = []

    def recover(root):
        found = recover_pair(root)
        again.extend(found.handed)
        return found

    way = Way(recover=recover, spared=PAIR.spared)
    disk = recorded_pair(tmp_path)
    proof = prove(disk, model, NEAR[model], some=0, way=way)
    assert proof.broken == []
    assert proof.states > 200
    # Those are the states in which a message might have been handed over twice.
    assert set(again) == {"relay/late", "relay/whole", "relay/plain"}


@pytest.mark.stress
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("model", DISKS)
def test_no_power_cut_of_a_sender_does_so_whatever_is_left(model, seed, tmp_path):
    disk = recorded_pair(tmp_path)
    proof = prove(disk, model, near=8, some=6, seed=seed, way=PAIR)
    assert proof.broken == []


@pytest.mark.slow
def test_a_sender_that_starts_after_a_power_cut_hands_each_message_over_once(tmp_path):
    disk = recorded_pair(tmp_path)
    states = States(disk, Model.ORDERED, spared=PAIR.spared)
    afters = answered(disk)
    chosen = afters[-FIRST:]
    for choice in states.choices(near=0, some=0):
        if choice.after in chosen and choice.about == "nothing":
            handed_over(Path(disk.top), states.tree(choice))


def answered(disk):
    """Return where the receiver has just accepted a message, and nobody knows."""
    commits = [
        number
        for number, op in enumerate(disk.ops)
        if isinstance(op, Written)
        and op.node.site == "receiver"
        and b'"ev":"commit"' in op.data
    ]
    return [
        next(n + 1 for n in range(one, len(disk.ops)) if held(disk.ops[n]))
        for one in commits
    ]


def held(op):
    return isinstance(op, Synced) and op.node is not None and op.node.site == "receiver"


def handed_over(root, tree):
    """Start both over a state where they were recorded, and let all be handed over."""
    shutil.rmtree(root)
    tree.make(root)
    for place in (
        Root(root / "sender").queue("relay"),
        Root(root / "receiver").queue("sink"),
    ):
        is_here(place)
    web, said = start_web(root / "receiver")
    sender = RunningQueue(root / "sender", "relay", RUN, **SETTINGS)
    sink = RunningQueue(root / "receiver", "sink", SINK)
    try:
        assert said == "\n", said
        there = config.read_root(Root(root / "receiver"))
        permits.allow(sender.root, [there.host])
        port = int(there.port)
        pair = Pair(sender, sink, Client(port), Proxy(port), root)
        sink.start()
        sender.start()
        sender.ok("check")
        ids = [one for state in GOING for one in folders.list_state(sender.dir, state)]
        ended = [pair.relayed(one, 60.0) for one in set(ids)]
        assert {one["state"] for one in ended} == {"relayed"}
        sent = sorted(one["src"] for one in ended)
        assert sorted(one["src"] for one in pair.received()) == sent
        sender.close()
        sink.close()
    finally:
        web.kill()
        web.wait()
        sender.kill()
        sink.kill()
