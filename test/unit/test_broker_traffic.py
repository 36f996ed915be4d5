"""What is told of comings and goings: exact sums, bounded memory."""

from random import Random

from rq.broker.desks.node import Node
from rq.broker.state import reliable
from rq.broker.state.traffic import MINUTES, MOST


def node_at_work():
    return Node("ab" * 20, Random(1))


def add(node, queue, now):
    fields = {"ttl": 86400, "delay": 0, "retry": 300}
    added = node.desk.new(queue, b"x", now=now, wall_ms=int(now * 1000), **fields)
    node.emit(added, now)
    return added.job


def test_minutes_hold_what_came_and_was_handed_out_and_what_waited():
    node = node_at_work()
    start = 600_000.0
    for number in range(10):
        add(node, b"q", start + number)
    queue = node.jobs.queues[b"q"]
    node.desk.give(queue, 1, start + 65)
    node.desk.give(queue, 1, start + 66)
    flow = node.traffic.of(("disque", b"q"), start + 190)
    assert (flow.came, flow.went) == (10, 2)
    assert list(flow.came_each[-4:]) == [10, 0, 0, 0]
    assert list(flow.went_each[-4:]) == [0, 2, 0, 0]
    assert list(flow.depths[-4:-1]) == [10, 8, 8]
    later = node.traffic.of(("disque", b"q"), start + 60 * MINUTES + 190)
    assert sum(later.came_each) == sum(later.went_each) == 0
    assert set(later.depths) == {8}
    assert (later.came, later.went) == (10, 2)


def test_a_rate_is_of_the_last_seconds():
    node = node_at_work()
    for tenth in range(200):
        add(node, b"q", 1000.0 + tenth / 10)
    rates = node.traffic.of(("disque", b"q"), 1019.9).rates(1019.9)
    assert 9 <= rates[0] <= 11
    assert rates[1] == 0
    assert node.traffic.of(("disque", b"q"), 1040.0).rates(1040.0) == (0, 0)


def test_as_many_queues_as_clients_like_take_no_more_memory():
    node = node_at_work()
    for number in range(3 * MOST):
        add(node, b"q%d" % number, 1000.0 + number)
    now = 1000.0 + 4 * MOST
    node.emit(reliable.Pushed(b"list", ["1-1", "1-2"], [b"a", b"b"]), now)
    node.emit(reliable.Popped(b"list", ["1-1"], [1], now), now)
    assert sum(map(len, node.traffic._flows.values())) <= 2 * MOST + 1
    assert (node.traffic.came, node.traffic.went) == (3 * MOST + 2, 1)
    newest = node.traffic.of(("disque", b"q%d" % (3 * MOST - 1)), now)
    oldest = node.traffic.of(("disque", b"q0"), now)
    assert (newest.came, oldest.came) == (1, 0)
