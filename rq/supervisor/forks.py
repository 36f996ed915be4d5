"""The supervisor's end of the line to the fork server."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Callable
from typing import Any

_READ = 64 * 1024


class Forks:
    """Asks for queue processes; what the fork server says goes to `hear`."""

    def __init__(
        self, line: socket.socket, life: int, hear: Callable[[dict[str, Any]], None]
    ) -> None:
        self._line = line
        self._life = life
        self._hear = hear
        self._text = b""
        asyncio.get_running_loop().add_reader(line, self._receive)

    def ask(self, name: str) -> int:
        """Ask for the process of queue `name`; return where it will say it is ready."""
        ready, theirs = os.pipe()
        request = json.dumps({"name": name}).encode() + b"\n"
        try:
            socket.send_fds(self._line, [request], [theirs, self._life])
        except OSError:
            os.close(ready)
            raise
        finally:
            os.close(theirs)
        return ready

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._line)
        self._line.close()

    def _receive(self) -> None:
        try:
            data = self._line.recv(_READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._line)
            return
        *lines, self._text = (self._text + data).split(b"\n")
        for line in lines:
            self._hear(json.loads(line))
