"""A broker that speaks TLS, and one with a Unix socket for clients."""

import contextlib
import shutil
import socket
import ssl
import time

import pytest
from harness.broker import Client, broker_in
from harness.certificates import certify
from harness.processes import acting_as, only_root, open_to_others
from harness.waiting import wait_until

from rq.config import passwords

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(
        shutil.which("openssl") is None, reason="apt-get install openssl"
    ),
]
SECRET = "correct horse"


def secured(broker, own=None):
    """Return a client over TLS, with a certificate of its own or without."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if own:
        context.load_cert_chain(own["cert"], own["key"])
    sock = socket.create_connection(("127.0.0.1", broker.port), timeout=20)
    try:
        return Client(context.wrap_socket(sock))
    except OSError:
        sock.close()
        raise


def refused(broker, own=None):
    """Whether a client is not let in over TLS."""
    try:
        client = secured(broker, own)
    except OSError:
        return True
    try:
        client.ask("PING")
    except (OSError, EOFError):
        return True
    finally:
        client.close()
    return False


def test_jobs_and_large_ones_go_over_tls_and_nothing_in_the_clear(tmp_path):
    pair = certify(tmp_path, 1)
    with broker_in(tmp_path / "root", tls=pair) as broker:
        broker.begin()
        client = wait_until(lambda: secured(broker))
        body = b"\0" * 3_000_000
        job_id = client.ask("ADDJOB", "q", body, 0).encode()
        assert client.ask("GETJOB", "FROM", "q") == [[b"q", job_id, body]]
        client.socket.sendall(b"PING\r\n" * 5000)
        assert {client.answer() for _ in range(5000)} == {"PONG"}
        plain = broker.client()
        with pytest.raises((EOFError, OSError, ValueError)):
            plain.ask("PING")
        assert client.ask("QLEN", "q") == 0
        wait_until(lambda: b"connected_clients:1\r" in client.ask("INFO", "clients"))
        client.close()
        assert broker.stop() == 0
        assert "Traceback" not in broker.told()


def test_with_clients_named_only_their_certificates_open_it(tmp_path):
    theirs, other = tmp_path / "theirs", tmp_path / "other"
    theirs.mkdir()
    other.mkdir()
    own, stranger = certify(theirs, 2), certify(other, 3)
    pair = {**certify(tmp_path, 1), "clients": own["cert"]}
    with broker_in(tmp_path / "root", tls=pair) as broker:
        broker.begin()
        client = wait_until(lambda: secured(broker, own))
        assert client.ask("PING") == "PONG"
        assert refused(broker)
        assert refused(broker, stranger)
        assert client.ask("PING") == "PONG"
        client.close()


@pytest.mark.parametrize(
    ("tls", "why"),
    [
        ({"cert": "no.pem", "key": "no.key"}, "cannot be read"),
        ({"cert": "cert.pem"}, 'it takes {"cert": PATH, "key": PATH}'),
        ({"cert": "cert.pem", "key": "cert.pem"}, "do not make a pair"),
    ],
)
def test_a_certificate_that_cannot_serve_is_told_at_the_start(tmp_path, tls, why):
    certify(tmp_path, 1)
    (tmp_path / "cert.pem").chmod(0o600)
    paths = {name: str(tmp_path / file) for name, file in tls.items()}
    with broker_in(tmp_path / "root", tls=paths) as broker:
        broker.begin()
        assert broker.process.wait(20) == 3
        assert why in broker.told()
        assert "Traceback" not in broker.told()


def at(path):
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(20)
    sock.connect(str(path))
    return Client(sock)


@only_root
def test_a_unix_socket_lets_in_whom_the_kernel_names_and_others_by_password(tmp_path):
    path, stored = tmp_path / "jobs.sock", passwords.make(SECRET)
    settings = {"unixsocket": str(path), "password": stored}
    with broker_in(tmp_path / "root", **settings) as broker:
        broker.start()
        own = at(path)
        assert own.ask("PING") == "PONG"
        assert path.stat().st_mode & 0o777 == 0o660
        open_to_others(tmp_path)
        path.chmod(0o666)
        with acting_as(65534, 65534):
            stranger = at(path)
        assert stranger.ask("PING").startswith("NOAUTH")
        assert own.ask("CONFIG", "SET", "maxclients", 2) == "OK"
        with acting_as(65534, 65534):
            crowd = at(path)
        assert crowd.answer() == "ERR max number of clients reached"
        assert stranger.ask("AUTH", SECRET) == "OK"
        for client in (own, stranger, crowd):
            client.close()


def test_who_begins_no_handshake_is_closed_as_one_who_does_not_log_in(tmp_path):
    pair, password = certify(tmp_path, 1), passwords.make(SECRET)
    settings = {"tls": pair, "password": password, "login_timeout": 1}
    with broker_in(tmp_path / "root", **settings) as broker:
        broker.begin()
        client = wait_until(lambda: secured(broker))
        assert client.ask("AUTH", SECRET) == "OK"
        with socket.create_connection(("127.0.0.1", broker.port), timeout=10) as silent:
            assert silent.recv(1) == b""
        assert b"strangers:0" in client.ask("INFO", "clients")
        client.close()
        assert "Traceback" not in broker.told()


def test_a_crowd_that_speaks_no_tls_does_not_fill_the_log(tmp_path):
    with broker_in(tmp_path / "root", tls=certify(tmp_path, 1)) as broker:
        broker.begin()
        wait_until(lambda: secured(broker)).close()
        began = time.monotonic()
        for _ in range(40):
            place = "127.0.0.1", broker.port
            with socket.create_connection(place, timeout=10) as stranger:
                stranger.sendall(b"GET / HTTP/1.0\r\n\r\n")
                with contextlib.suppress(OSError):
                    assert stranger.recv(1) == b""
        lines = broker.told().count("a client did not come in")
        assert 1 <= lines <= 2 + time.monotonic() - began  # one a second
        secured(broker).close()


def test_what_is_no_socket_is_not_removed_for_one(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("kept")
    with broker_in(tmp_path / "root", unixsocket=str(precious)) as broker:
        broker.begin()
        assert broker.process.wait(20) == 3
        assert "is there, and is no socket" in broker.told()
    assert precious.read_text() == "kept"
