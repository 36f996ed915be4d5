"""The whole web, asked what no browser asks: it never answers 500, never stops, and the
others are served meanwhile."""

from __future__ import annotations

import contextlib
import re
import socket
from pathlib import Path
from urllib.parse import quote

import pytest
from harness.hostile_values import mangled, odd_text
from harness.web_server import served
from hypothesis import given
from hypothesis import strategies as st

from rq.config.settings import RootConfig
from rq.layout import Root
from rq.web import app, site

pytestmark = pytest.mark.system

SCRIPT = "echo a line; echo done >&3"
WITNESS = "witness"
UPLOADS = "uploads"  # "odd" is restarted, among what other tests ask
VERBS = ["delete", "commit", "cancel", "retry", "run_now", "ack", "pause", "down", "x"]


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    with served(tmp_path_factory.mktemp("web")) as web:
        web.queue(SCRIPT, WITNESS)
        web.queue(SCRIPT, "odd")
        web.queue(SCRIPT, UPLOADS)
        web.promised = [web.send(WITNESS, due=4e9)]
        web.ended = web.send("odd")
        web.prepared = web.send(UPLOADS, _method="prep")
        pid = web.daemon.child("web")["pid"]
        yield web
        for msg_id in web.promised:
            assert web.state(WITNESS, msg_id) == "que"
        assert web.daemon.child("web")["pid"] == pid
        for log in web.daemon.root.log.glob("*web*"):
            text = log.read_text(errors="replace")
            assert "Traceback" not in text, text[-3000:]


def routes():
    """Return (method, path) of all there are, for `{field}`s to be filled in."""
    table = app.table(site.make(Root(Path("/nowhere")), RootConfig(), b"x" * 32))
    found = [(one, path) for path in table.paths for one in table.methods(path)]
    # An event stream does not end, and its head is that of the log's page.
    return [one for one in found if not one[1].endswith("/follow")]


def speak(port, data, whole=True):
    """Send bytes; return the first line that is answered, "" for none."""
    said = b""
    line = socket.create_connection(("127.0.0.1", port), timeout=120)
    with line, contextlib.suppress(OSError):
        line.sendall(data)
        if not whole:
            line.shutdown(socket.SHUT_WR)
        while b"\r\n" not in said and (more := line.recv(65536)):
            said += more
    return said.partition(b"\r\n")[0].decode("latin-1")


def status(line):
    found = re.match(r"HTTP/1\.[01] (\d{3})", line)
    return int(found[1]) if found else 0


def lives(web):
    """Somebody else asks as one should."""
    web.number = getattr(web, "number", 0) + 1
    if web.number % 10 == 0:
        web.promised.append(web.send(WITNESS, due=4e9))


words = st.one_of(st.sampled_from(["odd", "ID", "demo", *VERBS]), odd_text)
pairs = st.lists(st.tuples(words, words), max_size=3)
headers = st.lists(
    st.sampled_from(
        [
            "Accept: text/html", "Accept: ;q=é,,", "Range: bytes=5-1,7", "Cookie: a",
            "Cookie: rq_session=a.b; ;=", "If-None-Match: ,", "If-Range: x",
            "If-Modified-Since: 32 Foo 99999", "Content-Range: bytes 5-2/9",
            "Authorization: Basic ~", "Last-Event-ID: -5", "Sec-Fetch-Site: none",
            "Content-Type: application/json", "Content-Type: multipart/form-data",
            "Content-Type: application/x-www-form-urlencoded", "Expect: 100-continue",
            "Transfer-Encoding: chunked", "Upgrade: h2c", "Content-MD5: =",
        ]
    ),
    max_size=3,
)  # fmt: skip


def text_of(web, word):
    return web.ended if word == "ID" else word


def escaped(web, word):
    return quote(text_of(web, word).encode("utf-8", "replace"), safe="")


def request(web, route, path, pairs, headers):
    """Return the bytes of a request that is whole, whatever it says."""
    method, template = route
    fields = iter(path)
    target = re.sub(r"\{.*?\}", lambda _: escaped(web, next(fields, "odd")), template)
    query = "&".join(f"{escaped(web, a)}={escaped(web, b)}" for a, b in pairs)
    body = query.encode() if method in ("POST", "PUT") else b""
    if not body and query:
        target += f"?{query}"
    head = [f"{method} {target} HTTP/1.1", f"Host: 127.0.0.1:{web.port}"]
    head += [*headers, f"Content-Length: {len(body)}", "Connection: close", "", ""]
    return "\r\n".join(head).encode("utf-8") + body


@given(
    st.sampled_from(routes()),
    st.one_of(
        st.tuples(st.just("odd"), st.just("ID"), words),
        st.tuples(st.just("odd"), words, words),
        st.tuples(words, words, words),
    ),
    pairs,
    headers,
)
def test_no_request_is_answered_with_500(web, route, path, pairs, headers):
    asked = request(web, route, path, pairs, headers)
    assert status(speak(web.port, asked)) not in (0, 500), asked
    lives(web)


GOOD = (
    b"POST /q/odd/new_message HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 15\r\n"
    b"Content-Type: application/x-www-form-urlencoded\r\nConnection: close\r\n\r\n"
    b"mesg[dest]=odd&"
)


FILE = (
    b'--m\r\nContent-Disposition: form-data; name="filedata"; filename="a.txt"\r\n'
    b"Content-Type: text/plain\r\n\r\nhello\r\n--m\r\nContent-Disposition: form-data; "
    b'name="x_format"\r\n\r\njson\r\n--m--\r\n'
)


@given(mangled(FILE), st.sampled_from(["{}/attach/new", "new_message"]))
def test_any_upload_is_taken_or_refused(web, body, target):
    head = (
        f"POST /q/{UPLOADS}/{target.format(web.prepared)} HTTP/1.1\r\n"
        f"Host: 127.0.0.1:{web.port}\r\n"
    )
    head += "Content-Type: multipart/form-data; boundary=m\r\nConnection: close\r\n"
    asked = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    said = speak(web.port, asked)
    assert 200 <= status(said) < 500, (said, asked)
    lives(web)


@given(st.one_of(st.binary(max_size=100), mangled(GOOD)))
def test_any_bytes_leave_the_web_to_the_others(web, data):
    assert status(speak(web.port, data, whole=False)) != 500, data
    lives(web)
