"""The relay is no proxy: it asks public hosts and those that the operator allows, and
shows nothing of what a host that is no RQ answers."""

import json

import pytest
from harness.canned_service import http, service
from harness.relay import HERE, pair_at
from harness.waiting import wait_until

from rq import cli
from rq.cli import check_rq

pytestmark = pytest.mark.process

SECRET = "the inner secret"


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    with pair_at(tmp_path_factory.mktemp("pair")) as pair:
        yield pair


@pytest.fixture
def settings(pair):
    """Give a function that writes config/peers.json of the sender."""
    path = pair.sender.root.peers

    def write(**found):
        path.write_text(json.dumps(found))
        path.chmod(0o600)

    yield write
    write(allow=HERE)


def rq(pair, *words):
    return cli.main(["--root", str(pair.sender.root.path), "relay", *words])


def test_a_private_host_waits_until_the_operator_allows_it(pair, settings, capfd):
    settings()
    before = len(pair.proxy.requests)
    msg_id = pair.send()
    port = pair.proxy.own_port
    text = (
        f"127.0.0.1 is an internal address: `rq relay allow 127.0.0.1:{port}` "
        "lets RQ send there"
    )
    shown = pair.until_told(msg_id, text)
    assert (shown["state"], shown["count"]) == ("que", 0)
    assert len(pair.proxy.requests) == before

    def tells_what_to_type():
        assert rq(pair, "ls") == 0
        return f"`rq relay allow 127.0.0.1:{port}`" in capfd.readouterr().out

    wait_until(tells_what_to_type)
    assert rq(pair, "allow", f"127.0.0.1:{port}") == 0
    assert f"127.0.0.1:{port} is allowed now" in capfd.readouterr().out
    # Nobody hurries it: the verb has.
    assert pair.sender.ended(msg_id, 60)["state"] == "relayed"


def test_what_was_tried_in_vain_for_weeks_waits_for_the_operator_all_the_same(
    pair, settings
):
    settings()
    msg_id = pair.send()
    pair.until_told(msg_id, "rq relay allow")
    kept = pair.sender.folder(msg_id) / "job/relay.json"
    state = json.loads(kept.read_text())
    kept.write_text(json.dumps({**state, "since": state["since"] - 30 * 86400}))
    attempts = pair.sender.get(msg_id)["attempt"]

    def tried_again():
        pair.hurry(msg_id)
        return pair.sender.get(msg_id)["attempt"] > attempts + 1

    wait_until(tried_again)
    pair.until_told(msg_id, "rq relay allow")
    pair.remove(msg_id)


@pytest.mark.parametrize(
    "host",
    ["localhost", "127.1", "0x7f000001", "0", "[::1]", "[::ffff:127.0.0.1]"],
)
def test_no_spelling_of_a_private_host_is_asked(pair, settings, host):
    settings()
    with service(http("200 OK", {"status": "UP"})) as (port, heard):
        msg_id = pair.send(dest=f"http://{host}:{port}/q/sink")
        pair.until_told(msg_id, "an internal address")
        assert heard == []
    pair.remove(msg_id)


def test_what_the_operator_allows_is_kept_beside_all_else(pair, settings, capfd):
    peer = {"http://rq.example": {"user": "u", "password": "p"}}
    settings(peers=peer, ca="/x")
    assert rq(pair, "allow", "10.0.0.7", "inner.example:3333") == 0
    assert rq(pair, "allow", "http://Inner.example:3333/q/x") == 0
    path = pair.sender.root.peers
    kept = json.loads(path.read_text())
    hosts = ["10.0.0.7", "inner.example:3333"]
    assert kept == {"peers": peer, "ca": "/x", "allow": hosts}
    assert path.stat().st_mode & 0o777 == 0o600
    capfd.readouterr()
    assert rq(pair, "ls", "hosts", "--json") == 0
    listed = [one["host"] for one in json.loads(capfd.readouterr().out)]
    assert listed == [*hosts, "rq.example:80"]
    assert rq(pair, "forbid", "10.0.0.7") == 0
    assert json.loads(path.read_text())["allow"] == ["inner.example:3333"]
    assert rq(pair, "forbid", "10.0.0.7") == 4
    assert "not among the hosts that are allowed" in capfd.readouterr().err
    assert rq(pair, "forbid", "rq.example:80") == 4
    assert "take 'http://rq.example' out of `peers`" in capfd.readouterr().err


@pytest.mark.parametrize("host", ["a b", "h:99999", "10.0.0.1/8", "ftp://h", ""])
def test_what_is_no_host_is_refused_in_a_sentence(pair, settings, host, capfd):
    settings()
    before = pair.sender.root.peers.read_bytes()
    assert rq(pair, "allow", host) == 2
    assert capfd.readouterr().err.count("\n") == 1
    assert pair.sender.root.peers.read_bytes() == before


@pytest.mark.parametrize(
    "answer",
    [
        http("200 OK", SECRET.encode()),
        http("200 OK", ["fail", SECRET]),
        http("200 OK", ["ok", SECRET]),
        http("200 OK", {"secret": SECRET}),
        http("403 Forbidden", {"title": SECRET, "detail": SECRET}),
        http(f"500 {SECRET}", SECRET.encode()),
        http("302 Found", b"", f"Location: http://h/{SECRET}"),
        f"SSH-2.0 {SECRET}\r\n".encode(),
        f"-ERR {SECRET}\r\n".encode(),
    ],
)
def test_nothing_of_what_another_service_answers_is_shown(pair, settings, answer):
    with service(answer) as (port, heard):
        settings(allow=["127.0.0.1"])
        msg_id = pair.send(dest=f"http://127.0.0.1:{port}/q/x")
        wait_until(lambda: heard)
        wait_until(lambda: pair.sender.get(msg_id)["result"].get("finished"))
        shown = pair.sender.get(msg_id)
    assert SECRET not in json.dumps(shown)
    assert SECRET.split()[1] not in json.dumps(shown)
    folder = pair.sender.folder(msg_id)
    for path in folder.rglob("*"):
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes(), path
    if shown["state"] == "que":
        pair.remove(msg_id)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(pair, settings, status):
    with (
        service(http("200 OK", ["ok", "x"])) as (other, elsewhere),
        service(
            http(f"{status} Go", b"", f"Location: http://127.0.0.1:{other}/q/x")
        ) as (port, heard),
    ):
        settings(allow=["127.0.0.1"])
        ended = pair.relayed(pair.send(dest=f"http://127.0.0.1:{port}/q/x"))
    assert ended["state"] == "err"
    assert f"refused it: {status} " in ended["status"]
    assert len(heard) == 1
    assert elsewhere == []


@pytest.mark.parametrize(
    "endless", [b"HTTP/1.1 100 Continue\r\n\r\n" * 50_000, b"HTTP/1.1 200 OK\r\n"]
)
def test_an_answer_without_end_is_left_in_time(pair, settings, endless):
    with service(endless) as (port, _):
        url = f"http://127.0.0.1:{port}"
        settings(peers={url: {"timeout": 0.5}})
        msg_id = pair.send(dest=f"{url}/q/x")
        wait_until(lambda: pair.sender.get(msg_id)["result"].get("finished"))
        assert pair.sender.state(msg_id) == "que"
    pair.remove(msg_id)


TOKEN = "rq_" + "0123456789abcdef" * 4


def test_a_peer_is_shown_its_token(pair, settings):
    with service(http("403 Forbidden", {})) as (port, heard):
        settings(peers={f"http://127.0.0.1:{port}": {"token": TOKEN}})
        ended = pair.relayed(pair.send(dest=f"http://127.0.0.1:{port}/q/x"))
    assert f"\r\nAuthorization: Bearer {TOKEN}\r\n".encode() in heard[0]
    assert "403 Forbidden: who is set for it in config/peers.json" in ended["status"]


@pytest.mark.parametrize(
    ("peer", "text"),
    [
        ({"token": ""}, "token is empty"),
        ({"token": "a b"}, "token is empty or holds a blank"),
        ({"token": "x\n"}, "token is not what"),
        ({"token": 7}, "token is not what"),
        ({"token": TOKEN, "password": "x"}, "not both"),
        ({"insecure": "yes"}, "insecure is not true or false"),
    ],
)
def test_a_setting_that_is_none_is_told(pair, settings, peer, text):
    settings(peers={"http://elsewhere": peer})
    msg_id = pair.send()
    pair.until_told(msg_id, text)
    pair.remove(msg_id)


@pytest.mark.parametrize("login", [{"token": TOKEN}, {"user": "u", "password": "p"}])
def test_no_secret_leaves_over_plain_http_beyond_loopback(pair, settings, login):
    url = "http://192.0.2.1:1"  # nobody has it
    settings(peers={url: {**login, "timeout": 0.2}})
    msg_id = pair.send(dest=f"{url}/q/x")
    pair.until_told(msg_id, f"no password or token goes to {url} over plain HTTP")
    assert pair.sender.state(msg_id) == "que"
    settings(peers={url: {**login, "timeout": 0.2, "insecure": True}})
    wait_until(lambda: pair.hurry(msg_id) and "over plain" not in _status(pair, msg_id))
    pair.remove(msg_id)


def _status(pair, msg_id):
    return pair.sender.get(msg_id)["status"]


def test_a_token_that_others_can_read_is_not_used(pair, settings):
    with service(http("200 OK", [])) as (port, heard):
        settings(peers={f"http://127.0.0.1:{port}": {"token": TOKEN}})
        pair.sender.root.peers.chmod(0o644)
        msg_id = pair.send(dest=f"http://127.0.0.1:{port}/q/x")
        pair.until_told(msg_id, "chmod 600 it")
        assert heard == []
    pair.remove(msg_id)


@pytest.mark.parametrize(
    ("answer", "level", "text"),
    [
        (http("422 No", {"detail": "say mesg"}), 0, "OK: {}: may send there"),
        (http("401 No", {"detail": SECRET}), 2, "CRITICAL: {}: it does not know"),
        (
            http("403 No", {"detail": "token:a is viewer here; this needs producer."}),
            2,
            "CRITICAL: {}: the login or token that is set here may not send there: it "
            "needs the role producer",
        ),
        (
            http("403 No", {"detail": "token:a may ask of mail; this is about x."}),
            0,
            "OK: {}: may send there, to some queues",
        ),
        (http("302 No", b"", f"Location: http://{SECRET}/"), 2, "it redirects"),
        (f"{SECRET}\r\n".encode(), 2, "does not speak HTTP"),
    ],
)
def test_check_rq_tells_of_each_peer_whether_it_can_be_sent_to(
    pair, settings, capfd, answer, level, text
):
    with service(answer) as (port, heard):
        url = f"http://127.0.0.1:{port}"
        settings(peers={url: {"token": TOKEN}})
        words = ["--peers", "--root", str(pair.sender.root.path)]
        assert check_rq.main(words) == level
    shown = capfd.readouterr().out
    assert text.format(url) in shown
    assert SECRET not in shown
    assert TOKEN not in shown
    assert TOKEN.encode() in heard[0]


def test_check_rq_gives_every_peer_a_line(pair, settings, capfd):
    bare = "http://192.0.2.1:1"
    gone = "http://127.0.0.1:1"
    settings(peers={bare: {"token": TOKEN}, gone: {}})
    words = ["--peers", "--root", str(pair.sender.root.path)]
    assert check_rq.main(words) == 2
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) == 2
    assert any(bare in one and "over plain HTTP" in one for one in lines)
    assert any(gone in one and "Connection refused" in one for one in lines)
