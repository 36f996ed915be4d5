"""The servers of peers, each with every write on disk before its answer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import server


@dataclass(frozen=True, kw_only=True)
class Program:
    """A server at work on loopback."""

    port: int
    pid: int


@contextlib.contextmanager
def redis(where: Path) -> Iterator[Program]:
    """Run a Redis whose files lie in `where`; it syncs its file before each answer."""
    port = server.free_port()
    command = f"redis-server --port {port} --bind 127.0.0.1 --dir {where}"
    command += " --appendonly yes --appendfsync always --save"
    # PONG only when the file has been read; before that LOADING.
    with _running(
        [*command.split(), ""], where, port, b"PING\r\n", b"+PONG"
    ) as program:
        yield program


@contextlib.contextmanager
def beanstalkd(where: Path) -> Iterator[Program]:
    """Run a beanstalkd whose log lies in `where`; it syncs that before each answer."""
    port = server.free_port()
    where.joinpath("binlog").mkdir(exist_ok=True)
    words = f"beanstalkd -l 127.0.0.1 -p {port} -f0 -b {where}/binlog".split()
    # It answers when the binlog has been read.
    with _running(words, where, port, b"stats\r\n", b"OK") as program:
        yield program


@contextlib.contextmanager
def _running(
    words: Sequence[str], where: Path, port: int, request: bytes, answer: bytes
) -> Iterator[Program]:
    command = [server.found(words[0]), *words[1:]]
    with server.running(command, where / f"{words[0]}.log") as child:
        server.until(lambda: server.says(port, request, answer), 300)
        yield Program(port=port, pid=child.pid)
