"""Who may ask the broker what: roles, and queues of which alone a client may ask."""

from random import Random

import pytest

from rq.access.roles import Principal, Role
from rq.broker.clients.rights import check
from rq.broker.desks.node import Node
from rq.broker.dialects import TABLE
from rq.broker.dialects.call import Call, Refusal

NODE = Node("0" * 40, Random(1))


def refused(principal, *words):
    """Return why a client may not ask this; "" where they may."""
    name, *args = (word.encode() for word in words)
    try:
        check(principal, name, TABLE[name], Call(NODE, 1, args, 0.0, 0))
    except Refusal as error:
        return str(error)
    return ""


def test_who_is_not_let_in_any_more_may_ask_nothing():
    assert refused(None, "QLEN", "mail").startswith("NOAUTH")


@pytest.mark.parametrize(
    ("role", "may"),
    [
        (Role.VIEWER, {"QLEN"}),
        (Role.PRODUCER, {"QLEN", "ADDJOB"}),
        (Role.WORKER, {"QLEN", "GETJOB"}),
        (Role.OPERATOR, {"QLEN", "ADDJOB", "GETJOB", "PAUSE"}),
        (Role.ADMIN, {"QLEN", "ADDJOB", "GETJOB", "PAUSE"}),
    ],
)
def test_each_command_takes_its_role(role, may):
    asked = {
        "QLEN": ["mail"],
        "ADDJOB": ["mail", "x", "0"],
        "GETJOB": ["FROM", "mail"],
        "PAUSE": ["mail", "all"],
    }
    principal = Principal(name="bob", role=role)
    assert {name for name in asked if not refused(principal, name, *asked[name])} == may


@pytest.mark.parametrize("role", [Role.WORKER, Role.ADMIN])
def test_who_is_limited_to_some_queues_asks_of_these_alone(role):
    limited = Principal(name="bob", role=role, queues=("mail-*",))
    assert refused(limited, "QLEN", "mail-in") == ""
    assert refused(limited, "QLEN", "news").endswith("the queue news")
    assert refused(limited, "GETJOB", "FROM", "mail-in", "news").endswith("queue news")
    assert refused(limited, "QSCAN", "0").endswith("does not say of which")


def test_who_may_send_to_a_queue_may_whatever_their_role():
    sender = Principal(name="bob", role=Role.VIEWER, sends=("mail",))
    assert refused(sender, "ADDJOB", "mail", "x", "0") == ""
    assert refused(sender, "ADDJOB", "news", "x", "0")
    assert refused(sender, "GETJOB", "FROM", "mail")
