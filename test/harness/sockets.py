"""Asking as programs do that know no kinds of failures: a request, and a reply to it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rq.rpc import client


@contextlib.contextmanager
def old_line(path: Path, timeout: float = 20.0) -> Iterator[client.Connection]:
    """Give a connection on which nothing is sent but what is asked."""
    with client.Connection(path, timeout) as line:
        line._kinds = client.Kinds(is_to_ask=False)
        yield line


def old_ask(
    path: Path,
    command: str,
    arg: object = b"",
    fds: Sequence[int] = (),
    timeout: float = 20.0,
) -> Any:
    with old_line(path, timeout) as line:
        return line.ask(command, arg, fds)
