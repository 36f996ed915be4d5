"""A fork server for tests: that of the supervisor, whose children are told their words,
environment and stderr. `python -m harness.fork_server PROGRAM`, as `forks` starts it."""

from __future__ import annotations

import functools
import gc
import json
import os
import socket
import sys
import time
from collections.abc import Callable

from rq import durable
from rq.proc import descriptors
from rq.supervisor.forkserver import ForkServer

Program = Callable[[list[str], int], int]  # its words, readiness -> exit status


def queue() -> Program:
    from harness import owner_process

    def run(words: list[str], ready: int) -> int:
        root, name, user = words
        return owner_process.main(root, name, str(ready), user)

    return run


def web() -> Program:
    from rq.web import server

    return lambda words, ready: server.main([*words, "--ready-fd", str(ready)])


PROGRAMS = {"queue": queue, "web": web}


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
