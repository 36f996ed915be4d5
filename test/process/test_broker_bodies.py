"""Large bodies of a broker: each in a file of its own, as long as somebody needs it."""

import pytest
from harness.broker import Refused, broker_in
from harness.waiting import wait_until

pytestmark = pytest.mark.process

LARGE = bytes(range(256)) * 4096  # 1 MiB, and no text


@pytest.fixture
def broker(tmp_path):
    with broker_in(tmp_path / "node", {"TEST_SNAPSHOT": "20000"}) as broker:
        yield broker


def files(broker):
    return sorted((broker.directory / "bodies").iterdir())


def test_a_large_body_of_each_dialect_comes_as_it_was_also_after_a_kill(broker):
    client = broker.start()
    job_id = client.ask("ADDJOB", "q", LARGE, 0).encode()
    pushed = client.ask("RQ.PUSH", "k", "small", LARGE + b"1", b"\xff")
    event_id = client.ask("QADD", "e", 60, LARGE + b"2")
    assert len(files(broker)) == 3
    client = broker.restart()
    assert client.ask("QPEEK", "q", 1) == [[b"q", job_id, LARGE]]
    assert client.ask("GETJOB", "FROM", "q") == [[b"q", job_id, LARGE]]
    bodies = [b"small", LARGE + b"1", b"\xff"]
    got = client.ask("RQ.POP", "COUNT", 9, "k")
    assert got == [[b"k", m, b] for m, b in zip(pushed, bodies, strict=True)]
    assert client.ask("QGET", "e", "g") == [event_id, LARGE + b"2"]
    others = {p for p in broker.directory.rglob("*") if p.is_file()}.difference(
        files(broker)
    )
    assert len(others) > 1
    assert all(LARGE[:256] not in p.read_bytes() for p in others)


def test_who_waits_gets_a_large_body_too(broker):
    client = broker.start()
    waiting = broker.client()
    waiting.send("GETJOB", "FROM", "q")
    wait_until(lambda: b"blocked_clients:1" in client.ask("INFO"))
    job_id = client.ask("ADDJOB", "q", LARGE, 0).encode()
    assert waiting.answer() == [[b"q", job_id, LARGE]]
    assert waiting.ask("ACKJOB", job_id) == 1
    wait_until(lambda: client.ask("ADDJOB", "other", "x", 0) and not files(broker))


def test_a_large_body_of_whoever_hangs_up_before_it_is_read_is_for_the_next_one(
    broker,
):
    client = broker.start()
    job_id = client.ask("ADDJOB", "q", LARGE * 32, 0, "RETRY", 0).encode()
    gone = broker.client()
    assert gone.ask("PING") == "PONG"  # it has come in
    gone.send("GETJOB", "FROM", "q")
    gone.close()
    wait_until(lambda: client.ask("QSTAT", "q")[17])  # jobs that went out
    wait_until(lambda: client.ask("QLEN", "q") == 1)
    [[_, got, body]] = client.ask("GETJOB", "NOHANG", "FROM", "q")
    assert (got, body) == (job_id, LARGE * 32)


def test_a_file_goes_when_its_job_is_gone_and_not_before(broker):
    client = broker.start()
    gone, kept = (client.ask("ADDJOB", "q", LARGE, 0) for _ in range(2))
    client.ask("ACKJOB", gone)
    for _ in range(20):  # a snapshot takes the place of the lines
        client.ask("ACKJOB", client.ask("ADDJOB", "small", "x" * 5000, 0))
    wait_until(lambda: len(files(broker)) == 1)
    client = broker.restart()
    assert client.ask("GETJOB", "FROM", "q") == [[b"q", kept.encode(), LARGE]]
    assert len(files(broker)) == 1


def test_the_file_of_a_body_that_is_refused_goes_at_once(broker):
    client = broker.start()
    assert isinstance(client.ask("ADDJOB", "q", LARGE, 0, "WRONG"), Refused)
    assert isinstance(client.ask("QADD", "e", "never", LARGE), Refused)
    wait_until(lambda: client.ask("PING") and not files(broker))


def used_memory(client):
    return int(
        client.ask("INFO", "memory").decode().partition("used_memory:")[2].split()[0]
    )


def test_bodies_lie_on_disk_while_memory_is_short_and_come_as_they_were(broker):
    client = broker.start()
    client.ask("CONFIG", "SET", "maxmemory", 400_000)
    bodies = [b"%03d" % n + LARGE[:5000] for n in range(60)]
    ids = [client.ask("ADDJOB", "q", body, 0).encode() for body in bodies]
    wait_until(lambda: len(files(broker)) > 0)
    wait_until(lambda: used_memory(client) < 300_000)
    expected = [[b"q", *each] for each in zip(ids, bodies, strict=True)]
    assert client.ask("QPEEK", "q", 60) == expected
    client = broker.restart()
    assert client.ask("GETJOB", "COUNT", 60, "FROM", "q") == expected
    assert client.ask("ACKJOB", *ids) == 60
    wait_until(lambda: not files(broker))


@pytest.mark.parametrize("point", ["body:written", "body:synced", "journal:written"])
def test_a_kill_before_the_line_leaves_no_file(broker, point):
    broker.begin(crash_at=point)
    client = wait_until(broker.client)
    with pytest.raises((EOFError, ConnectionError)):
        client.ask("ADDJOB", "q", LARGE, 0)
    client = broker.start()
    assert client.ask("QLEN", "q") == len(files(broker))
    if point != "journal:written":
        assert files(broker) == []


def test_a_body_that_is_not_what_was_written_is_told_and_the_rest_goes_on(broker):
    client = broker.start()
    client.ask("ADDJOB", "q", LARGE, 0)
    (path,) = files(broker)
    with path.open("r+b") as file:
        file.seek(1000)
        file.write(b"x")
    answer = client.ask("GETJOB", "FROM", "q")
    assert isinstance(answer, Refused)
    assert "is not what was written" in answer
    assert client.ask("PING") == "PONG"


def test_answers_keep_their_order_when_a_body_takes_a_while(broker):
    client = broker.start()
    client.send("ADDJOB", "q", LARGE, 0)
    client.send("PING", "first")
    client.send("GETJOB", "FROM", "q")
    client.send("PING", "second")
    job_id = client.answer().encode()
    assert client.answer() == b"first"
    assert client.answer() == [[b"q", job_id, LARGE]]
    assert client.answer() == b"second"
