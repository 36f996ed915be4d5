"""The web over TLS: what it takes for a certificate, and that a new one is taken."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import ssl
import subprocess
import sys

import pytest
from harness.certificates import certify
from harness.checkout import CHECKOUT
from harness.limits import no_descriptors
from harness.waiting import wait_until
from harness.web_door import GET, Door, door, read_all
from harness.web_server import start_web, web_alone, write_config

from rq.access import tls
from rq.config import files
from rq.layout import Root

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(
        shutil.which("openssl") is None, reason="apt-get install openssl"
    ),
]


def secured(made: Door) -> ssl.SSLSocket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(made.line())


def serial(made: Door) -> int:
    """Return that of the certificate which a new connection is shown."""
    with secured(made) as line:
        shown = line.getpeercert(binary_form=True)
    assert shown is not None
    words = ["openssl", "x509", "-inform", "DER", "-noout", "-serial"]
    text = subprocess.check_output(words, input=shown).decode()
    return int(text.partition("=")[2], 16)


@pytest.fixture(scope="module")
def secure(tmp_path_factory):
    path = tmp_path_factory.mktemp("tls")
    changes = {"LOOK": 0.0, "HEAD_TIME": 2}
    with door(path, changes, tls=certify(path, 1)) as made:
        yield made, path


def test_requests_over_tls_carry_scheme_and_owner(secure):
    made, _ = secure
    with secured(made) as line:
        assert line.version() in ("TLSv1.2", "TLSv1.3")
        for _ in range(2):
            line.sendall(GET)
            answer = line.recv(65536)
            assert b'"scheme": "https"' in answer
            assert f'"uid": {os.geteuid()},'.encode() in answer


def test_a_renewed_certificate_is_taken_without_a_restart(secure):
    made, path = secure
    before = serial(made)
    with secured(made) as line:
        line.sendall(GET)
        assert b" 200 " in line.recv(65536)
        certify(path, before + 1)
        assert serial(made) == before + 1
        line.sendall(GET)
        assert b" 200 " in line.recv(65536)
    assert "takes the new certificate" in made.log()


def test_half_a_renewal_never_breaks_what_serves(secure):
    made, path = secure
    before = serial(made)
    old_cert = (path / "cert.pem").read_bytes()
    certify(path, before + 1)
    new_cert = (path / "cert.pem").read_bytes()
    for wrong in (old_cert, new_cert[:100], b""):
        (path / "cert.pem").write_bytes(wrong)
        assert serial(made) == before
    (path / "cert.pem").unlink()
    assert serial(made) == before
    (path / "key.pem").chmod(0o644)
    (path / "cert.pem").write_bytes(new_cert)
    assert serial(made) == before
    assert "goes on with the certificate it has" in made.log()
    assert "Traceback" not in made.log()
    (path / "key.pem").chmod(0o600)
    assert serial(made) == before + 1


def test_plain_http_at_the_tls_port_is_closed_without_a_word_in_the_log(secure):
    made, _ = secure
    before = made.log()
    with made.line() as line:
        line.sendall(GET)
        assert b"HTTP/" not in read_all(line)
    assert made.log() == before
    assert serial(made)


@pytest.mark.slow
def test_a_client_that_says_nothing_is_closed_before_and_after_the_handshake(secure):
    made, _ = secure
    with made.line() as silent:
        assert read_all(silent) == b""
    with secured(made) as silent, contextlib.suppress(ssl.SSLError):
        assert silent.recv(100) == b""


def test_old_tls_and_http2_are_not_spoken(secure):
    made, _ = secure
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.set_ciphers("DEFAULT:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    with (
        made.line() as line,
        pytest.raises(ssl.SSLError, match=r"PROTOCOL_VERSION|EOF"),
    ):
        old.wrap_socket(line)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2", "http/1.1"])
    with context.wrap_socket(made.line()) as line:
        assert line.selected_alpn_protocol() == "http/1.1"


@pytest.mark.slow
def test_idle_connections_over_tls_give_way_too(tmp_path):
    setting = certify(tmp_path, 1)
    with (
        door(tmp_path, web_connections=16, tls=setting) as made,
        contextlib.ExitStack() as stack,
    ):
        for _ in range(6):
            stack.enter_context(made.line())  # no handshake yet
        for _ in range(12):
            line = stack.enter_context(secured(made))
            line.sendall(GET)
            assert b" 200 " in line.recv(65536)
        wait_until(lambda: len(made.descriptors()) < 40)


@pytest.mark.slow
def test_a_stranger_who_only_connects_costs_little_memory(tmp_path):
    setting = certify(tmp_path, 1)
    with door(tmp_path, tls=setting) as made, contextlib.ExitStack() as stack:
        assert serial(made) == 1
        before, used = made.memory(), len(made.descriptors())
        for _ in range(200):
            stack.enter_context(made.line())
        wait_until(lambda: len(made.descriptors()) >= used + 200)
        assert made.memory() - before < 200 * 200 * 1024


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda path: (path / "cert.pem").unlink(), "cert.pem cannot be read by user"),
        (lambda path: (path / "key.pem").unlink(), "key.pem cannot be read by user"),
        (lambda path: (path / "key.pem").chmod(0o644), "chmod 600 it"),
        (lambda path: (path / "cert.pem").write_text("x"), "do not make a pair"),
        (lambda path: (path / "key.pem").write_text("x"), "do not make a pair"),
        (
            lambda path: certify(path, 1, "-passout", "pass:secret"),
            "is encrypted and nobody is there",
        ),
        (
            lambda path: (
                (certify(path, 1), os.remove(path / "key.pem"))
                and os.mkfifo(path / "key.pem", 0o600)
            ),
            "is not a regular file",
        ),
    ],
)
def test_a_certificate_that_cannot_be_used_is_refused_in_one_sentence(
    tmp_path, spoil, sentence
):
    files.make_root(Root(tmp_path))
    setting = certify(tmp_path, 1)
    spoil(tmp_path)
    write_config(tmp_path, 3333, tls=setting)
    process, said = start_web(tmp_path)
    assert process.wait(20) == 3
    assert said.startswith("FATAL tls: ")
    assert sentence in said
    assert said.count("\n") == 1


@pytest.mark.slow
def test_check_rq_asks_an_rq_that_speaks_https(tmp_path):
    setting = certify(tmp_path, 1)
    with web_alone(tmp_path, tls=setting) as web:
        words = [
            "-s",
            "https://127.0.0.1",
            "-p",
            str(web.port),
            "--root",
            str(tmp_path),
        ]
        env = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
        taken = {"capture_output": True, "text": True}
        check = [sys.executable, "-m", "rq.cli.check_rq", *words]
        trusted = {**env, "SSL_CERT_FILE": setting["cert"]}
        said = subprocess.run(check, env=trusted, check=False, **taken)
        assert said.stdout.startswith("CRITICAL: RQ is not running: `rq up` starts it")
        said = subprocess.run(check, env=env, check=False, **taken)
        assert said.returncode == 2
        assert "certificate verify failed" in said.stdout


def test_addresses_begin_with_https(tmp_path):
    from rq import config

    Root(tmp_path).config_dir.mkdir()
    write_config(tmp_path, 3443, tls={"cert": "c.pem", "key": "k.pem"})
    settings = config.read_root(Root(tmp_path))
    assert settings.base_url == settings.page_url == "https://127.0.0.1:3443/"
    assert settings.full_id("q", "1") == "https://127.0.0.1:3443/q/q/1"


def test_a_listener_without_tls_is_plain(tmp_path):
    with (
        door(tmp_path) as made,
        socket.create_connection(("127.0.0.1", made.port)) as line,
    ):
        line.sendall(GET)
        assert b'"scheme": "http"' in line.recv(65536)


def test_a_certificate_that_cannot_be_read_now_is_taken_later(tmp_path, monkeypatch):
    monkeypatch.setattr(tls, "LOOK", 0.0)
    certify(tmp_path, 1)
    shown = tls.Certificate(tmp_path / "cert.pem", tmp_path / "key.pem")
    first = shown.context()
    certify(tmp_path, 2)
    with no_descriptors():
        assert shown.context() is first
    second = shown.context()
    assert second is not first
    assert shown.context() is second
