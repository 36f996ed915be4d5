"""Who belongs to a cluster, and who answers."""

import pytest
from harness.members_network import Network, mesh_of

from rq.broker.admin.nodes import flags_of
from rq.broker.cluster.gossip import Address, Ends, Greeting, HasFailed, Kind, Rumour
from rq.broker.cluster.members import Member


def test_a_meeting_makes_both_know_each_other():
    network = Network(2)
    network.meet(0, 1)
    network.pass_by(0.3)
    first, second = network.nodes
    assert first.others == first.reachable == (second.node_id,)
    assert second.others == second.reachable == (first.node_id,)
    assert [first.size, second.size] == [2, 2]
    assert second.address.host == network.host(1)  # it was met there
    assert first.changed
    assert second.changed


@pytest.mark.parametrize("number", [3, 7])
def test_meetings_in_a_chain_make_a_mesh(number):
    network = Network(number)
    for index in range(1, number):
        network.meet(index - 1, index)
    network.pass_by(4)
    assert network.mesh()
    assert all(members.size == number for members in network.nodes)


def test_a_node_that_meets_itself_stays_alone():
    network = Network(1)
    network.meet(0, 0)
    network.pass_by(1)
    assert network.nodes[0].by_id == {}


def test_a_meeting_with_nobody_is_given_up():
    network = Network(1, timeout=3.0)
    network.nodes[0].meet(Address("10.9.9.9", 1, 2), network.now)
    network.pass_by(2.8)
    (member,) = network.nodes[0].by_id.values()
    assert member.in_handshake
    assert network.nodes[0].others == ()
    assert network.nodes[0].size == 1
    network.pass_by(0.5)
    assert network.nodes[0].by_id == {}


def test_a_dead_node_is_suspected_after_the_timeout_and_fails_by_majority():
    network = mesh_of(3, timeout=3.0)
    network.kill(2)
    network.pass_by(2.8)
    assert not network.sees(0, 2).is_doubted
    assert network.nodes[2].node_id not in network.nodes[0].reachable  # no link
    network.pass_by(0.4)
    assert network.sees(0, 2).failed
    assert network.sees(1, 2).failed
    assert network.nodes[0].size == 3  # it belongs to the cluster still


def test_of_two_nodes_the_other_is_suspected_and_never_fails():
    network = mesh_of(2)
    network.kill(1)
    network.pass_by(20)
    assert network.sees(0, 1).suspected
    assert not network.sees(0, 1).failed


def test_a_minority_lets_nobody_fail():
    network = mesh_of(5)
    for index in (2, 3, 4):
        network.kill(index)
    network.pass_by(20)
    assert network.sees(0, 4).suspected
    assert not network.sees(0, 4).failed


def test_a_node_that_answers_again_is_clear_at_once():
    network = mesh_of(3)
    network.kill(2)
    network.pass_by(10)
    network.restart(2)
    network.pass_by(0.3)
    assert network.mesh()
    assert not network.sees(0, 2).is_doubted


def test_a_node_that_only_one_other_does_not_reach_does_not_fail():
    network = mesh_of(4)
    network.cuts = {(0, 3), (3, 0)}
    network.pass_by(10)
    assert network.sees(0, 3).suspected
    assert not network.sees(1, 3).is_doubted
    assert network.nodes[3].node_id not in network.nodes[0].reachable


def test_silence_breaks_the_link_before_the_node_is_suspected():
    """Its end may be gone without a word: a new connection shows whether it is."""
    network = mesh_of(2, timeout=3.0)
    network.pass_by(5)
    network.cuts = {(0, 1), (1, 0)}
    network.pass_by(2.9)
    assert not network.sees(0, 1).is_linked
    assert not network.sees(0, 1).is_doubted


def test_a_node_that_was_stopped_blames_nobody():
    network = mesh_of(3)
    stopped = network.nodes[0]
    network.dead = {0}
    network.now += 60
    network.dead = set()
    stopped.tick(network.now)
    assert not any(m.is_doubted for m in stopped.by_id.values())


def test_a_node_does_not_hold_its_own_stop_against_one_that_owes_an_answer():
    network = mesh_of(3, timeout=3.0)
    members, owes = network.nodes[0], network.sees(0, 1)
    network.cuts = {(0, 1), (1, 0)}
    while not owes.silent_since:
        network.pass_by(0.1)
    members.meet(Address("10.9.9.9", 1, 2), network.now)
    network.now += 60
    members.tick(network.now)
    assert not owes.is_doubted
    assert sum(member.in_handshake for member in members.by_id.values()) == 1
    network.pass_by(4)  # in which it did listen
    assert owes.is_doubted
    assert not any(member.in_handshake for member in members.by_id.values())


def test_what_one_node_has_forgotten_it_does_not_take_from_those_that_know_it():
    network = mesh_of(3)
    members, gone = network.nodes[0], network.nodes[2]
    members.forget(gone.node_id, network.now)
    hello = Greeting(Kind.PING, 7002, 10002, False, ())
    ends = Ends("10.0.0.0", "10.0.0.2")
    for _ in range(50):
        network.pass_by(1)
        assert gone.node_id not in members.by_id
        assert members.receive(gone.node_id, hello, ends, network.now) is None


def test_a_link_whose_end_is_not_the_member_is_of_no_use():
    network = mesh_of(3)
    members, member = network.nodes[0], network.sees(0, 1)
    members.unlinked(member.node_id, network.now)
    said = len(members.letters)
    assert members.linked(member.node_id, "ef" * 20, network.now) is None
    assert not member.is_linked
    assert member.node_id not in members.reachable
    assert len(members.letters) == said
    assert members.linked(member.node_id, member.node_id, network.now)
    assert member.node_id in members.reachable


def test_a_member_that_is_not_on_disk_gets_no_copies():
    """A start would not know it, nor ask it for anything."""
    network = Network(2)
    network.no_disk.add(0)
    network.meet(0, 1)
    network.pass_by(5)
    first, second = network.nodes
    assert first.others == (second.node_id,)
    assert first.reachable == ()
    assert second.reachable == (first.node_id,)
    network.no_disk.clear()
    network.pass_by(1)
    assert first.reachable == (second.node_id,)


def test_a_forgotten_node_does_not_come_back_by_gossip_for_a_minute():
    network = mesh_of(3)
    gone = network.nodes[2].node_id
    for index in (0, 1):
        network.nodes[index].forget(gone, network.now)
    network.pass_by(50)
    assert gone not in network.nodes[0].by_id
    assert network.nodes[0].size == 2


def test_a_forgotten_node_that_others_know_comes_back_after_a_minute():
    network = mesh_of(3)
    gone = network.nodes[2].node_id
    network.nodes[0].forget(gone, network.now)
    network.pass_by(65)
    assert gone in network.nodes[0].others


def test_a_forgotten_node_may_be_met_again():
    network = mesh_of(2)
    for index in (0, 1):
        network.nodes[index].forget(network.nodes[1 - index].node_id, network.now)
    network.meet(0, 1)
    network.pass_by(1)
    assert network.mesh()


def test_who_is_forgotten_by_one_side_only_may_be_met_again():
    network = mesh_of(2)
    network.nodes[1].forget(network.nodes[0].node_id, network.now)
    network.pass_by(1)
    assert network.nodes[1].others == ()
    network.meet(0, 1)
    network.pass_by(1)
    assert network.nodes[1].others == (network.nodes[0].node_id,)


def test_a_leaving_node_is_sent_no_copies():
    network = mesh_of(3)
    network.nodes[2].leaving = True
    network.pass_by(4)
    assert network.nodes[2].node_id not in network.nodes[0].reachable
    assert network.nodes[2].node_id in network.nodes[0].others
    network.nodes[2].leaving = False
    network.pass_by(4)
    assert network.mesh()


def test_all_hear_at_once_that_a_node_leaves():
    network = mesh_of(7)
    for leaving in (True, False):
        network.nodes[2].leaving = leaving
        network.pass_by(0.3)
        others = [node for node in network.nodes if node is not network.nodes[2]]
        assert {node.by_id[network.nodes[2].node_id].leaving for node in others} == {
            leaving
        }


def test_a_node_that_was_reset_is_alone():
    network = mesh_of(2)
    network.nodes[0].reset("ab" * 20)
    assert network.nodes[0].others == ()
    assert network.nodes[0].node_id == "ab" * 20


def test_another_node_at_the_place_of_a_member_is_not_taken_for_it():
    network = mesh_of(3)
    network.kill(2)
    network.restart(2)
    network.nodes[2].reset("cd" * 20)
    network.pass_by(10)
    member = next(m for m in network.nodes[0].by_id.values() if m.address.port == 7002)
    assert member.is_doubted
    assert "cd" * 20 not in network.nodes[0].by_id


def test_a_member_that_moves_is_found_where_it_says():
    network = mesh_of(2)
    moved = network.nodes[1]
    network.kill(1)
    network.pass_by(5)
    sender, ends = moved.node_id, Ends("10.0.0.0", "10.0.0.77")
    hello = Greeting(Kind.PING, 8001, 18001, False, ())
    network.nodes[0].receive(sender, hello, ends, network.now)
    assert network.sees(0, 1).address == Address("10.0.0.77", 8001, 18001)


def test_a_linked_member_may_take_its_clients_elsewhere():
    network = mesh_of(2)
    sender, ends = network.nodes[1].node_id, Ends("10.0.0.0", "10.6.6.6")
    hello = Greeting(Kind.PING, 8001, 18001, False, ())
    network.nodes[0].receive(sender, hello, ends, network.now)
    assert network.sees(0, 1).address == Address("10.0.0.1", 8001, 10001)


def test_what_strangers_say_changes_nothing():
    network = mesh_of(3)
    members, ends = network.nodes[0], Ends("10.0.0.0", "10.6.6.6")
    before = dict(members.by_id)
    rumour = Rumour("66" * 20, Address("10.6.6.6", 1, 2), False, False)
    said = Greeting(Kind.PING, 1, 2, False, (rumour,))
    assert members.receive("55" * 20, said, ends, network.now).kind is Kind.PONG
    failure = HasFailed(network.nodes[1].node_id)
    assert members.receive("55" * 20, failure, ends, network.now) is None
    assert members.by_id == before
    assert not network.sees(0, 1).failed


def test_rumours_begin_no_more_handshakes_than_may_be():
    network = mesh_of(2)
    members, ends = network.nodes[0], Ends("10.0.0.0", "10.0.0.1")
    for start in range(0, 3000, 100):
        rumours = tuple(
            Rumour(f"{n:040x}", Address("10.1.1.1", n + 1, 2), False, False)
            for n in range(start, start + 100)
        )
        said = Greeting(Kind.PING, 7001, 10001, False, rumours)
        members.receive(network.nodes[1].node_id, said, ends, network.now)
    assert sum(m.in_handshake for m in members.by_id.values()) == 64
    assert members.size == 2


def test_a_report_is_withdrawn_by_who_made_it():
    network = mesh_of(3)
    members, ends = network.nodes[0], Ends("10.0.0.0", "10.0.0.1")
    sender, about = network.nodes[1].node_id, network.sees(0, 2)
    for suspected in (True, False):
        rumour = Rumour(about.node_id, about.address, suspected, False)
        said = Greeting(Kind.PING, 7001, 10001, False, (rumour,))
        members.receive(sender, said, ends, network.now)
        assert bool(about.reports) is suspected


def test_idle_nodes_say_little():
    network = mesh_of(7)
    network.sent = 0
    network.pass_by(60)
    each = 1 + 6 / 1.5  # pings a second: somebody, and all by half the timeout
    assert network.sent <= 7 * 60 * each


def test_a_node_whose_disk_has_less_than_others_remember_is_another():
    network = mesh_of(3)
    before = network.nodes[2].node_id
    network.nodes[2].lines = 50
    network.pass_by(4)
    network.kill(2)
    network.restart(2)
    network.nodes[2].lines = 50  # its own disk
    network.pass_by(4)
    assert not network.nodes[2].is_outdated
    network.kill(2)
    network.restart(2)
    network.nodes[2].lines = 49  # an older copy of it
    network.pass_by(0.3)
    assert network.nodes[2].is_outdated
    network.nodes[2].rename("cd" * 20)
    for members in network.nodes[:2]:
        members.unlinked(before, network.now)  # it has ended all connections
    network.pass_by(4)
    assert not network.nodes[2].is_outdated
    for members in network.nodes[:2]:
        assert "cd" * 20 in members.reachable
        members.forget(before, network.now)
    network.pass_by(1)
    assert network.mesh()


def test_of_a_member_is_said_what_is_the_matter_with_it():
    member = Member("a" * 40, Address("10.0.0.1", 7711, 17711), since=0.0)
    assert flags_of(member) == []
    member.suspected = member.leaving = True
    assert flags_of(member) == ["fail?", "leaving"]
    met = Member("b" * 40, Address("", 7711, 17711), since=0.0, in_handshake=True)
    assert flags_of(met) == ["handshake", "noaddr"]
    met.failed = True
    assert flags_of(met) == ["fail", "handshake", "noaddr"]


def test_what_a_member_says_of_another_that_has_failed_is_taken_and_what_strangers_say_is_not():
    network = Network(3)
    network.meet(0, 1)
    network.meet(1, 2)
    network.pass_by(4)
    first, second, third = network.nodes
    member = first.by_id[third.node_id]
    ends = Ends("10.0.0.1", "10.0.0.0")
    for sender, about in (("ff" * 20, third.node_id), (second.node_id, "ff" * 20)):
        assert first.receive(sender, HasFailed(about), ends, network.now) is None
        assert flags_of(member) == []
    member.suspected = True
    assert flags_of(member) == ["fail?"]
    first.receive(second.node_id, HasFailed(third.node_id), ends, network.now)
    assert flags_of(member) == ["fail"]
    assert third.node_id not in first.reachable


@pytest.mark.parametrize(
    ("facts", "flags"),
    [
        ({}, []),
        ({"suspected": True}, ["fail?"]),
        ({"failed": True}, ["fail"]),
        ({"in_handshake": True}, ["handshake"]),
        ({"address": Address("", 1, 2)}, ["noaddr"]),
        ({"leaving": True}, ["leaving"]),
        ({"failed": True, "leaving": True}, ["fail", "leaving"]),
    ],
)
def test_what_is_said_of_a_member_is_in_the_words_of_disque(facts, flags):
    network = Network(2)
    network.meet(0, 1)
    network.pass_by(1)
    (member,) = network.nodes[0].by_id.values()
    for name, value in facts.items():
        setattr(member, name, value)
    assert flags_of(member) == flags
