"""Clients of the broker send to a queue of RQ and work on it, while the broker and the queue's
owner are killed again and again."""

import threading
import time
from collections import Counter

import pytest
from harness.broker import Client, Simple, broker_in
from harness.queues import SETTINGS, running_queue
from harness.waiting import wait_until

pytestmark = pytest.mark.process
ROUNDS = 6
HUNG_UP = (OSError, EOFError)


class Worker(threading.Thread):
    """A client that connects again whenever the broker has hung up."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port = port
        self.ended = threading.Event()
        self.bodies = []

    def run(self):
        client = None
        while not self.ended.is_set():
            try:
                client = client or Client(self.port)
                self.work(client)
            except HUNG_UP:
                if client is not None:
                    client.close()
                client = None
                time.sleep(0.02)
        if client is not None:
            client.close()

    def end(self):
        self.ended.set()
        self.join(60)
        assert not self.is_alive()


class Producer(Worker):
    """Keeps the bodies of the messages that were accepted."""

    number = 0

    def work(self, client):
        self.number += 1
        answer = client.ask("ADDJOB", "rq:p", self.number, 0, "RETRY", 1)
        if isinstance(answer, Simple):
            self.bodies.append(str(self.number))


class Consumer(Worker):
    """Keeps the bodies of the messages that it is done with."""

    def work(self, client):
        jobs = client.ask("GETJOB", "TIMEOUT", 100, "COUNT", 5, "FROM", "rq:p")
        for _, job_id, body in jobs if isinstance(jobs, list) else ():
            if client.ask("ACKJOB", job_id) == 1:
                self.bodies.append(body.decode())


@pytest.mark.slow
def test_kills_lose_nothing_and_end_nothing_twice(tmp_path):
    with (
        broker_in(tmp_path, main=SETTINGS) as broker,
        running_queue(tmp_path, name="p", num_workers=0, pull={"seconds": 1}) as queue,
    ):
        broker.start()
        producer, consumer = Producer(broker.port), Consumer(broker.port)
        producer.start()
        consumer.start()
        for _ in range(ROUNDS):
            time.sleep(0.3)
            broker.kill()
            broker.begin()
            time.sleep(0.3)
            queue.crash()
            queue.start()
        wait_until(lambda: len(producer.bodies) > ROUNDS)
        producer.end()
        wait_until(lambda: _is_empty(queue))
        consumer.end()
        done = Counter(
            row["param1"]
            for row in queue.ok("list", {"state": "done", "limit": 10_000})
        )
        assert set(producer.bodies) <= done.keys()
        assert set(consumer.bodies) <= done.keys()
        assert set(done.values()) == {1}
        assert set(Counter(consumer.bodies).values()) == {1}


def _is_empty(queue):
    counts = queue.ask("num_messages")
    return not counts["que"] and not counts["run"]
