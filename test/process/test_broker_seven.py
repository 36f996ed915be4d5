"""Seven nodes: each knows all others, and a job may come in, go out and end at any."""

import threading

import pytest
from harness.brokers import nodes_in
from harness.waiting import wait_until

pytestmark = pytest.mark.process
ALL = range(7)
JOBS = 60


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    """Seven nodes of which each was told of one other."""
    with nodes_in(tmp_path_factory.mktemp("seven"), len(ALL)) as nodes:
        nodes.join()
        yield nodes


def test_a_chain_of_meetings_links_each_to_each(nodes):
    for index in ALL:
        linked = {node: link for node, (_, link) in nodes.rows(index).items()}
        assert linked == dict.fromkeys(nodes.ids, "connected")


@pytest.mark.parametrize("index", ALL)
def test_any_node_takes_any_hands_out_and_any_hears_that_it_is_done(nodes, index):
    queue = f"any{index}"
    job_id = nodes.ask(index, "ADDJOB", queue, "body", 9000, "REPLICATE", 3)
    assert len(nodes.holders(job_id)) >= 3
    get = "GETJOB", "TIMEOUT", 15_000, "FROM", queue
    (job,) = nodes.ask((index + 3) % len(ALL), *get)
    assert job == [queue.encode(), job_id.encode(), b"body"]
    nodes.ask((index + 5) % len(ALL), "ACKJOB", job_id)
    wait_until(lambda: not nodes.holders(job_id))


def test_copies_of_many_jobs_are_gone_after_they_are_done(nodes):
    job_ids = [
        nodes.ask(n % len(ALL), "ADDJOB", "many", n, 9000, "REPLICATE", 3)
        for n in range(JOBS)
    ]
    for n, job_id in enumerate(job_ids):
        nodes.ask((n + 2) % len(ALL), "ACKJOB", job_id)
    wait_until(lambda: nodes.registered() == [0] * len(ALL))
    assert [nodes.ask(index, "QLEN", "many") for index in ALL] == [0] * len(ALL)


def test_jobs_go_to_the_nodes_where_consumers_wait(nodes):
    """Added at four nodes, and taken at two others, each once."""
    got: list[bytes] = []
    consumers = [Consumer(nodes, index, got) for index in (5, 6)]
    for n in range(JOBS):
        nodes.ask(n % 4, "ADDJOB", "far", n, 9000, "REPLICATE", 2, "RETRY", 60)
    try:
        wait_until(lambda: len(got) >= JOBS, 60)
    finally:
        for consumer in consumers:
            consumer.end()
    assert sorted(map(int, got)) == list(range(JOBS))
    wait_until(lambda: nodes.registered() == [0] * len(ALL))


class Consumer:
    """Takes jobs of a node, and says there that they are done."""

    def __init__(self, nodes, index, got):
        self._client = nodes.brokers[index].client()
        self._got = got
        self._is_over = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        while not self._is_over:
            words = "GETJOB", "TIMEOUT", 300, "COUNT", 5, "FROM", "far"
            for _, job_id, body in self._client.ask(*words) or []:
                self._got.append(body)
                self._client.ask("ACKJOB", job_id)

    def end(self):
        self._is_over = True
        self._thread.join(30)
