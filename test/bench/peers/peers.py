"""The peers: how each is installed, started with every write on disk, and put to work."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

import bench
import programs
import server
from server import Server

from rq.rpc import client

INSIDE = Path(__file__).resolve().parent / "inside"
WORKERS = 4
STAMP = '[ -z "$RQ_PARAM1" ] || date +%s.%N > "$RQ_PARAM1"\n'
SCRIPT = "#!/bin/sh\n" + STAMP
OURS = SCRIPT + "echo done >&3\n"
STAYS = f"""#!{sys.executable} -I
import os, sys, time
sys.path.insert(0, os.environ["RQ_SHARE"])
import rq_worker
for message in rq_worker.messages():
    if message.param1:
        now = time.time()
        with open(message.param1, "w") as file:
            file.write(f"{{now}}\\n")
    message.done("")
"""

Start = Callable[[Path], AbstractContextManager[Server]]


@dataclass(frozen=True, kw_only=True)
class Peer:
    """One system: what it needs, and the three ways to run it."""

    name: str
    about: str
    install: Callable[[], str | None]  # returns why it could not
    accepting: Start  # nobody takes messages out
    forking: Start  # a process per message
    staying: Start  # long-lived workers
    again: Start  # on the files that kill -9 left


def every(environment: Path) -> list[Peer]:
    """Return all peers; their programs lie in `environment`."""
    return [ours(), redis_rq(environment), huey(environment), beanstalkd()]


# ---- RQ


def ours() -> Peer:
    return Peer(
        name="RQ",
        about="a queue process; `worker_dir` off for workers that stay",
        install=lambda: None,
        accepting=lambda where: _queue(where, paused=True),
        forking=lambda where: _queue(where, script=OURS),
        staying=lambda where: _queue(
            where, script=STAYS, worker="persistent", worker_dir=False
        ),
        again=_queue_again,
    )


@contextlib.contextmanager
def _queue(where: Path, **config: object) -> Iterator[Server]:
    root = bench.make_root(where, workers=WORKERS, **config)
    where.joinpath("root").symlink_to(root.path)
    with bench.process(root, "q") as child:
        yield _ours(root.queue("q").socket, child.pid)


@contextlib.contextmanager
def _queue_again(where: Path) -> Iterator[Server]:
    root = bench.Root(where.joinpath("root").resolve())
    with bench.process(root, "q") as child:
        socket = root.queue("q").socket
        client.ask(socket, "num_messages", timeout=600)
        yield _ours(socket, child.pid)


def _ours(socket: Path, pid: int) -> Server:
    env = {"PYTHONPATH": str(bench.REPOSITORY)}
    return Server(
        module="ours", address=str(socket), python=sys.executable, env=env, pids=[pid]
    )


# ---- python-rq on Redis


def redis_rq(environment: Path) -> Peer:
    venv = environment / "redis-rq"
    bins = venv / "bin"

    def install() -> str | None:
        return server.get_program("redis-server", "redis-server") or server.make_venv(
            venv, ["rq"]
        )

    @contextlib.contextmanager
    def redis(where: Path) -> Iterator[Server]:
        with programs.redis(where) as program:
            yield Server(
                module="redis_rq",
                address=str(program.port),
                python=bins / "python",
                env={"PYTHONPATH": ""},
                pids=[program.pid],
            )

    def working(*more: str) -> Start:
        @contextlib.contextmanager
        def start(where: Path) -> Iterator[Server]:
            with redis(where) as one, ExitStack() as stack:
                url = f"redis://127.0.0.1:{one.address}"
                words = [bins / "rq", "worker", "-q", "-P", INSIDE, "-u", url, *more]
                for number in range(WORKERS):
                    log = where / f"worker{number}.log"
                    stack.enter_context(server.running(words, log, one.env))
                yield one

        return start

    return Peer(
        name="python-rq on Redis",
        about="appendfsync always; `rq worker` forks per job, SimpleWorker stays",
        install=install,
        accepting=redis,
        forking=working(),
        staying=working("-w", "rq.SimpleWorker"),
        again=redis,
    )


# ---- huey on SQLite


def huey(environment: Path) -> Peer:
    venv = environment / "huey"

    def one(where: Path, script: Path | None = None) -> Server:
        address = str(where / "huey.db")
        env = {"PYTHONPATH": str(INSIDE), "PEER_ADDRESS": address}
        if script:
            env["PEER_SCRIPT"] = str(script)
        python = venv / "bin/python"
        return Server(module="huey_sqlite", address=address, python=python, env=env)

    @contextlib.contextmanager
    def accepting(where: Path) -> Iterator[Server]:
        yield one(where)

    def working(with_script: bool) -> Start:
        @contextlib.contextmanager
        def start(where: Path) -> Iterator[Server]:
            made = one(where, script(where) if with_script else None)
            words = [venv / "bin/huey_consumer", "huey_sqlite.huey", "-k", "process"]
            words += ["-w", str(WORKERS), "-q"]
            with server.running(words, where / "consumer.log", made.env):
                yield made

        return start

    return Peer(
        name="huey on SQLite",
        about="WAL, synchronous=FULL; a task that starts the script, or does its work",
        install=lambda: server.make_venv(venv, ["huey"]),
        accepting=accepting,
        forking=working(True),
        staying=working(False),
        again=accepting,
    )


def script(where: Path) -> Path:
    path = where / "script"
    path.write_text(SCRIPT)
    path.chmod(0o755)
    return path


# ---- beanstalkd


def beanstalkd() -> Peer:
    @contextlib.contextmanager
    def accepting(where: Path) -> Iterator[Server]:
        with programs.beanstalkd(where) as program:
            yield Server(
                module="beanstalk",
                address=str(program.port),
                python=sys.executable,
                env={"PYTHONPATH": ""},
                pids=[program.pid],
            )

    def working(with_script: bool) -> Start:
        @contextlib.contextmanager
        def start(where: Path) -> Iterator[Server]:
            with accepting(where) as one, ExitStack() as stack:
                words = [sys.executable, INSIDE / "beanstalk.py", one.address]
                words += [script(where)] if with_script else []
                for number in range(WORKERS):
                    log = where / f"worker{number}.log"
                    stack.enter_context(server.running(words, log))
                yield one

        return start

    return Peer(
        name="beanstalkd -f0",
        about="a worker of ten lines: reserve, start the script or do its work, delete",
        install=lambda: server.get_program("beanstalkd", "beanstalkd"),
        accepting=accepting,
        forking=working(True),
        staying=working(False),
        again=accepting,
    )


# ---- asking their clients


def ask(one: Server, verb: str, *numbers: float, limit: float) -> dict[str, float]:
    """Run clients of a peer; return what they measured. TimeoutExpired: too slow."""
    words = [one.python, INSIDE, one.module, verb, one.address, *map(str, numbers)]
    with tempfile.TemporaryDirectory() as cwd:
        child = subprocess.Popen(
            list(map(str, words)),
            env={**os.environ, **one.env},
            cwd=cwd,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            said, _ = child.communicate(timeout=limit)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)  # its many clients, too
            child.wait()
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, f"{one.module} {verb}")
    answer: dict[str, float] = json.loads(said)
    return answer
