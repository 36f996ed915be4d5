"""Crowds of clients that wait at many queues: each is served once, in its order, and what
they leave behind is cleared in slices."""

from harness.broker_cluster import Cluster
from harness.broker_node import Run

from rq.broker.dialects.call import Blocked
from rq.broker.state import ids
from rq.broker.state import waiters as waiters_module

QUEUES = [f"q{number}" for number in range(1000)]
CROWD = range(10, 60)


def tick_until_still(run):
    """Tick as long as there is something to do now; return how often."""
    ticks = 0
    while (at := run.node.next_tick()) is not None and at <= run.now:
        run.pass_by(0.0)
        ticks += 1
        assert ticks < 10_000
    return ticks


def is_clear(waiters):
    return not waiters.queues() and not waiters.is_clearing and not waiters._places


def test_a_crowd_at_many_queues_is_answered_at_once_and_cleared_in_slices():
    run = Run()
    run.ask("PAUSE", "q7", "out")
    for client in CROWD:
        run.ask("ADDJOB", "q7", client, 0)
        words = "GETJOB", "TIMEOUT", 0, "FROM", *QUEUES
        assert isinstance(run.ask(*words, client=client), Blocked)
    run.ask("PAUSE", "q7", "none")
    assert [client for client, _ in run.answers()] == list(CROWD)
    assert len(run.node.desk.waiters) == 0
    assert tick_until_still(run) >= len(CROWD) * len(QUEUES) / 5000
    assert is_clear(run.node.desk.waiters)


def test_whose_time_is_over_and_who_hung_up_leave_nothing_in_any_dialect():
    for words in (
        ("GETJOB", "TIMEOUT", 5000, "FROM", *QUEUES),
        ("RQ.POP", "BLOCK", 5000, *QUEUES),
        ("QNOTIFY", "g", 5, *QUEUES),
    ):
        run = Run()
        node = run.node
        mine = {
            "GETJOB": node.desk.waiters,
            "RQ.POP": node.messages.waiters,
            "QNOTIFY": node.consumers.waiters,
        }[words[0]]
        for client in CROWD:
            assert isinstance(run.ask(*words, client=client), Blocked)
        for client in CROWD[:20]:
            node.hung_up(client, run.now)
        assert mine.is_clearing
        run.pass_by(6)
        tick_until_still(run)
        assert sorted(client for client, _ in run.answers()) == list(CROWD[20:])
        assert is_clear(mine)
        assert not node.consumers.waiters.groups_at(b"q7")


def test_a_client_that_waits_again_before_its_old_places_are_cleared_is_served():
    run = Run()
    words = "GETJOB", "TIMEOUT", 0, "FROM", *QUEUES
    run.ask(*words, client=3)
    run.ask("ADDJOB", "q999", "one", 0)
    assert run.node.desk.waiters.is_clearing
    run.ask(*words, client=3)
    tick_until_still(run)
    assert run.node.desk.waiters.count(b"q5") == 1
    run.ask("ADDJOB", "q5", "two", 0)
    bodies = [value[0][2] for _, value in run.answers()]
    assert bodies == [b"one", b"two"]


def test_who_is_cleared_is_passed_over_and_the_next_one_served():
    run = Run()
    for client in (3, 4):
        run.ask("GETJOB", "TIMEOUT", 0, "FROM", *QUEUES, client=client)
    run.ask("ADDJOB", "q1", "one", 0)
    run.ask("ADDJOB", "q2", "two", 0)
    assert [client for client, _ in run.answers()] == [3, 4]


def test_all_clients_together_wait_at_so_many_queues_and_at_few_always(monkeypatch):
    monkeypatch.setattr(waiters_module, "MOST_PLACES", 1500)
    run = Run()
    for words in (
        ("GETJOB", "TIMEOUT", 0, "FROM"),
        ("RQ.POP", "BLOCK", -1),
        ("QNOTIFY", "g", 50),
    ):
        assert isinstance(run.ask(*words, *QUEUES, client=3), Blocked)
        refused = run.ask(*words, *QUEUES, client=4)
        assert refused.text.startswith("ERR clients wait at too many queues"), refused
        assert isinstance(run.ask(*words, *QUEUES[:3], client=5), Blocked)
        run.node.hung_up(3, run.now)
        tick_until_still(run)
        assert isinstance(run.ask(*words, *QUEUES, client=4), Blocked)


def test_an_event_for_thousands_of_groups_goes_out_in_slices_and_to_each_once():
    run = Run()
    clients = range(10, 3010)
    for client in clients:
        run.ask("QGET", "q", f"g{client}", "BLOCK", 60, client=client)
    run.ask("QADD", "q", 60, "x")
    at_once = [client for client, _ in run.answers()]
    assert at_once == list(clients[: len(at_once)])
    assert len(at_once) < len(clients)
    tick_until_still(run)
    assert at_once + [client for client, _ in run.answers()] == list(clients)


def test_who_pops_does_not_overtake_a_crowd_that_is_being_served():
    run = Run()
    clients = range(10, 3510)
    for client in clients:
        run.ask("RQ.POP", "BLOCK", -1, "k", client=client)
    run.ask("RQ.PUSH", "k", *range(3600))
    assert run.ask("RQ.POP", "COUNT", 5000, "k", client=3) == []
    tick_until_still(run)
    assert [client for client, _ in run.answers()] == list(clients)
    assert len(run.ask("RQ.POP", "COUNT", 5000, "k", client=3)) == 100


def test_names_that_consumers_make_up_keep_no_producer_out():
    run = Run()
    run.node.memory.limit = 4_000_000
    for number in range(10):
        names = [f"{number}.{each}" for each in range(1000)]
        words = "GETJOB", "TIMEOUT", 0, "FROM", *names
        assert isinstance(run.ask(*words, client=10 + number), Blocked)
    assert run.node.memory_level == 0
    run.ask("ADDJOB", "9.999", "one", 0)
    ((client, _),) = run.answers()
    assert client == 19


def unknown(number):
    return ids.job_id("ab" * 20, number.to_bytes(18, "big"), 86_400, 300)


def test_acknowledgements_of_unknown_jobs_do_not_grow_beyond_memory():
    cluster = Cluster(2)
    cluster.kill(1)  # and while it is away no node can say that they are of no use
    cluster.nodes[0].memory.limit = 100_000
    for number in range(1000):
        cluster.ask(0, "ACKJOB", unknown(number))
    assert 0 < len(cluster.nodes[0].jobs.spreads.bare) <= 200
