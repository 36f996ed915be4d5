"""A node that all are told to forget, and who may say so."""

from harness.members_network import mesh_of

from rq.broker.cluster.gossip import Ends, Forget

NOWHERE = Ends("", "")


def tell(network, index, to, node_id):
    """Let a node say to others that one is to be forgotten."""
    members = network.nodes[index]
    letters = [(network.nodes[n].node_id, Forget(node_id, False)) for n in to]
    members.letters += letters
    network.pass_by(0.5)


def test_a_member_forgets_who_it_is_told_to_and_says_so():
    network = mesh_of(4)
    gone = network.nodes[3].node_id
    tell(network, 0, [1, 2], gone)
    for index in (1, 2):
        assert gone not in network.nodes[index].by_id
        assert (network.nodes[index].node_id, gone) in network.nodes[0].forgotten
    network.nodes[0].forget(gone, network.now)
    network.pass_by(50)  # nobody's gossip brings it back
    assert all(gone not in network.nodes[n].by_id for n in range(3))


def test_the_one_that_is_forgotten_is_alone_and_may_be_met_again():
    network = mesh_of(3)
    gone = network.nodes[2]
    tell(network, 0, [1, 2], gone.node_id)
    network.nodes[0].forget(gone.node_id, network.now)
    assert gone.by_id == {}
    assert gone.changed
    network.pass_by(2)
    assert gone.by_id == {}
    network.meet(0, 2)
    network.pass_by(2)
    assert network.sees(0, 2).is_linked


def test_a_stranger_lets_nobody_be_forgotten():
    network = mesh_of(3)
    members, other = network.nodes[0], network.nodes[1].node_id
    said = members.receive("f" * 40, Forget(other, False), NOWHERE, network.now)
    assert said is None
    assert other in members.by_id
    members.receive("f" * 40, Forget(other, True), NOWHERE, network.now)
    assert members.forgotten == set()
