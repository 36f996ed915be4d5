"""Certificates are verified, passwords are kept private and sent to their host alone."""

import json
import ssl
import subprocess

import pytest
from harness.relay import HERE, pair_at, proxy_to
from harness.waiting import wait_until

from rq.cli import check_rq
from rq.config import passwords

pytestmark = pytest.mark.process

FILES = {"notes.txt": b"hello\n"}


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    users = {"relay": passwords.make("s3cret:ä")}
    auth = {"realm": "x", "users": users}
    with pair_at(tmp_path_factory.mktemp("pair"), basic_auth=auth) as pair:
        yield pair


@pytest.fixture
def settings(pair):
    """Give a function that writes config/peers.json of the sender."""
    path = pair.sender.root.peers

    def write(mode=0o600, **found):
        path.write_text(json.dumps({"allow": HERE, **found}))
        path.chmod(mode)

    yield write
    write()


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """Make an authority and a certificate for localhost; return their directory."""
    path = tmp_path_factory.mktemp("ca")
    made = "req -x509 -newkey rsa:2048 -nodes -days 2 -keyout {0}.key -out {0}.pem"
    ca = f"{made.format('ca')} -subj /CN=ours -addext basicConstraints=critical,CA:true"
    host = (
        f"{made.format('host')} -CA ca.pem -CAkey ca.key -subj /CN=localhost "
        "-addext subjectAltName=DNS:localhost -addext basicConstraints=CA:false"
    )
    for words in (ca, host):
        subprocess.run(
            ["openssl", *words.split()], cwd=path, check=True, capture_output=True
        )
    return path


@pytest.fixture
def tls(pair, authority):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority / "host.pem", authority / "host.key")
    with proxy_to(pair.web.port, context) as proxy:
        yield proxy


LOGIN = {"user": "relay", "password": "s3cret:ä"}


def test_a_host_is_given_its_password(pair, settings):
    settings(peers={f"http://127.0.0.1:{pair.proxy.own_port}/": LOGIN})
    assert pair.relayed(pair.send(FILES))["state"] == "relayed"


def test_a_wrong_password_is_an_error_and_said_to_be_one(pair, settings):
    for peers in ({}, {f"http://127.0.0.1:{pair.web.port}": LOGIN}):
        settings(peers=peers)
        ended = pair.relayed(pair.send())
        assert ended["state"] == "err"
        assert "401" in ended["status"]


def test_passwords_that_others_can_read_are_not_used(pair, settings):
    settings(peers={"http://elsewhere": LOGIN}, mode=0o640)
    msg_id = pair.send()
    pair.until_told(msg_id, "chmod 600 it")
    settings(peers={f"http://127.0.0.1:{pair.proxy.own_port}": LOGIN})
    assert pair.relayed(msg_id)["state"] == "relayed"


@pytest.mark.parametrize(
    ("peer", "text"),
    [
        ({"pasword": "x"}, "did you mean 'password'?"),
        ({"timeout": "5"}, "timeout is not a number of seconds"),
        ({"timeout": 0}, "timeout is not a number of seconds"),
    ],
)
def test_a_setting_that_is_none_is_told_with_what_it_may_be(pair, settings, peer, text):
    settings(peers={"http://elsewhere": peer})
    msg_id = pair.send()
    pair.until_told(msg_id, text)
    pair.remove(msg_id)


def test_our_own_authority_is_believed_and_its_certificate_verified(
    pair, settings, tls, authority
):
    url = f"https://localhost:{tls.own_port}"
    settings(ca=str(authority / "ca.pem"), peers={url: LOGIN})
    ended = pair.relayed(pair.send(FILES, dest=f"{url}/q/sink"))
    assert ended["state"] == "relayed", ended
    settings(peers={url: {**LOGIN, "ca": str(authority / "ca.pem")}})
    ended = pair.relayed(pair.send(FILES, dest=f"{url}/q/sink"))
    assert ended["state"] == "relayed", ended


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
def test_nothing_is_sent_to_a_host_whose_certificate_does_not_fit(
    pair, settings, tls, authority, name
):
    ca = {} if name == "localhost" else {"ca": str(authority / "ca.pem")}
    settings(**ca, peers={f"https://{name}:{tls.own_port}": LOGIN})
    msg_id = pair.send(dest=f"https://{name}:{tls.own_port}/q/sink")
    wait_until(lambda: "certificate verify failed" in pair.sender.get(msg_id)["status"])
    assert tls.requests == []
    pair.remove(msg_id)


def test_check_rq_logs_in_as_the_relay_does(pair, settings, capfd):
    port = str(pair.web.port)
    words = ["-s", "127.0.0.1", "-p", port, "--root", str(pair.sender.root.path)]
    assert check_rq.main(words) == 3
    assert "answered 401: it does not know the login" in capfd.readouterr().out
    settings(peers={f"http://127.0.0.1:{port}": LOGIN})
    check_rq.main(words)
    assert "answered" not in capfd.readouterr().out
    assert check_rq.main([*words, "--peers"]) == 0
    assert capfd.readouterr().out == f"OK: http://127.0.0.1:{port}: may send there\n"
    settings(peers={f"http://127.0.0.1:{port}": {**LOGIN, "password": "wrong"}})
    assert check_rq.main([*words, "--peers"]) == 2
    assert "does not know the login" in capfd.readouterr().out
