"""A fork server for tests: that of the supervisor, whose children are told their words,
environment and stderr. `python -m harness.fork_server PROGRAM…`, as `forks` starts it."""

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
import subprocess
import sys
import time
from collections.abc import Callable

from harness.forks import Forked, Forks
from rq.files import durable
from rq.files.durable import crash_points
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
    from harness import compiled
    from rq.web import server

    compiled.compile_once()
    return lambda words, ready: server.main([*words, "--ready-fd", str(ready)])


def tool() -> Program:
    from rq import cli

    for module in pkgutil.iter_modules(cli.__path__):
        if module.name != "__main__":
            importlib.import_module(f"rq.cli.{module.name}")
    for late in ("rq.work.process", "rq.timers.__main__"):  # `rq work`, once it begins
        importlib.import_module(late)
    return run_tool


def run_tool(words: list[str], line: int) -> int:
    """Do as `python -m` with its words does, after the directory to do it in; its
    descriptors come over a socket."""
    directory, module, *sys.argv[1:] = words
    with socket.socket(fileno=line) as sock:
        numbers, files, _, _ = socket.recv_fds(sock, 4096, 16)
    _place(files, json.loads(numbers))
    os.chdir(directory)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    is_package = hasattr(importlib.import_module(module), "__path__")
    # runpy warns of a module that was imported.
    sys.modules.pop(f"{module}.__main__" if is_package else module, None)
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        sys.stdout.flush()
    return 0


def _place(files: list[int], numbers: list[int]) -> None:
    """Let each of these files be the descriptor that was asked for."""
    above = [descriptors.move_above(file, max(numbers) + 1) for file in files]
    for file, number in zip(above, numbers, strict=True):
        os.dup2(file, number)
        os.close(file)


def supervisor() -> Program:
    from harness import compiled
    from rq.supervisor import handle, program
    from rq.supervisor.table import HELPERS

    programs = [f"{module}.__main__" for module in HELPERS.values()]
    for module in ("rq.queues.process", "rq.web.server", *programs):
        importlib.import_module(module)
    compiled.compile_once()

    def run(words: list[str], ready: int) -> int:
        handle.launch = functools.partial(launch, nursery(ready))
        return program.main([*words, "--ready-fd", str(ready)])

    return run


def nursery(ready: int) -> Forks:
    """Fork a fork server for what this process starts, before it has begun anything; it
    ends with it."""
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        try:
            ours.close()
            os.close(ready)
            serve(theirs, {"tool": run_tool})
        finally:
            os._exit(0)
    theirs.close()
    return Forks(ours)


def launch(
    forks: Forks, words: list[str], stdin: int, printed: int, kept: tuple[int, ...] = ()
) -> Forked:
    """Do as `rq.supervisor.handle.launch` does, in a process that is forked."""
    with open(os.devnull) as null:
        standard = null.fileno() if stdin == subprocess.DEVNULL else stdin
        files = {0: standard, 1: printed, 2: printed, **{fd: fd for fd in kept}}
        return forks.run(words, os.environ, "/", files)


PROGRAMS = {
    "broker": broker,
    "queue": queue,
    "supervisor": supervisor,
    "tool": tool,
    "web": web,
}


def main(names: list[str]) -> None:
    gc.disable()
    descriptors.own_descriptors()
    programs = {name: PROGRAMS[name]() for name in names}
    line = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    serve(line, programs)


def serve(line: socket.socket, programs: dict[str, Program]) -> None:
    """Fork processes of these programs as they are asked for, until the line ends."""
    gc.disable()
    gc.freeze()
    with line:
        line.setblocking(False)
        server = ForkServer(line, functools.partial(become, programs))
        server.say({"ready": True})
        server.run()


def become(programs: dict[str, Program], request: str, ready: int, stderr: int) -> int:
    """Be the process that `request` tells of; return its exit status."""
    for fd in (1, 2):
        os.dup2(stderr, fd)
    os.close(stderr)
    told = json.loads(request)
    os.environ.clear()
    os.environ.update(told["environment"])
    time.tzset()
    durable.arm(os.environ.get("RQ_CRASH_AT", ""))
    if point := os.environ.get("RQ_HANG_AT"):
        crash_points.hook = functools.partial(hang, point)
    return programs[told["program"]](told["words"], ready)


def hang(point: str, passed: str) -> None:
    """Stop this process at a point, as one that hangs there."""
    if passed == point:
        os.kill(os.getpid(), signal.SIGSTOP)


if __name__ == "__main__":
    main(sys.argv[1:])
