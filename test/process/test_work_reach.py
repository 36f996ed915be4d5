"""Which hosts an agent reaches, and which it tells nothing: TLS, its authorities, IPv6."""

from __future__ import annotations

import json
import shutil
import signal
import ssl
import subprocess

import pytest
from harness.agents import QUIET, Agent
from harness.lease_host import lease_host
from harness.waiting import wait_until

needs_openssl = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="apt-get install openssl"
)


def certify(path, name, days):
    """Make an authority that is a host, too, called `name`, and return how it serves."""
    (path / "names").write_text(f"subjectAltName={name}\n")
    for words in (
        "req -new -newkey rsa:2048 -nodes -subj /CN=rq -keyout key.pem -out request.pem",
        f"x509 -req -in request.pem -signkey key.pem -days {days} -extfile names "
        "-out cert.pem",
    ):
        subprocess.run(
            ["openssl", *words.split()], cwd=path, check=True, capture_output=True
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path / "cert.pem", path / "key.pem")
    return context


def secured(path, ca, **peer):
    """Return a root whose config/peers.json says how hosts are verified."""
    settings = path / "root/config/peers.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps({**({"ca": str(ca)} if ca else {}), **peer}))
    settings.chmod(0o600)
    return path / "root"


@needs_openssl
def test_a_host_is_believed_by_an_authority_of_its_own(tmp_path):
    tls = certify(tmp_path, "IP:127.0.0.1", 2)
    with lease_host(tls=tls) as host:
        agent = Agent(tmp_path, host)
        agent.root = secured(tmp_path, tmp_path / "cert.pem")
        agent.runs("cat ../attach/a; " + QUIET)
        token = host.give(files={"a": b"over TLS"})
        ended = agent.once()
        assert ended.returncode == 0, ended.stderr
        assert host.ends() == ["done"]
        assert host.logs[token] == b"over TLS"


@needs_openssl
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "days", "is_known", "why"),
    [
        ("IP:127.0.0.1", 2, False, "self-signed certificate"),
        ("IP:127.0.0.2", 2, True, "IP address mismatch"),
        ("IP:127.0.0.1", -1, True, "certificate has expired"),
    ],
    ids=["unknown", "another", "expired"],
)
def test_a_host_that_is_not_believed_is_told_nothing(
    tmp_path, name, days, is_known, why
):
    """It is asked again: its certificate may be renewed."""
    tls = certify(tmp_path, name, days)
    with lease_host(tls=tls) as host:
        agent = Agent(tmp_path, host)
        agent.root = secured(tmp_path, tmp_path / "cert.pem" if is_known else None)
        agent.runs(QUIET)
        host.give()
        process = subprocess.Popen(
            agent.command("--script", str(agent.script)),
            stderr=subprocess.PIPE,
            text=True,
        )
        said = []
        wait_until(
            lambda: said.append(process.stderr.readline()) or "asked" in said[-1]
        )
        process.send_signal(signal.SIGTERM)
        _, rest = process.communicate(timeout=30)
        assert process.returncode == 0
        assert why in said[-1]
        assert "Traceback" not in rest
        assert host.visits == 0


def test_a_host_is_reached_by_its_number_of_version_6(tmp_path):
    with lease_host("::1") as host:
        agent = Agent(tmp_path, host)
        agent.runs("echo $RQ_FULL_MSG_ID; " + QUIET)
        token = host.give()
        ended = agent.once()
        assert ended.returncode == 0, ended.stderr
        assert host.ends() == ["done"]
        assert host.logs[token].decode().startswith(f"{host.origin}/q/far/")


def test_a_password_goes_over_plain_http_to_this_machine_alone(tmp_path):
    """Also when this machine is called by its number of version 6."""
    with lease_host("::1") as host:
        agent = Agent(tmp_path, host)
        login = {host.origin: {"user": "kim", "password": "secret"}}
        agent.root = secured(tmp_path, None, peers=login)
        agent.runs(QUIET)
        host.give()
        assert agent.once().returncode == 0
        assert host.ends() == ["done"]
