"""What another user of this machine sees of a job, and what they can do with its ports."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
from harness.checkout import CHECKOUT
from harness.processes import acting_as

OTHER = 4321
SECRET = "sesame-open"
HOLD = """
import sys
from rq.spark.session import close, session
spark = session("held", master="local[2]")
conf = spark.sparkContext._jsc.hadoopConfiguration()
print(conf.get("fs.s3a.secret.key"), spark.conf.get("spark.authenticate"), flush=True)
print(spark.range(100).selectExpr("sum(id)").first()[0], flush=True)
sys.stdin.readline()
close(spark)
"""


@pytest.fixture(scope="module")
def held(spark_env):
    """Give a session that stands still, as a process."""
    conf = json.loads(spark_env.get("RQ_SPARK_CONF") or "{}")
    conf["spark.hadoop.fs.s3a.secret.key"] = SECRET
    env = {**os.environ, **spark_env, "RQ_SPARK_CONF": json.dumps(conf)}
    env["PYTHONPATH"] = str(CHECKOUT)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", HOLD], env=env, **pipes) as process:
        assert process.stdout.readline() == f"{SECRET} true\n"
        assert process.stdout.readline() == "4950\n"
        yield psutil.Process(process.pid)
        process.communicate("\n")


def family(held):
    """Return what runs of a process and its children: what has ended is no process here,
    though its parent may not have waited for it yet."""
    return [held, *(one for one in held.children(recursive=True) if is_running(one))]


def is_running(process):
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


def asked(process, question, *args):
    """Return a process's answer; none when it has ended since it was listed."""
    try:
        return getattr(process, question)(*args)
    except psutil.NoSuchProcess:  # a zombie, too
        return []


def test_no_secret_is_on_a_command_line(held):
    lines = [" ".join(asked(process, "cmdline")) for process in family(held)]
    assert any("java" in line for line in lines)
    assert [line for line in lines if SECRET in line] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="acts as another user -> run as root")
def test_another_user_reads_no_environment_and_no_file(held):
    for process in family(held):
        with acting_as(OTHER, OTHER):
            denied = is_denied(f"/proc/{process.pid}/environ")
        assert denied or not is_running(process)


def is_denied(path):
    try:
        open(path).close()
    except PermissionError:
        return True
    except FileNotFoundError:
        pass
    return False


def ports(held):
    return {
        line.laddr.port
        for process in family(held)
        for line in asked(process, "net_connections", "inet")
        if line.status == psutil.CONN_LISTEN
    }


def asked_at(port):
    """Ask a port as Spark's own transport does, without a secret."""
    body = b"anything"
    frame = struct.pack(">bqi", 3, 7, len(body)) + body  # RpcRequest
    sock = socket.create_connection((b"127.0.0.1", port), 60)
    sock.sendall(struct.pack(">q", 8 + len(frame)) + frame)
    return sock


def answer(sock):
    """Return what is answered until nothing comes any more, for a busy machine long."""
    told = b""
    with sock, contextlib.suppress(TimeoutError, ConnectionError):
        sock.settimeout(20)
        while piece := sock.recv(65536):
            told += piece
    return told


@pytest.mark.skipif(os.geteuid() != 0, reason="acts as another user -> run as root")
def test_no_port_serves_who_has_no_secret(held):
    found = ports(held)
    with acting_as(OTHER, OTHER):
        lines = [asked_at(port) for port in found]
    with ThreadPoolExecutor(len(lines)) as pool:
        answers = list(pool.map(answer, lines))
    asked_for_it = [answer for answer in answers if b"Expected SaslMessage" in answer]
    assert len(asked_for_it) == 2  # of the driver, and of its blocks
    others = [answer for answer in answers if answer not in asked_for_it]
    assert all(answer == b"" or answer.endswith(b"err") for answer in others)
