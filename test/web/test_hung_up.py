"""Clients that send and leave: what they did is written down, and from where."""

from __future__ import annotations

import os
import signal
import socket
import struct
import time

import pytest
from harness.waiting import wait_until
from harness.web_server import served

from rq.access import tokens
from rq.access.roles import Role
from rq.access.tokens import Token

pytestmark = pytest.mark.system

AT_ONCE = struct.pack("ii", 1, 0)  # a close that resets the connection


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    with served(tmp_path_factory.mktemp("hung") / "rq") as found:
        found.queue('echo "done ok" >&3', name="mail")
        yield found


def bearer(web, name, role):
    secret = tokens.new_secret()
    digest = tokens.digest_of(secret)
    about = {"created": time.time(), "created_by": "ann"}
    tokens.create(web.daemon.root, Token(name=name, sha256=digest, role=role, **about))
    return secret


def sent(web, secret, path, body):
    """Send a form over a connection; return it, its answer unread."""
    line = socket.create_connection(("127.0.0.1", web.port), timeout=20)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {secret}\r\n"
        "Content-Type: application/x-www-form-urlencoded\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    line.sendall(f"{head}{body}".encode())
    return line


def audited(web, who):
    file = web.daemon.root.log / "audit.log"
    lines = file.read_text().splitlines() if file.exists() else []
    return [line for line in lines if f"who=token:{who} " in line]


@pytest.mark.slow
def test_who_resets_the_connection_is_told_of_with_the_address_all_the_same(web):
    secret = bearer(web, "reset", Role.OPERATOR)
    for _ in range(5):
        line = sent(web, secret, "/q/mail/adminoper", "resume=1")
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
        line.close()
    lines = wait_until(lambda: (got := audited(web, "reset")) and len(got) == 5 and got)
    assert all("address=127.0.0.1 " in line for line in lines), lines


@pytest.mark.slow
def test_what_was_asked_before_hanging_up_is_told_of_though_it_takes_long(web):
    secret = bearer(web, "gone", Role.OPERATOR)
    msg_id = web.send("mail", due=time.time() + 1000)
    pid = web.daemon.child("mail")["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        sent(web, secret, f"/q/mail/{msg_id}", "_method=delete").close()
        lines = wait_until(lambda: audited(web, "gone"))
    finally:
        os.kill(pid, signal.SIGCONT)
    assert f'what="POST /q/mail/{msg_id} _method=delete" answer=hung-up' in lines[0]
    wait_until(lambda: web.get(f"/q/mail/{msg_id}/state.json").status == 404)
    assert len(audited(web, "gone")) == 1
