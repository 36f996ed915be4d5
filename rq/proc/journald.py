"""Lines for the journal of systemd: what a person is to see in `journalctl -u rq -p err`.

They go to the socket of the journal, as datagrams of names and values. So a process whose
standard error is a file can say something there too, with a priority, and fields that
`journalctl RQ_QUEUE=mail` finds. No datagram is waited for: one that the journal has no
room for is lost, and the file in err remains.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping

SOCKET = "/run/systemd/journal/socket"
ERR = 3  # the priority that `journalctl -p err` shows
_LONGEST = 1000  # characters of a value


class Journald:
    """The journal of systemd."""

    def __init__(self, path: str = SOCKET) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def close(self) -> None:
        self._socket.close()

    def say(self, priority: int, text: str, values: Mapping[str, object]) -> None:
        """Say a line, with values that are found by their names."""
        fields = {
            "MESSAGE": text,
            "PRIORITY": priority,
            "SYSLOG_IDENTIFIER": "rq",
            **{f"RQ_{name.upper()}": value for name, value in values.items()},
        }
        datagram = b"".join(_field(name, str(value)) for name, value in fields.items())
        with contextlib.suppress(OSError):
            self._socket.sendto(datagram, self._path)


def of_service(environment: Mapping[str, str]) -> Journald | None:
    """Return the journal, if a service of systemd has started this process, which then
    says so; None: all stands in files alone."""
    if "JOURNAL_STREAM" in environment and os.path.exists(SOCKET):
        return Journald()
    return None


def _field(name: str, value: str) -> bytes:
    """Return a field as the journal's protocol has it: a value of several lines comes
    with its length.

    >>> _field("A", "b"), _field("A", "b\\nc")
    (b'A=b\\n', b'A\\n\\x03\\x00\\x00\\x00\\x00\\x00\\x00\\x00b\\nc\\n')
    """
    data = value[:_LONGEST].encode("utf-8", "backslashreplace")
    if b"\n" not in data:
        return f"{name}=".encode() + data + b"\n"
    return name.encode() + b"\n" + len(data).to_bytes(8, "little") + data + b"\n"
