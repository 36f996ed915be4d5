"""No client holds a broker's loop for long, whatever it sends."""

import threading

import pytest
from harness.broker import Client, broker_in, command

from rq.proc import turnlimit

pytestmark = pytest.mark.process
LIMIT = 0.05
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
