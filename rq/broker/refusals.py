"""Commands that are refused before anybody looks at what they ask."""

from __future__ import annotations

from rq.broker.admin.authentication import BEFORE_AUTH
from rq.broker.admin.command import AdminCommand
from rq.broker.bounds import LONGEST_WORD, has_long_word
from rq.broker.connection import Connection
from rq.broker.dialects import call
from rq.broker.dialects.call import Command
from rq.resp import Failure

# A page that somebody visits must not be able to send jobs.
_HTTP = frozenset(
    b"GET HEAD POST PUT DELETE CONNECT OPTIONS TRACE PATCH PRI HOST:".split()
)
_NO_AUTH = Failure("NOAUTH Authentication required.")
NO_MEMORY = Failure(call.NO_MEMORY)
_LONG_WORD = Failure(f"ERR a name or a number has at most {LONGEST_WORD} bytes")


def refused(
    connection: Connection,
    command: list[bytes],
    entry: Command | AdminCommand | None,
) -> Failure | None:
    """Return why a command is not obeyed, by its name, its words, and whose it is."""
    if entry is None:
        typed = command[0].decode(errors="replace")
        return Failure(f"ERR unknown command '{typed:.128}'")
    if not entry.takes(len(command)):
        typed = command[0].decode(errors="replace").lower()
        return Failure(f"ERR wrong number of arguments for '{typed}' command")
    if connection.principal is None and command[0].upper() not in BEFORE_AUTH:
        return _NO_AUTH
    is_of_jobs = isinstance(entry, Command)
    if is_of_jobs and has_long_word(command[0].upper(), command[1:]):
        return _LONG_WORD
    return None


def is_http(name: bytes, command: list[bytes]) -> bool:
    """Whether a command that there is not is the line of a request. GET with the name of
    a key is none."""
    if name == b"GET" and not command[-1].startswith((b"/", b"HTTP/")):
        return False
    return name in _HTTP or command[-1].startswith(b"HTTP/")
