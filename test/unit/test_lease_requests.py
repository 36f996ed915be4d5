"""Requests for leases that may be asked again are forgotten in their time."""

import weakref
from types import SimpleNamespace

from rq.queues.attempts.lease import CONFIRM
from rq.queues.leases.repeated import Repeated


def test_one_name_that_is_used_for_ever_keeps_no_other_in_memory():
    """A worker may give all its requests one name; others give each another."""
    clock = SimpleNamespace(now=0.0)
    repeated = Repeated(SimpleNamespace(now=lambda: clock.now), read=None)
    grant = SimpleNamespace(token="t", lease=None)
    repeated.keep("constant", "x", [grant])
    for number in range(1000):
        clock.now += CONFIRM / 10
        repeated.keep("constant", "x", [grant])
        repeated.keep("honest", str(number), [grant])
    assert len(repeated) < 50


class Content:
    """A message, large or not."""


def test_no_message_is_kept_for_a_request_that_may_be_asked_again():
    """Large ones would fill the memory for ten seconds."""
    repeated = Repeated(SimpleNamespace(now=lambda: 0.0), read=None)
    kept = weakref.WeakSet()
    for number in range(3):
        message = Content()
        kept.add(message)
        grant = SimpleNamespace(token="t", lease=None, message=message)
        repeated.keep("ann", str(number), [grant])
    del grant, message
    assert (len(repeated), len(kept)) == (3, 0)
