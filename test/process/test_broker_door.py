"""Who comes into a broker, how many, and how much they may make it hold."""

import contextlib
import os
import resource
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys

import pytest
from harness.broker import Client, Simple, broker_in, command
from harness.certificates import certify
from harness.ports import free_port
from harness.starting import environment
from harness.waiting import wait_until

from rq.broker.process import PASSWORD
from rq.config import passwords

pytestmark = pytest.mark.process
SECRET = "correct horse"
HASH = passwords.make(SECRET)
MIB = 1024 * 1024


@pytest.fixture
def locked(tmp_path):
    """A broker that wants a password."""
    with broker_in(tmp_path / "root", password=HASH) as broker:
        broker.start()
        yield broker


def state(broker):
    with open(f"/proc/{broker.process.pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]


def memory(broker):
    with open(f"/proc/{broker.process.pid}/status") as file:
        lines = dict(line.split(":", 1) for line in file)
    return int(lines["VmRSS"].split()[0]) * 1024


def clients(client):
    info = client.ask("INFO", "clients").decode()
    return int(info.partition("connected_clients:")[2].split()[0])


@pytest.mark.parametrize(
    "sent",
    [
        b"*2\r\n$4\r\nAUTH\r\n$60000000\r\n",
        b"*2\r\n$4\r\nAUTH\r\n$70000\r\n" + b"x" * 60_000,
        b"*9999\r\n" + b"$1000\r\n%b\r\n" % (b"x" * 1000) * 70,
        b"x" * 60_000,
    ],
)
def test_a_stranger_makes_it_hold_little(locked, sent):
    stranger = locked.client()
    stranger.socket.sendall(sent)
    assert stranger.answer().startswith("ERR Protocol error: too many bytes came")
    with pytest.raises((EOFError, ConnectionError)):
        stranger.answer()


def test_what_a_client_sends_behind_its_password_is_kept_back_and_then_obeyed(locked):
    client = locked.client()
    client.socket.sendall(command("AUTH", SECRET))
    many = [command("ADDJOB", "q", "x" * 1000, 0) for _ in range(1000)]
    client.socket.sendall(b"".join(many))
    assert client.answer() == "OK"
    assert all(isinstance(client.answer(), Simple) for _ in many)
    assert client.ask("QLEN", "q") == 1000


def test_who_was_refused_may_try_again_and_whoever_is_gone_is_not_answered(locked):
    client = locked.client()
    assert client.ask("PING") == "NOAUTH Authentication required."
    assert client.ask("AUTH", "wrong") == "ERR invalid password"
    assert client.ask("AUTH", "ann", SECRET).startswith("WRONGPASS")
    gone = locked.client()
    gone.send("AUTH", SECRET)
    gone.socket.sendall(command("ADDJOB", "q", "x", 0))
    gone.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    gone.close()
    assert client.ask("AUTH", SECRET) == "OK"
    assert client.ask("AUTH", "default", SECRET) == "OK"
    assert client.ask("QLEN", "q") == 0


def test_a_password_that_cannot_be_compared_lets_nobody_wait_for_ever(tmp_path):
    port = free_port()
    script = (
        "from pathlib import Path\n"
        "from rq.access.logins import User\n"
        "from rq.broker.clients.door import People\n"
        "from rq.broker.process import Setup, run\n"
        "from rq.broker.store.place import Place\n"
        "from rq.config.broker import BrokerConfig\n"
        "people = People(users={'ann': User(name='ann', stored='scrypt:damaged')})\n"
        f"run(Setup(place=Place(Path({str(tmp_path / 'node')!r})),\n"
        f"          chosen=BrokerConfig(port={port}), people=people))\n"
    )
    words = [sys.executable, "-c", script]
    process = subprocess.Popen(words, env=environment({}), stderr=subprocess.PIPE)
    try:
        client = wait_until(lambda: Client(port))
        assert client.ask("AUTH", "ann", "x").startswith("ERR the broker could not do")
        assert client.ask("PING") == "PONG"
        client.close()
    finally:
        process.kill()
        _, logged = process.communicate(timeout=20)
    assert logged.count(b"Traceback") == 1


@pytest.mark.parametrize(
    "stored",
    ["scrypt:x", HASH[:-9], HASH.replace("16384", "3")],
    ids=["short", "cut", "cheap"],
)
def test_a_damaged_hash_is_told_when_it_starts(tmp_path, stored):
    with broker_in(tmp_path / "root", password=stored) as broker:
        broker.begin()
        assert broker.process.wait(20) == 3
        assert "password: it is no hash, or a damaged one" in broker.told()
        assert "Traceback" not in broker.told()


# ---- how many


def test_no_more_clients_come_in_than_may_and_the_operator_does(tmp_path):
    with broker_in(tmp_path / "root", maxclients=3) as broker:
        first = broker.start()
        second, third = broker.client(), broker.client()
        assert second.ask("PING") == third.ask("PING") == "PONG"
        assert broker.client().answer() == "ERR max number of clients reached"
        operator = broker.own()
        assert clients(operator) == 4
        operator.close()
        third.close()
        wait_until(lambda: clients(first) == 2)
        assert broker.client().ask("PING") == "PONG"


def test_clients_that_are_gone_before_they_are_taken_do_not_count(tmp_path):
    with broker_in(tmp_path / "node") as broker:
        client = broker.start()
        os.kill(broker.process.pid, signal.SIGSTOP)
        for number in range(60):
            gone = socket.create_connection(("127.0.0.1", broker.port), timeout=20)
            if number % 2:
                gone.sendall(command("PING"))
            gone.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
            gone.close()
        os.kill(broker.process.pid, signal.SIGCONT)
        wait_until(lambda: clients(client) == 1)
        assert "Traceback" not in broker.told()


def test_who_does_not_log_in_is_closed_and_who_does_stays(tmp_path):
    with broker_in(tmp_path / "root", password=HASH, login_timeout=1) as broker:
        client, silent, talks = broker.start(), broker.client(), broker.client()
        assert client.ask("AUTH", SECRET) == "OK"
        assert clients(client) == 3
        talks.ask("PING")
        for stranger in (silent, talks):
            with pytest.raises((EOFError, ConnectionError)):
                stranger.answer()
        assert clients(client) == 1
        assert "did not log in" in broker.told()


def test_whom_a_new_password_has_locked_out_is_closed(tmp_path):
    with broker_in(tmp_path / "root", login_timeout=1) as broker:
        client, other = broker.start(), broker.client()
        assert client.ask("CONFIG", "SET", "requirepass", SECRET) == "OK"
        assert client.ask("AUTH", SECRET) == "OK"
        with pytest.raises((EOFError, ConnectionError)):
            other.answer()
        assert client.ask("PING") == "PONG"


def test_a_crowd_of_strangers_leaves_places_for_others(tmp_path):
    with broker_in(tmp_path / "root", password=HASH, maxclients=40) as broker:
        client = broker.start()
        assert client.ask("AUTH", SECRET) == "OK"
        crowd = [broker.client() for _ in range(60)]
        assert crowd[-1].ask("AUTH", SECRET) == "OK"
        assert clients(client) == 11
        with pytest.raises((EOFError, ConnectionError)):
            crowd[0].ask("PING")
        assert crowd[-2].ask("PING").startswith("NOAUTH")


def test_clients_leave_descriptors_for_files_and_strangers_places_for_others(tmp_path):
    with broker_in(tmp_path / "root", password=HASH) as broker:
        client = broker.start()
        assert client.ask("AUTH", SECRET) == "OK"
        pid = broker.process.pid
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (120, 120))
        assert b"maxclients:60" in client.ask("INFO", "clients")
        crowd = [broker.client() for _ in range(120)]
        friends = []
        for _ in range(30):
            friends.append(broker.client())
            assert friends[-1].ask("AUTH", SECRET) == "OK"
        assert client.ask("ADDJOB", "q", "x" * 600_000, 0).startswith("D-")
        assert client.ask("BGREWRITEAOF").startswith("Background")
        wait_until(lambda: b"snapshots:1" in client.ask("INFO", "persistence"))
        with pytest.raises((EOFError, ConnectionError)):
            crowd[0].ask("PING")
        assert "Too many open files" not in broker.told()


# ---- how much


def test_no_answer_makes_it_hold_all_bodies(tmp_path):
    with broker_in(tmp_path / "node") as broker:
        client = broker.start()
        for _ in range(140):
            client.ask("ADDJOB", "q", b"x" * MIB, 0)
        before = memory(broker)
        for words in (
            ("QPEEK", "q", 1000),
            ("JSCAN", "BUSYLOOP", "REPLY", "all"),
            ("GETJOB", "COUNT", 1000, "FROM", "q"),
        ):
            broker.client().send(*words)
            assert client.ask("PING") == "PONG"
        assert memory(broker) - before < 3 * 128 * MIB
        assert client.ask("JSCAN", "COUNT", 1000)[0] == b"0"


def test_jobs_of_a_client_that_is_ended_in_the_same_turn_are_not_lost(tmp_path):
    with broker_in(tmp_path / "node") as broker:
        client = broker.start()
        many = [broker.client() for _ in range(9)]
        numbers = [greedy.ask("CLIENT", "ID") for greedy in many]
        for _ in many:
            client.ask("ADDJOB", "q", "x", 0, "RETRY", 0)
        os.kill(broker.process.pid, signal.SIGSTOP)
        wait_until(lambda: state(broker) == "T")
        for greedy in many[:8]:
            greedy.send("GETJOB", "FROM", "q")
        many[8].socket.sendall(
            b"".join(command("CLIENT", "KILL", "ID", n) for n in numbers[:8])
        )
        os.kill(broker.process.pid, signal.SIGCONT)
        assert [many[8].answer() for _ in numbers[:8]] == [1] * 8
        assert client.ask("QLEN", "q") == 9
        for greedy in many[:8]:
            with pytest.raises((EOFError, ConnectionError)):
                greedy.answer()


# ---- no door


@pytest.mark.parametrize(
    "request_line",
    [
        b"POST / HTTP/1.1",
        b"GET /",
        b"OPTIONS * HTTP/1.1",
        b"PRI * HTTP/2.0",
        b"RQ.PUSH /evil HTTP/1.1",
    ],
)
def test_a_browser_finds_no_door(tmp_path, request_line):
    with broker_in(tmp_path / "node") as broker:
        client = broker.start()
        browser = socket.create_connection(("127.0.0.1", broker.port), timeout=10)
        with browser:
            browser.sendall(request_line + b"\r\nHost: x\r\n\r\nADDJOB q evil 0\r\n")
            assert browser.recv(100) == b""
        assert client.ask("QLEN", "q") == 0
        assert broker.told().count("a browser asked") == 1


EVIL = b"\nADDJOB q evil 0\r\n"


def hello_of(context, session=None, host=None):
    """Return the ClientHello of an OpenSSL client, and its half of the session."""
    took, gave = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(took, gave, server_hostname=host, session=session)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return client, took, gave


def session_with_a_ticket(context, pair):
    """Return the session of a handshake with a server that gives out tickets."""
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(pair["cert"], pair["key"])
    client, took, gave = hello_of(context)
    at_server, of_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = theirs.wrap_bio(at_server, of_server, server_side=True)
    for _ in range(4):
        at_server.write(gave.read())
        for side in (server, client):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
            if side is server:
                took.write(of_server.read())
    return client.session


def hellos(pair):
    """Give real hellos that a page may cause, with a command in what it may choose: a
    ticket, that a server of the page's gave out, holds any bytes."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    session = session_with_a_ticket(context, pair)
    plain = hello_of(context, host="rebound.example")[2].read()
    name = b"rebound.example"
    yield plain.replace(name, EVIL[: len(name)])
    with_ticket = hello_of(context, session)[2].read()
    at = with_ticket.index(b"\x00\x23\x00") + 4  # the extension session_ticket
    assert with_ticket[at - 2 : at] >= b"\x00\x40"
    yield with_ticket[:at] + EVIL + with_ticket[at + len(EVIL) :]
    context.set_alpn_protocols([EVIL.decode(), "h2"])
    hello = hello_of(context)[2].read()
    assert EVIL in hello
    yield hello


@pytest.mark.skipif(not shutil.which("openssl"), reason="apt-get install openssl")
def test_the_hello_of_a_browser_that_speaks_tls_is_no_command(tmp_path):
    pair = certify(tmp_path, 1)
    with broker_in(tmp_path / "node") as broker:
        client = broker.start()
        for number, hello in enumerate(hellos(pair), 1):
            with socket.create_connection(("127.0.0.1", broker.port), 10) as browser:
                browser.sendall(hello)
                assert ended(browser) == b""
            assert broker.told().count("a browser asked") == number
        assert client.ask("QLEN", "q") == 0


def ended(sock):
    """Return all that comes until the other end is gone."""
    came = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := sock.recv(65536):
            came += piece
    return came


UNSPOKEN = {
    b"EHLO x\r\n": b"-ERR unknown command 'EHLO'\r\n",
    b"\x00\x03\x00\x08\x21\x12\xa4\x42": b"-ERR Protocol error: control char",
    b"PING\r\nPI\x07NG\r\n": b"+PONG\r\n-ERR Protocol error: control char",
    b"PING\r\n*1\r\n:4\r\n": b"+PONG\r\n-ERR Protocol error: expected '$'",
}


def test_after_what_no_client_says_nothing_more_is_read(tmp_path):
    with broker_in(tmp_path / "node") as broker:
        client = broker.start()
        for sent, said in UNSPOKEN.items():
            with socket.create_connection(("127.0.0.1", broker.port), 10) as stranger:
                stranger.sendall(sent + EVIL + command("ADDJOB", "q", "evil", 0))
                came = ended(stranger)
            assert came.startswith(said)
            assert came.count(b"\r\n") == said.count(b"+") + 1
        assert client.ask("QLEN", "q") == 0


def test_a_client_may_ask_first_for_what_there_is_not(tmp_path):
    """Modern ones do: `SELECT`, `SENTINEL`; a person may mistype a later line."""
    with broker_in(tmp_path / "node") as broker:
        client = broker.start()
        assert client.ask("SENTINEL", "masters").startswith("ERR unknown command")
        assert client.ask("PING") == "PONG"
        client.socket.sendall(b"PIGN\r\nPING \tx\r\n")
        assert client.answer() == "ERR unknown command 'PIGN'"
        assert client.answer() == b"x"


def test_beyond_loopback_it_wants_a_password_and_starts_not_again(tmp_path):
    for addr in ("0.0.0.0", "127.0.0.1.example.org"):
        with broker_in(tmp_path / f"root-{addr}", addr=addr) as broker:
            broker.begin()
            assert broker.process.wait(20) == 3
            told = broker.told().splitlines()
            assert "without a password: set one with `rq broker enable" in told[-1]


@pytest.mark.parametrize("way", ["file", "environment"])
def test_a_broker_in_the_foreground_may_want_a_password(tmp_path, way):
    env = {PASSWORD: SECRET} if way == "environment" else {}
    with broker_in(tmp_path / "node", env) as broker:
        broker.before = ["env"]  # words of its own, which others may read
        if way == "file":
            (tmp_path / "password").write_text(f"{SECRET}\n")
            broker.words += ["--password-file", str(tmp_path / "password")]
        client = broker.start()
        assert client.ask("PING").startswith("NOAUTH")
        assert client.ask("AUTH", SECRET) == "OK"
        with open(f"/proc/{broker.process.pid}/cmdline") as file:
            assert SECRET not in file.read()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--password-file", "/dev/null"], "/dev/null is empty"),
        (["--tls-cert", "cert.pem"], "TLS takes --tls-cert and --tls-key"),
    ],
)
def test_a_door_that_is_half_described_stays_shut(tmp_path, words, why):
    done = subprocess.run(
        [sys.executable, "-m", "rq.broker", "--dir", str(tmp_path / "node"), *words],
        env=environment({}),
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 1
    assert why in done.stderr


def test_an_open_broker_in_the_foreground_is_refused_too(tmp_path):
    words = ["-m", "rq.broker", "--dir", str(tmp_path / "node"), "--addr", "0.0.0.0"]
    done = subprocess.run(
        [sys.executable, *words],
        env=environment({}),
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("rq broker: the broker would listen on 0.0.0.0")
    assert not (tmp_path / "node").exists()
