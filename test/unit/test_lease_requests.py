"""Requests for leases that may be asked again are forgotten in their time."""

from types import SimpleNamespace

from rq.queues.attempts.lease import CONFIRM
from rq.queues.leases.repeated import Repeated


def test_one_name_that_is_used_for_ever_keeps_no_other_in_memory():
    """A worker may give all its requests one name; others give each another."""
    clock = SimpleNamespace(now=0.0)
    repeated = Repeated(SimpleNamespace(now=lambda: clock.now))
    repeated.keep("constant", "x", [object()])
    for number in range(1000):
        clock.now += CONFIRM / 10
        repeated.keep("constant", "x", [object()])
        repeated.keep("honest", str(number), [object()])
    assert len(repeated) < 50
