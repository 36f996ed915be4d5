"""No client holds a broker's loop for long, whatever it sends."""

import resource
import threading

import pytest
from harness.broker import Client, broker_in, command
from harness.waiting import wait_until

from rq.proc import descriptors, turnlimit

pytestmark = pytest.mark.process
# Seconds of processor time: thrice what is promised, for a busy machine takes more of it.
LIMIT = 0.15
CROWD = 2_000
TOO_MANY = "ERR a command has at most 16384 words: send several"


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    env = {turnlimit.LIMIT: str(LIMIT)}
    with broker_in(tmp_path_factory.mktemp("broker") / "node", env) as broker:
        broker.start().close()
        yield broker


@pytest.fixture
def client(shared):
    client = Client(shared.port)
    yield client
    client.close()


def held(broker):
    return [line for line in broker.told().splitlines() if turnlimit.HELD in line]


@pytest.mark.parametrize(
    "words",
    [
        ("ACKJOB", *["D-00000000-" + "a" * 24 + "-05a1"] * 16_384),
        ("RQ.ACK", "k", *range(100_000)),
        ("QSTATUS", "q", "GROUPS", *range(100_000)),
        ("HELLO", 3, *["SETNAME", "x"] * 50_000),
        ("NONSENSE", *"x" * 100_000),
    ],
    ids=lambda words: words[0],
)
def test_a_command_of_too_many_words_is_read_to_its_end_and_refused(
    shared, client, words
):
    assert client.ask(*words) == TOO_MANY
    assert client.ask("PING") == "PONG"
    assert held(shared) == []


def test_a_line_of_too_many_words_is_refused(client):
    client.socket.sendall(b"PING" + b" x" * 16_384 + b"\n")
    assert client.answer() == TOO_MANY
    assert client.ask("PING") == "PONG"


def test_as_many_words_as_may_be_hold_nobody_up(shared, client):
    bodies = ["body"] * 5_000
    ids = client.ask("RQ.PUSH", "k", *bodies)
    assert len(client.ask("RQ.POP", "COUNT", len(ids), "k")) == len(ids)
    assert client.ask("RQ.ACK", "k", *ids) == ids
    client.socket.sendall(command("ADDJOB", "q", "x", 0) * 5_000)
    jobs = [client.answer() for _ in bodies]
    for name in ("DEQUEUE", "ENQUEUE"):
        assert client.ask(name, *jobs[:2_000]) == 2_000
    assert len(client.ask("JSCAN", "BUSYLOOP", "REPLY", "all")[1]) == 1_000
    assert client.ask("ACKJOB", *jobs) == 5_000
    assert client.ask("QGET", "q", "g", *["EX", 1] * 8_000) is None
    assert client.ask("HELLO", 3, *["SETNAME", "x"] * 8_000)[b"proto"] == 3
    assert held(shared) == []


@pytest.mark.slow
def test_many_clients_with_many_commands_each_take_turns(shared):
    packet = command("QSCAN", *["COUNT", 5] * 200) * 250
    crowd = [Client(shared.port) for _ in range(20)]
    senders = [
        threading.Thread(target=each.socket.sendall, args=(packet,)) for each in crowd
    ]
    for sender in senders:
        sender.start()
    for sender, each in zip(senders, crowd, strict=True):
        for _ in range(250):
            assert each.answer()[0] == b"0"
        sender.join()
        each.close()
    assert held(shared) == []


@pytest.fixture
def crowd(shared):
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    descriptors.raise_descriptor_limit()
    crowd = [Client(shared.port) for _ in range(CROWD)]
    yield crowd
    for each in crowd:
        each.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_crowd_that_waits_is_served_in_its_order_and_holds_nobody_up(
    shared, client, crowd
):
    for number, each in enumerate(crowd):
        each.send("RQ.POP", "BLOCK", -1, "crowded")
        if number % 100 == 0:  # they come in this order
            wait_until(lambda past=number: blocked(client) > past)
    wait_until(lambda: blocked(client) == CROWD)
    bodies = [b"%d" % number for number in range(CROWD)]
    ids = client.ask("RQ.PUSH", "crowded", *bodies)
    for msg_id, body, each in zip(ids, bodies, crowd, strict=True):
        assert each.answer() == [[b"crowded", msg_id, body]]
    assert client.ask("RQ.ACK", "crowded", *ids) == ids
    assert held(shared) == []


def test_a_password_is_asked_of_a_crowd_at_once_and_holds_nobody_up(
    shared, client, crowd
):
    assert crowd[-1].ask("PING") == "PONG"  # all have come in
    waits = shared.client()
    waits.send("RQ.POP", "BLOCK", -1, "none")
    wait_until(lambda: blocked(client) == 1)
    client.send("CONFIG", "SET", "requirepass", "secret")
    client.send("AUTH", "secret")
    assert client.answer() == "OK"
    for each in crowd:
        each.send("QLEN", "q")
    assert {each.answer() for each in crowd} == {"NOAUTH Authentication required."}
    with pytest.raises((EOFError, OSError)):
        waits.answer()
    assert client.answer() == "OK"
    assert client.ask("CONFIG", "SET", "requirepass", "") == "OK"
    assert {each.ask("QLEN", "q") for each in crowd[::100]} == {0}
    assert held(shared) == []


def test_a_crowd_that_waits_at_many_queues_goes_without_holding_others_up(
    shared, client
):
    names = [f"w{number}" for number in range(1000)]
    crowd = [Client(shared.port) for _ in range(120)]
    for number, each in enumerate(crowd):
        each.send("QNOTIFY", f"g{number}", 60, *names)
    wait_until(lambda: blocked(client) == len(crowd))
    client.ask("QADD", "w5", 60, "x")
    assert {each.answer() for each in crowd[:60]} == {b"w5"}
    for each in crowd:
        each.send("GETJOB", "FROM", *names)
    assert {each.answer() for each in crowd[60:]} == {b"w5"}
    wait_until(lambda: blocked(client) == len(crowd))
    for each in crowd:
        each.close()
    wait_until(lambda: blocked(client) == 0)
    assert held(shared) == []


def blocked(client):
    facts = client.ask("INFO", "clients").decode().split()
    return int(next(f for f in facts if f.startswith("blocked_clients:"))[16:])
