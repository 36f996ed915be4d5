"""Which connection goes when one more than may be has come."""

import resource

import pytest

from rq.access.connection_limits import ConnectionLimits
from rq.access.roles import Principal, Role
from rq.access.sockets import Asker
from rq.proc.peers import Peer

OWN, ANN, BOB = 0, 1001, 1002


def asker(uid):
    principal = Principal(name=str(uid), role=Role.VIEWER)
    return Asker(principal, Peer(1, uid, uid), uid == OWN)


def with_connections(*uids):
    limits = ConnectionLimits(10)  # of these 8 are for others, 2 for each of them
    for uid in uids:
        limits.add(asker(uid))
    return limits


@pytest.mark.parametrize(
    ("uids", "newest", "most", "goes"),
    [
        ([ANN] * 2, ANN, None, set()),
        ([ANN] * 3, ANN, 2, {ANN}),
        ([ANN] * 3, BOB, None, set()),
        ([*range(2000, 2008)], 2007, None, set()),
        ([*range(2000, 2009)], 2008, 8, {ANN, BOB}),
        ([OWN] * 10, OWN, None, set()),
        ([OWN] * 11, OWN, 10, {OWN, ANN, BOB}),
        ([*[OWN] * 10, ANN], ANN, 10, {ANN, BOB}),
    ],
)
def test_who_has_too_many_gives_one_back_and_rq_itself_only_to_itself(
    uids, newest, most, goes
):
    excess = with_connections(*uids).excess(asker(newest))
    assert (excess and excess[0]) == most
    if excess is not None:
        assert {uid for uid in (OWN, ANN, BOB) if excess[1](asker(uid))} == goes


def test_a_connection_that_has_ended_counts_no_more():
    limits = with_connections(*[ANN] * 3, *[OWN] * 7)
    limits.remove(asker(ANN))
    assert limits.excess(asker(ANN)) is None
    limits.remove(asker(OWN))
    for _ in range(2):
        limits.add(asker(OWN))
    assert limits.excess(asker(OWN)) is None, "ten of ten"
    limits.add(asker(OWN))
    assert limits.excess(asker(OWN)) is not None


def test_a_user_who_has_ended_some_connections_may_have_as_many_again():
    limits = with_connections(*[ANN] * 4)
    for _ in range(2):
        limits.remove(asker(ANN))
    assert limits.excess(asker(ANN)) is None
    limits.add(asker(ANN))
    assert limits.excess(asker(ANN)) is not None


@pytest.mark.parametrize(("descriptors", "most"), [(64, 32), (65, 32), (10_000, 100)])
def test_there_are_no_more_connections_than_half_of_what_may_be_open(descriptors, most):
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, before[1]))
    try:
        limits = ConnectionLimits(100)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    for _ in range(most):
        limits.add(asker(OWN))
    assert limits.excess(asker(OWN)) is None
    limits.add(asker(OWN))
    assert limits.excess(asker(OWN))[0] == most
