"""`rq broker`: on and off with one command, also before RQ is up, and one sentence each."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys

import pytest
from harness.broker import Client, command
from harness.cli import rq
from harness.ports import free_port
from harness.waiting import wait_until

pytestmark = pytest.mark.process


def verb(daemon, *words, **options):
    return rq("broker", *words, root=daemon.root.path, **options)


def killed_and_back(daemon, port):
    """Kill the broker; return a client when the supervisor has started it again."""
    pid = daemon.kill("broker")
    wait_until(lambda: daemon.child("broker")["pid"] != pid)
    daemon.until_up("broker")
    return wait_until(lambda: Client(port))


def test_it_is_enabled_used_killed_and_disabled(daemon):
    daemon.start()
    said = verb(daemon, "status").stdout
    assert "not enabled" in said
    assert said == said.rstrip() + "\n"
    port = free_port()
    done = verb(daemon, "enable", "--port", str(port))
    assert done.returncode == 0, done.stderr
    assert f"serves 127.0.0.1:{port}" in done.stdout
    client = Client(port)
    job_id = client.ask("ADDJOB", "mail", "hello", 0).encode()
    client.close()
    client = killed_and_back(daemon, port)
    assert client.ask("GETJOB", "FROM", "mail") == [[b"mail", job_id, b"hello"]]
    client.close()
    told = json.loads(verb(daemon, "status", "--json").stdout)
    assert (told["state"], told["enabled"], told["port"]) == ("UP", True, port)
    assert verb(daemon, "disable").returncode == 0
    assert daemon.child("broker")["state"] == "DOWN"
    with pytest.raises(ConnectionError):
        Client(port)


@pytest.mark.slow
def test_it_is_enabled_before_rq_is_up_and_wants_the_password_that_was_set(daemon):
    port = free_port()
    secret = "correct horse"
    words = ("--root", daemon.root.path, "broker", "enable", "--port", str(port))
    done = subprocess.run(
        [sys.executable, "-m", "rq.cli", *words, "--password"],
        check=False,
        input=f"{secret}\n",
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "when RQ is up" in done.stdout
    assert secret not in daemon.root.broker_config.read_text()
    daemon.start()
    daemon.until_up("broker")
    client = wait_until(lambda: Client(port))
    assert client.ask("PING").startswith("NOAUTH")
    assert client.ask("AUTH", "wrong") == "ERR invalid password"
    assert client.ask("HELLO", 3, "AUTH", "default", "x").startswith("WRONGPASS")
    for _ in range(20):
        refused = client.ask("AUTH", "x")
    assert refused.startswith("ERR Too many wrong logins")
    assert client.ask("AUTH", secret).startswith("ERR Too many wrong logins")
    assert verb(daemon, "queues").returncode == 0
    client.close()
    client = killed_and_back(daemon, port)
    client.socket.sendall(command("AUTH", secret) + command("PING", "in"))
    assert (client.answer(), client.answer()) == ("OK", b"in")
    other = Client(port)
    assert other.ask("HELLO", 3, "AUTH", "default", secret)[b"proto"] == 3
    other.close()
    assert client.ask("PING") == "PONG"
    client.close()


def test_it_is_enabled_where_rq_was_never_up(tmp_path):
    enabled = rq("broker", "enable", root=tmp_path)
    assert (enabled.returncode, enabled.stderr) == (0, "")
    assert "when RQ is up" in enabled.stdout
    told = json.loads(rq("broker", "status", "--json", root=tmp_path).stdout)
    assert told["enabled"]


def test_what_it_holds_is_shown(daemon):
    assert verb(daemon, "queues").returncode == 6
    port = free_port()
    daemon.start()
    assert verb(daemon, "enable", "--port", str(port)).returncode == 0
    client = Client(port)
    job_id = client.ask("ADDJOB", b"odd\xff\xe2\x80\xae", "hello", 0)
    client.ask("RQ.PUSH", "orders", "one", "two")
    client.ask("QADD", "events", 60, "x")
    rows = json.loads(verb(daemon, "queues", "--json").stdout)
    assert [(row["name"], row["dialect"], row["waits"]) for row in rows] == [
        ("events", "bananaq", 1),
        ("odd\\xff\u202e", "disque", 1),
        ("orders", "redisrq", 2),
    ]
    assert "odd\\xff<U+202E>" in verb(daemon, "queues").stdout
    client.ask("ADDJOB", "mail", "hi there", 0)
    peeked = json.loads(verb(daemon, "peek", "mail", "--json").stdout)
    assert [row["body"] for row in peeked] == ["hi there"]
    shown = json.loads(verb(daemon, "show", job_id, "--json").stdout)
    assert (shown["state"], shown["body"]) == ("queued", "hello")
    assert verb(daemon, "show", job_id[:-1]).returncode == 2
    assert verb(daemon, "pause", "mail", "in").stdout == "mail is paused: in\n"
    assert client.ask("ADDJOB", "mail", "x", 0).startswith("PAUSED")
    others = json.loads(verb(daemon, "clients", "--json").stdout)
    assert [row["last"] for row in others] == ["addjob"]
    assert client.ask("ACKJOB", job_id) == 1
    done = verb(daemon, "show", job_id)
    assert done.returncode == 3
    assert "it is done, or never was" in done.stderr
    client.close()


@pytest.mark.parametrize(
    ("words", "status", "why"),
    [
        (("enable", "--addr", "0.0.0.0"), 1, "without a password: set one"),
        (("enable", "--port", "99999"), 2, "65535 is the last"),
        (("enable", "--port", "x"), 2, "whole number"),
        (("nonsense",), 2, "invalid choice"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(daemon, words, status, why):
    done = verb(daemon, *words)
    assert done.returncode == status
    assert why in done.stderr
    assert not daemon.root.broker_config.exists()


def test_a_port_that_somebody_has_is_told(daemon):
    daemon.start()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = verb(daemon, "enable", "--port", str(taken.getsockname()[1]))
    assert done.returncode == 1
    assert "cannot listen on" in done.stderr


def test_a_config_that_is_wrong_keeps_only_the_broker_down(daemon):
    daemon.root.broker_config.write_text('{"enabled": true, "prot": 1}')
    daemon.start()
    daemon.until_up("timers")
    assert "broker" not in [child["name"] for child in daemon.children()]
    done = verb(daemon, "status")
    assert done.returncode == 1
    assert "'prot' is not one of enabled, addr" in done.stderr


@pytest.mark.slow
def test_a_directory_that_was_restored_waits_for_a_word(daemon):
    port = free_port()
    assert verb(daemon, "enable", "--port", str(port)).returncode == 0
    daemon.start()
    client = wait_until(lambda: Client(port))
    job_id = client.ask("ADDJOB", "mail", "hello", 0).encode()
    client.close()
    assert verb(daemon, "disable").returncode == 0
    saved = daemon.root.path / "saved"
    shutil.copytree(daemon.root.broker, saved)
    shutil.rmtree(daemon.root.broker)
    shutil.move(saved, daemon.root.broker)
    done = verb(daemon, "enable")
    assert done.returncode != 0
    assert "`rq broker accept`" in done.stderr
    done = verb(daemon, "accept")
    assert done.returncode == 0, done.stderr
    assert verb(daemon, "enable").returncode == 0
    client = wait_until(lambda: Client(port))
    assert client.ask("GETJOB", "FROM", "mail") == [[b"mail", job_id, b"hello"]]
    client.close()


def test_jobs_are_changed_and_long_names_are_cut(daemon):
    port = free_port()
    daemon.start()
    assert verb(daemon, "enable", "--port", str(port)).returncode == 0
    client = Client(port)
    long = "q" * 1000
    ids = [client.ask("ADDJOB", long, "b" * 9000, 0, "RETRY", 60) for _ in range(3)]
    listed = verb(daemon, "queues").stdout
    assert "qqq…" in listed
    assert max(map(len, listed.splitlines())) < 150
    [row] = json.loads(verb(daemon, "queues", "--json").stdout)
    assert row["name"] == long
    assert max(map(len, verb(daemon, "peek", long).stdout.splitlines())) < 150
    assert verb(daemon, "dequeue", ids[0]).stdout == "1 job dequeued\n"
    assert client.ask("QLEN", long) == 2
    assert verb(daemon, "dequeue", ids[0]).returncode == 1
    assert verb(daemon, "enqueue", *ids).stdout == "1 job enqueued\n"
    assert verb(daemon, "ack", *ids[:2]).stdout == "2 jobs acknowledged\n"
    assert verb(daemon, "delete", ids[2]).stdout == "1 job deleted\n"
    assert verb(daemon, "delete", "nonsense").returncode == 2
    [node] = json.loads(verb(daemon, "nodes", "--json").stdout)
    assert len(node["id"]) == 40
    client.close()


@pytest.mark.slow
def test_status_and_doctor_tell_how_the_broker_is(daemon):
    port = free_port()
    daemon.start()
    assert verb(daemon, "queues").returncode == 6
    assert "the broker is off: `rq broker enable`" in verb(daemon, "queues").stderr
    assert verb(daemon, "enable", "--port", str(port)).returncode == 0
    client = Client(port)
    client.ask("ADDJOB", "mail", "x", 0)
    client.close()
    said = rq("status", root=daemon.root.path)
    assert f"broker 127.0.0.1:{port}: 1 job in 1 queue, 0 clients" in said.stdout
    facts = json.loads(rq("status", "--json", root=daemon.root.path).stdout)
    assert facts["broker"]["jobs"] == "1"
    config = json.loads(daemon.root.broker_config.read_text())
    daemon.root.broker_config.write_text(
        json.dumps({**config, "appendfsync": "no", "maxmemory": 600})
    )
    assert verb(daemon, "enable").returncode == 0
    warned = rq("doctor", "--quick", root=daemon.root.path).stdout
    assert "`appendfsync` of the broker is no" in warned
    assert "for jobs: that full, it takes nothing new" in warned


@pytest.mark.slow
def test_a_broker_that_stands_still_is_not_called_well(daemon):
    daemon.start()
    assert verb(daemon, "enable", "--port", str(free_port())).returncode == 0
    pid = daemon.child("broker")["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        told = verb(daemon, "status")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert (told.returncode, told.stdout.count("\n")) == (1, 2)
    assert told.stdout.endswith("the broker gave no answer in 3 s\n")
    assert verb(daemon, "status").returncode == 0


@pytest.mark.slow
def test_doctor_and_check_look_at_a_broker_that_is_down(daemon):
    port = free_port()
    daemon.start()
    assert verb(daemon, "enable", "--port", str(port)).returncode == 0
    client = Client(port)
    client.ask("ADDJOB", "mail", "x", 0)
    client.close()
    daemon.stop()
    root = daemon.root
    assert rq("check", root=root.path).returncode == 0
    with socket.create_server(("127.0.0.1", port)):
        warned = rq("doctor", "--quick", root=root.path).stdout
    assert f"port {port}, which the broker needs, is taken by" in warned
    kept = [p for p in root.broker.rglob("*.jsonl") if p.stat().st_size > 100]
    [*_, largest] = sorted(kept, key=lambda p: p.stat().st_size)
    data = bytearray(largest.read_bytes())
    data[len(data) // 2] ^= 1
    largest.write_bytes(data)
    checked = rq("check", "--json", root=root.path)
    assert checked.returncode == 9, checked
    [row] = json.loads(checked.stdout)
    assert (row["subject"], row["kind"]) == ("broker", "damage")
    assert "Traceback" not in checked.stderr
    root.broker.rename(root.path / "broker.away")
    root.broker.write_text("")
    checked = rq("check", root=root.path)
    assert (checked.returncode, "is no directory, which" in checked.stdout) == (9, True)
