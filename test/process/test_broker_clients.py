"""Clients that others have written, with a broker of ours: each does all it can, and goes
on when the broker was killed and started again."""

import re
import subprocess

import pytest
from harness import broker_clients as clients
from harness.broker import broker_in, command
from harness.registries import node_packages, python_packages, redis_cli

pytestmark = pytest.mark.process

BODY = b"\x80body\r\n\0"


@pytest.fixture
def broker(tmp_path):
    with broker_in(tmp_path / "node") as broker:
        broker.start()
        yield broker


@pytest.mark.parametrize(
    ("package", "protocol"),
    [
        (clients.REDIS_5, 2),
        (clients.REDIS_5, 3),
        (clients.REDIS_NEWEST, 2),
        (clients.REDIS_NEWEST, 3),
    ],
)
def test_redis_py(broker, package, protocol):
    packages = [python_packages(package)]
    clients.python_story("redis_py.py", broker, protocol, packages=packages)


@pytest.mark.parametrize("package", [clients.REDIS_5, clients.REDIS_NEWEST])
def test_pydisque(broker, package):
    parts = (clients.PYDISQUE, (package,))
    packages = [python_packages(*part) for part in parts]
    clients.python_story("pydisque_story.py", broker, packages=packages)


@pytest.mark.parametrize("protocol", [2, 3])
def test_node_redis(broker, protocol):
    modules = node_packages(clients.NODE_REDIS)
    clients.node_story("node_redis.mjs", broker, protocol, modules)


def cli(broker, *words, **options):
    """Return what redis-cli prints."""
    run = subprocess.run(
        [redis_cli(), "-p", str(broker.port), *words],
        stdout=subprocess.PIPE,
        timeout=30,
        check=False,
        **options,
    )
    return run.stdout


ADDED = re.compile(rb"D-[0-9a-f]{8}-.{24}-05a1\n")


def test_redis_cli_prints_jobs_as_a_person_reads_them(broker):
    job = cli(broker, "ADDJOB", "q", "a b", "0", "RETRY", "60")
    assert ADDED.fullmatch(job)
    shown = b'1) 1) "q"\n   2) "%b"\n   3) "a b"\n' % job.strip()
    assert cli(broker, "--no-raw", "GETJOB", "FROM", "q") == shown
    assert cli(broker, "--no-raw", "WORKING", job.strip()) == b"(integer) 60\n"
    assert cli(broker, "NACK", job.strip()) == b"1\n"
    assert cli(broker, "-3", "--no-raw", "QPEEK", "q", "1") == shown
    assert cli(broker, "ACKJOB", job.strip()) == b"1\n"
    assert cli(broker, "--no-raw", "SHOW", job.strip()) == b"(nil)\n"
    assert cli(broker, "--no-raw", "-3", "SHOW", job.strip()) == b"(nil)\n"
    refused = b"(error) BADID Invalid Job ID format.\n"
    assert cli(broker, "--no-raw", "ACKJOB", "x") == refused
    assert b"proto 3" in cli(broker, "-3", "HELLO", "3")


def test_redis_cli_sends_what_is_typed_and_what_is_piped_in(broker):
    typed = b'ADDJOB "a b" "x\\x00\\xffy" 0\nQLEN "a b"\nGETJOB FROM "a b"\nPING\n'
    lines = cli(broker, "--no-raw", input=typed).splitlines()
    assert lines[1] == b"(integer) 1"
    assert lines[4:] == [b'   3) "x\\x00\\xffy"', b"PONG"]
    many = [command("ADDJOB", "piped", BODY, 0)] * 1000
    said = cli(broker, "--pipe", input=b"".join([*many, command("ACKJOB", "x")]))
    assert b"errors: 1, replies: 1001" in said
    assert cli(broker, "QLEN", "piped") == b"1000\n"


def test_redis_cli_shows_the_other_dialects(broker):
    first = cli(broker, "RQ.PUSH", "k", "one").strip()
    assert cli(broker, "RQ.POP", "k") == b"k\n%b\none\n" % first
    assert cli(broker, "RQ.ACK", "k", first) == first + b"\n"
    event = cli(broker, "QADD", "e", "60", "x").strip()
    assert cli(broker, "QGET", "e", "g", "EX", "30") == event + b"\nx\n"
    assert cli(broker, "QACK", "e", "g", event) == b"1\n"
    assert b"e g total:1" in cli(broker, "QINFO", "e")
    assert b"tcp_port:%d" % broker.port in cli(broker, "INFO", "server")
