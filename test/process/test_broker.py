"""A broker as a process: what its clients see, and what a kill -9 leaves."""

import contextlib
import json
import os
import socket
import time

import pytest
from harness.broker import Broker, Client, Refused, Simple, broker_in, command
from harness.processes import acting_as, only_root, open_to_others
from harness.waiting import wait_until

pytestmark = pytest.mark.process


@pytest.fixture
def broker(tmp_path):
    with broker_in(tmp_path / "node") as broker:
        yield broker


def add(client, *options, queue="q", body="b"):
    job_id = client.ask("ADDJOB", queue, body, 0, *options)
    assert isinstance(job_id, Simple), job_id
    return job_id.encode()


def ids(jobs):
    return [job_id for _, job_id, _ in jobs or ()]


def test_a_job_goes_from_a_producer_to_a_consumer(broker):
    client = broker.start()
    job_id = add(client, body=b"\0\xff\r\n")
    assert client.ask("QLEN", "q") == 1
    assert client.ask("GETJOB", "FROM", "q") == [[b"q", job_id, b"\0\xff\r\n"]]
    assert client.ask("ACKJOB", job_id) == 1
    assert client.ask("SHOW", job_id) is None


def test_what_was_answered_is_there_after_a_kill_and_what_is_done_is_not(broker):
    client = broker.start()
    done, held, waits = (add(client) for _ in range(3))
    once, given_once = add(client, "RETRY", 0, queue="o"), add(client, "RETRY", 0)
    late = add(client, "DELAY", 3000, queue="late")
    assert ids(client.ask("GETJOB", "COUNT", 2, "FROM", "q")) == [done, held]
    client.ask("ACKJOB", done)
    assert client.ask("DEQUEUE", waits) == client.ask("ENQUEUE", waits) == 1
    assert ids(client.ask("GETJOB", "COUNT", 9, "FROM", "q")) == [waits, given_once]
    assert client.ask("NACK", waits) == 1
    assert client.ask("PAUSE", "p", "in") == "in"
    client = broker.restart()
    assert client.ask("JSCAN")[1] == [held.decode(), waits.decode()] + [
        each.decode() for each in (once, given_once, late)
    ]
    shown = client.ask("SHOW", waits)
    assert dict(zip(shown[::2], shown[1::2], strict=True))[b"nacks"] == 1
    assert client.ask("PAUSE", "p", "state") == "in"
    assert ids(client.ask("GETJOB", "NOHANG", "COUNT", 9, "FROM", "q")) == [waits]
    assert ids(client.ask("GETJOB", "NOHANG", "FROM", "o")) == [once]
    assert client.ask("ENQUEUE", given_once) == 0
    assert client.ask("GETJOB", "NOHANG", "FROM", "late") is None


def test_the_other_dialects_keep_what_they_answered_too(broker):
    client = broker.start()
    first, second = client.ask("RQ.PUSH", "k", "one", b"\xfftwo")
    event_id = client.ask("QADD", "e", 60, b"\xff")
    assert client.ask("RQ.POP", "k") == [[b"k", first, b"one"]]
    assert client.ask("QGET", "e", "g", "EX", 60) == [event_id, b"\xff"]
    client = broker.restart()
    assert client.ask("RQ.INFO", "k") == [b"undelivered", 1, b"delivered", 1]
    assert client.ask("RQ.ACK", "k", first, second) == [first]
    assert client.ask("RQ.POP", "k") == [[b"k", second, b"\xfftwo"]]
    assert client.ask("QGET", "e", "g") is None
    assert client.ask("QACK", "e", "g", event_id) == 1
    client = broker.restart()
    assert client.ask("QGET", "e", "g") is None
    assert client.ask("QGET", "e", "new") == [event_id, b"\xff"]


POINTS = ("journal:before-write", "journal:written")


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_within_a_group_leaves_all_of_a_push_or_nothing(broker, point):
    client = broker.start()
    kept = client.ask("RQ.PUSH", "k", "kept")
    broker.kill()
    broker.begin(crash_at=point)
    client = wait_until(broker.client)
    with pytest.raises((EOFError, ConnectionError)):
        client.ask("RQ.PUSH", "k", *(f"new{n}" for n in range(50)))
    client = broker.start()
    waiting = client.ask("RQ.INFO", "k")[1]
    assert waiting in (1, 51)
    assert client.ask("RQ.POP", "k")[0][1:] == [*kept, b"kept"]


def test_no_client_is_answered_before_what_it_hears_is_durable(broker):
    """The process is killed when a group is written and before it is synced: nobody may
    have heard of it."""
    client = broker.start()
    add(client)
    broker.kill()
    broker.begin(crash_at="journal:written")
    client = wait_until(broker.client)
    client.send("ADDJOB", "q", "x", 0)
    with pytest.raises((EOFError, ConnectionError)):
        client.answer()


def test_many_commands_in_one_packet_are_answered_in_their_order(broker):
    client = broker.start()
    client.socket.sendall(
        b"".join(command("RQ.PUSH", "k", n) + command("PING", n) for n in range(2000))
    )
    answers = [client.answer() for _ in range(4000)]
    assert answers[1::2] == [str(n).encode() for n in range(2000)]
    pushed = [pushed for (pushed,) in answers[::2]]
    got = client.ask("RQ.POP", "COUNT", 5000, "k")
    assert [(msg_id, body) for _, msg_id, body in got] == [
        (msg_id, str(n).encode()) for n, msg_id in enumerate(pushed)
    ]


def test_who_waits_is_answered_and_what_it_sent_meanwhile_after_that(broker):
    client = broker.start()
    client.socket.sendall(command("GETJOB", "FROM", "q") + command("PING", "later"))
    other = broker.client()
    wait_until(lambda: b"blocked_clients:1" in other.ask("INFO"))
    job_id = add(other)
    assert client.answer() == [[b"q", job_id, b"b"]]
    assert client.answer() == b"later"


def test_a_job_for_a_client_that_hung_up_is_for_the_next_one(broker):
    broker.start()
    for _ in range(5):
        gone = Client(broker.port)
        gone.send("GETJOB", "FROM", "q")
        gone.close()
    client = broker.client()
    job_id = add(client, "RETRY", 0)
    wait_until(lambda: client.ask("QLEN", "q") == 1)
    assert ids(client.ask("GETJOB", "NOHANG", "FROM", "q")) == [job_id]


def test_a_job_for_a_client_that_is_sent_away_goes_to_the_next_one_alone(broker):
    client = broker.start()
    waits = [broker.client() for _ in range(3)]
    first = waits[0].ask("CLIENT", "ID")
    for number, each in enumerate(waits, 1):
        each.send("GETJOB", "FROM", "q")
        wait_until(
            lambda past=number: b"blocked_clients:%d" % past in client.ask("INFO")
        )
    client.socket.sendall(
        command("ADDJOB", "q", "b", 0, "RETRY", 0)
        + command("CLIENT", "KILL", "ID", first)
    )
    job_id = client.answer().encode()
    assert client.answer() == 1
    assert ids(waits[1].answer()) == [job_id]
    later = add(client)
    assert ids(waits[2].answer()) == [later]


def test_modern_clients_shake_hands(broker):
    client = broker.start()
    assert client.ask("HELLO", 3, "SETNAME", "me")[b"proto"] == 3
    client.send("GETJOB", "NOHANG", "FROM", "q")
    assert client.socket.recv(10) == b"_\r\n"
    assert client.ask("CLIENT", "GETNAME") == b"me"
    assert client.ask("HELLO", 4).startswith("NOPROTO")
    assert client.ask("CLIENT", "SETINFO", "LIB-NAME", "x") == "OK"
    one, node_id, node = client.ask("HELLO")
    assert (one, node[0], node[2]) == (1, node_id, str(broker.port).encode())


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("WHAT", "x"), "ERR unknown command 'WHAT'"),
        (("Qlen",), "ERR wrong number of arguments for 'qlen' command"),
        (("CONFIG", "SET", "dir", "/"), "ERR Unsupported CONFIG parameter: dir"),
        (("DEBUG", "SEGFAULT"), "ERR Unknown DEBUG subcommand"),
        (("DEBUG", "ERROR", "MY text"), "MY text"),
        (("AUTH", "x"), "ERR Client sent AUTH, but no password is set"),
        (("INFO", "a", "b"), "ERR syntax error"),
    ],
)
def test_commands_that_cannot_be_obeyed_say_why(broker, words, why):
    answer = broker.start().ask(*words)
    assert isinstance(answer, Refused)
    assert answer.startswith(why)


def test_a_browser_finds_no_door(broker):
    broker.start()
    sock = socket.create_connection(("127.0.0.1", broker.port), timeout=10)
    with sock:
        sock.sendall(b"POST / HTTP/1.1\r\nHost: x\r\n\r\nADDJOB q evil 0\r\n")
        assert sock.recv(100) == b""
    assert broker.client().ask("QLEN", "q") == 0


def test_what_is_no_command_is_told_and_ends_the_connection(broker):
    client = broker.start()
    client.socket.sendall(b"PING\r\n*1\r\n$x\r\nADDJOB q evil 0\r\n")
    assert client.answer() == "PONG"
    assert client.answer() == "ERR Protocol error: invalid bulk length"
    with pytest.raises(EOFError):
        client.answer()


def test_words_and_bodies_that_are_too_long_have_errors_of_their_own(broker):
    client = broker.start()
    client.send("ADDJOB", "q" * 1025, "x", 0)
    client.send("RQ.PUSH", "k", "small", bytes(64 * 1024 * 1024 + 1))
    client.send("ADDJOB", "q" * 1024, "x" * 1025, 0)
    assert client.answer() == "ERR a name or a number has at most 1024 bytes"
    assert client.answer() == "ERR a body has at most 67108864 bytes"
    assert client.answer().startswith("D-")
    assert isinstance(client.ask("RQ.INFO", "k"), Refused)


def test_who_reads_no_answers_takes_no_memory(broker):
    client = broker.start()
    add(client, body="x" * 1_000_000)
    reader = broker.client()
    reader.socket.settimeout(0.5)
    asks = command("QPEEK", "q", 1) * 1000
    with contextlib.suppress(TimeoutError, ConnectionError):
        for _ in range(1000):
            reader.socket.sendall(asks)
    assert _memory(broker) < 300 * 1024 * 1024


def _memory(broker):
    status = (f"/proc/{broker.process.pid}/status",)
    with open(*status) as file:
        lines = dict(line.split(":", 1) for line in file)
    return int(lines["VmRSS"].split()[0]) * 1024


@only_root
def test_another_user_needs_a_password(broker, tmp_path):
    broker.start()
    open_to_others(tmp_path)
    with acting_as(65534, 65534):
        stranger = Client(broker.port)
    assert stranger.ask("PING").startswith("NOAUTH")
    assert stranger.ask("ADDJOB", "q", "x", 0).startswith("NOAUTH")
    stranger.close()


def test_a_clean_stop_keeps_all_and_a_second_broker_is_refused(broker, tmp_path):
    client = broker.start()
    job_id = add(client)
    second = Broker(broker.directory)
    second.begin()
    assert second.process.wait(20) == 1
    assert broker.stop() == 0
    client = broker.start()
    assert ids(client.ask("GETJOB", "FROM", "q")) == [job_id]


@pytest.mark.slow
def test_a_snapshot_lets_the_journal_go_and_keeps_what_lives(broker):
    client = broker.start()
    kept = [add(client, body=f"kept{n}") for n in range(300)]
    pushed = client.ask("RQ.PUSH", "k", *range(300))
    body = "x" * 100_000
    for _ in range(8):
        added = [command("ADDJOB", "big", body, 0) for _ in range(100)]
        client.socket.sendall(b"".join(added))
        done = [client.answer() for _ in range(100)]
        assert client.ask("ACKJOB", *done) == 100
    wait_until(lambda: b"snapshots:1" in client.ask("INFO", "persistence"))
    history = broker.directory / "history"
    size = lambda: sum(p.stat().st_size for p in history.rglob("*.jsonl"))  # noqa: E731
    wait_until(lambda: add(client) and size() < 70_000_000)
    client = broker.restart()
    got = ids(client.ask("GETJOB", "COUNT", 300, "FROM", "q"))
    assert got == kept
    popped = client.ask("RQ.POP", "COUNT", 999, "k")
    assert [msg_id for _, msg_id, _ in popped] == pushed


def test_its_files_are_its_own(broker):
    add(broker.start())
    for path in broker.directory.rglob("*"):
        assert path.stat().st_mode & 0o007 == 0, path
    header = (
        next((broker.directory / "journal").glob("0*")).read_bytes().split(b"\n")[0]
    )
    assert json.loads(header)["broker"] == "node"
    assert os.listdir(broker.directory)


def test_an_idle_broker_does_nothing(broker):
    broker.start()
    add(broker.client(), "DELAY", 3000)
    before = _cpu(broker)
    time.sleep(1.0)
    assert _cpu(broker) - before <= 2


def _cpu(broker):
    with open(f"/proc/{broker.process.pid}/stat") as file:
        words = file.read().rpartition(")")[2].split()
    return int(words[11]) + int(words[12])  # hundredths of a second
