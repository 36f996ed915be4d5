"""A fork server for tests: that of the supervisor, whose children are told their words,
environment and stderr. `python -m harness.fork_server PROGRAM`, as `forks` starts it."""

from __future__ import annotations

import functools
import gc
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import sys
import time
from collections.abc import Callable

from rq.files import durable
from rq.proc import descriptors
from rq.supervisor.forkserver import ForkServer

Program = Callable[[list[str], int], int]  # its words, readiness -> exit status


def queue() -> Program:
    from harness import owner_process

    def run(words: list[str], ready: int) -> int:
        root, name, user = words
        return owner_process.main(root, name, str(ready), user)

    return run


def broker() -> Program:
    from harness import broker_process

    def run(words: list[str], ready: int) -> int:
        os.close(ready)  # whose port answers is ready
        sys.argv[1:] = words
        return broker_process.main()

    return run


def web() -> Program:
    from rq.web import server

    return lambda words, ready: server.main([*words, "--ready-fd", str(ready)])


def tool() -> Program:
    from rq import cli

    for module in pkgutil.iter_modules(cli.__path__):
        if module.name != "__main__":
            importlib.import_module(f"rq.cli.{module.name}")
    importlib.import_module("rq.work.process")  # of `rq work`, once it begins
    return run_tool


def run_tool(words: list[str], line: int) -> int:
    """Do as `python -m` with its words does, after the directory to do it in; the standard
    files come over a socket."""
    directory, module, *sys.argv[1:] = words
    with socket.socket(fileno=line) as sock:
        _, files, _, _ = socket.recv_fds(sock, 1, 3)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(directory)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if not hasattr(sys.modules.get(module), "__path__"):
        sys.modules.pop(module, None)  # runpy warns of a module that was imported
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        sys.stdout.flush()
    return 0


PROGRAMS = {"broker": broker, "queue": queue, "tool": tool, "web": web}


def main(name: str) -> None:
    gc.disable()
    descriptors.own_descriptors()
    entry = functools.partial(become, PROGRAMS[name]())
    with socket.socket(fileno=os.dup(0)) as line:
        line.setblocking(False)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        gc.freeze()
        server = ForkServer(line, entry)
        server.say({"ready": True})
        server.run()


def become(program: Program, request: str, ready: int, stderr: int) -> int:
    """Be the process that `request` tells of; return its exit status."""
    for fd in (1, 2):
        os.dup2(stderr, fd)
    os.close(stderr)
    told = json.loads(request)
    os.environ.clear()
    os.environ.update(told["environment"])
    time.tzset()
    durable.arm(os.environ.get("RQ_CRASH_AT", ""))
    return program(told["words"], ready)


if __name__ == "__main__":
    main(sys.argv[1])
