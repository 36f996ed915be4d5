"""Who is served: host, origin, address, password; and what every answer carries."""

from __future__ import annotations

import base64
import json
import socket

import pytest
from harness.ports import free_port
from harness.waiting import wait_until
from harness.web_server import BROWSER, Client, start_web, web_alone, write_config

from rq.access import gate, warnings
from rq.builtin.webhook import signing
from rq.config import files, passwords
from rq.config.settings import RootConfig
from rq.errors import BadConfig
from rq.layout import Root
from rq.web import guard, session

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    with web_alone(tmp_path_factory.mktemp("open"), host="rq.example") as found:
        yield found


def basic(user, password):
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


# ---- hosts and origins


def test_only_own_names_are_served_without_a_login(web):
    for host in ("localhost", "127.0.0.1", "[::1]", "rq.example", "RQ.EXAMPLE"):
        for shown in (host, f"{host}:{web.port}", f"{host}:80"):
            assert web.get("/q.json", Host=shown).status == 200, shown
    for host in ("evil.example", "localhost.evil.example", "127.0.0.1.nip.io", "::1x"):
        assert web.get("/q.json", Host=host).status == 421, host
        assert web.post("/q/x/ack_errs", Host=host).status == 421, host


def test_a_page_of_another_site_changes_nothing(web):
    for headers in (
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://["},
        {"Origin": f"http://127.0.0.1:{web.port + 1}"},
        {"Sec_Fetch_Site": "cross-site", "Origin": f"http://127.0.0.1:{web.port}"},
    ):
        answer = web.post("/q/x/ack_errs", **headers)
        assert answer.status == 403, headers
    for headers in (
        {},
        {"Sec_Fetch_Site": "same-origin"},
        {"Sec_Fetch_Site": "none"},
        {"Origin": f"http://127.0.0.1:{web.port}"},
    ):
        assert web.post("/q/x/ack_errs", **headers).status == 404, headers


def test_every_answer_forbids_what_a_page_does_not_need(web):
    for path in ("/", "/q.json", "/nothing", "/livez", "/q/none.txt"):
        headers = web.get(path, Accept=BROWSER).headers
        policy = headers["content-security-policy"]
        assert "unsafe" not in policy
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'self'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"


def test_a_failure_of_ours_shows_no_trace(web, monkeypatch):
    answer = web.get("/q/%00.json", Accept=BROWSER)
    assert answer.status in (400, 404)
    assert "Traceback" not in answer.text


def test_health_is_told_to_whoever_asks(web):
    assert web.get("/livez", Host="10.0.0.1").text == "ok\n"
    ready = web.get("/readyz", Host="10.0.0.1")
    assert (ready.status, ready.text) == (503, "the supervisor does not answer\n")


# ---- passwords


def test_a_login_is_asked_for_everywhere_and_its_hash_is_enough(tmp_path):
    users = {"ann": passwords.make("correct horse"), "bob": "plain text"}
    with web_alone(
        tmp_path,
        basic_auth={"realm": 'my "RQ"', "users": users},
        relative_root="/rq",
        addr="127.0.0.1",
    ) as web:
        for path in ("/rq/q.json", "/rq/", "/rq/static/rq.css", "/rq/none"):
            answer = web.get(path)
            assert answer.status == 401, path
            assert answer.headers["www-authenticate"].startswith('Basic realm="my RQ"')
        good = basic("ann", "correct horse")
        for _ in range(2):
            assert web.get("/rq/q.json", Authorization=good).json == []
        plain = basic("bob", "plain text")
        assert web.get("/rq/q.json", Authorization=plain).status == 200
        for bad in (
            basic("ann", "wrong"),
            basic("nobody", "correct horse"),
            basic("bob", users["ann"]),
            basic("ann", users["ann"]),
            "Basic %%%",
            "Bearer x",
            "Basic",
        ):
            assert web.get("/rq/q.json", Authorization=bad).status == 401, bad
        # With a login any name may be used: the browser does not send it elsewhere.
        named = web.get("/rq/q.json", Host="any.example", Authorization=good)
        assert named.status == 200
        assert web.get("/rq/livez").status == web.get("/livez").status == 200
        assert web.get("/q.json").status == 401
        outside = web.get("/q.json", Authorization=good)
        assert (outside.status, outside.text) == (404, "Not Found: /q.json\n")
    log = Root(tmp_path).log / "web.log"
    assert "plain passwords (bob)" in log.read_text()


def test_a_hash_fits_its_password_alone():
    stored = passwords.make("one")
    assert passwords.fits("one", stored)
    assert not passwords.fits("two", stored)
    assert not passwords.fits(stored, stored)
    assert not passwords.fits("", None)
    assert passwords.make("one") != stored


@pytest.mark.parametrize(
    "stored",
    ["", "scrypt:", "scrypt:16384:8:1:xx:yy", "scrypt:999999999:8:1:AAAA:AAAA"],
)
def test_a_damaged_hash_is_refused_at_the_start(stored):
    with pytest.raises(BadConfig):
        passwords.check_form("ann", stored)


# ---- addresses


@pytest.mark.slow
def test_networks_that_are_allowed_are_networks(tmp_path):
    with web_alone(tmp_path, allowed_ips=["192.0.2.0/24", "127.0.0.2"]) as web:
        assert web.get("/livez").status == 403
        with socket.socket() as sock:
            sock.bind(("127.0.0.2", 0))
            sock.connect(("127.0.0.1", web.port))
            sock.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b" 200 " in sock.recv(1000)
    with pytest.raises(BadConfig, match="allowed_ips"):
        gate.networks(RootConfig(allowed_ips=("1.2.3",)))


@pytest.mark.parametrize("addr", ["0.0.0.0", "192.0.2.1", "::", "example.org", ""])
def test_an_address_beyond_loopback_needs_a_login(addr):
    with pytest.raises(BadConfig, match="basic_auth"):
        guard.check_config(RootConfig(addr=addr))
    guard.check_config(RootConfig(addr=addr, open_without_auth=True))
    guard.check_config(RootConfig(addr=addr), has_tokens=True)
    users = {"users": {"ann": passwords.make("x")}}
    guard.check_config(RootConfig(addr=addr, basic_auth=users))
    assert warnings.of_config(RootConfig(addr=addr, open_without_auth=True))


@pytest.mark.parametrize(
    "addr", ["127.0.0.1", "::1", "[::1]", "localhost", "127.9.9.9"]
)
def test_loopback_needs_no_login(addr):
    guard.check_config(RootConfig(addr=addr))
    assert warnings.of_config(RootConfig(addr=addr)) == []


def test_a_config_that_cannot_be_served_is_one_sentence(tmp_path):
    for settings in (
        {"addr": "0.0.0.0"},
        {"allowed_ips": ["nonsense"]},
        {"basic_auth": {"users": {}}},
        {"basic_auth": {"users": {"ann": ""}}},
    ):
        files.make_root(Root(tmp_path))
        write_config(tmp_path, free_port(), **settings)
        process, said = start_web(tmp_path)
        assert process.wait(60) == 3
        assert said.startswith("FATAL ")
        assert said.count("\n") == 1


# ---- the rest


@pytest.mark.slow
def test_a_relative_root_is_in_front_of_everything(tmp_path):
    with web_alone(tmp_path, relative_root="/some/where/") as web:
        assert web.get("/some/where/q.json").json == []
        assert web.get("/some/where/livez").text == "ok\n"
        assert web.get("/livez").text == "ok\n"
        assert web.get("/q.json").status == 404
        page = web.get("/some/where/", Accept=BROWSER)
        assert page.status == 200
        assert 'href="/some/where/' in page.text
        short = web.get("/some/where", Accept=BROWSER)
        assert (short.status, short.headers["location"]) == (303, "/some/where/")


def test_the_secret_is_this_installations_own(tmp_path):
    root = Root(tmp_path)
    files.make_root(root)
    made = session.secret_of(root)
    assert session.secret_of(root) == made
    assert len(made) >= 32
    assert root.web_secret.stat().st_mode & 0o777 == 0o600


def test_bad_requests_harm_nobody_else(web):
    for data in (
        b"\x16\x03\x01\x02\x00",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 300 + b"\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /q/x/new_message HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /q/x/new_message HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Type: multipart/form-data; boundary=x\r\n"
        b"Content-Length: 4\r\n\r\nabcd",
    ):
        with socket.create_connection(("127.0.0.1", web.port), timeout=60) as sock:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            answer = sock.recv(4096)
            assert b" 500 " not in answer.partition(b"\r\n")[0], data
    silent = [socket.create_connection(("127.0.0.1", web.port)) for _ in range(50)]
    assert web.get("/q.json").status == 200
    for one in silent:
        one.close()


def test_a_message_that_is_json_but_hostile_is_refused(web):
    deep = "[" * 100_000
    answer = web.post("/q/x/new_message", {"mesg": deep})
    assert answer.status == 422
    answer = web.post("/q/x/new_message", {"mesg": json.dumps({"_method": ["x"]})})
    assert answer.status == 400


@pytest.mark.slow
def test_the_port_tells_who_is_asked(tmp_path):
    """A web whose port is taken says so, and may try again."""
    files.make_root(Root(tmp_path))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        write_config(tmp_path, port)
        process, said = start_web(tmp_path)
        assert process.wait(60) == 1
        assert said.startswith(f"FATAL the web cannot listen on 127.0.0.1:{port}")
    process, said = start_web(tmp_path)
    try:
        assert said == "\n"
        wait_until(lambda: Client(port).get("/livez").status == 200)
    finally:
        process.terminate()
        assert process.wait(60) == 0


@pytest.mark.parametrize("path", ["/q/notice/new_message", "/q/x/restart"])
def test_what_a_webhook_posts_here_is_at_most_a_producer_s(web, path):
    """It comes from RQ's own user, to an address that a producer gave."""
    sent = signing.headers("msg_1", 0, b"{}", [])
    refused = web.ask(
        "POST", path, b"{}", **{"Content-Type": "application/json"}, **sent
    )
    assert refused.status == 403, refused
    told = web.ask("POST", path, b"{}", **{"Content-Type": "application/json"})
    assert told.status != 403, told
