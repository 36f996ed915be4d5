"""A command about the broker itself: what it does, and how many words it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from rq.access.roles import Role
from rq.broker.connection import Connection
from rq.broker.dialects.call import Blocked, Refusal
from rq.resp import Value

if TYPE_CHECKING:
    from rq.broker.server import Server

Args = list[bytes]
Function = Callable[["Server", Connection, Args], Value | Blocked]
MOST_ROWS = 1000  # that are shown at a time
MOST_PATTERNS = 16  # in one command
_LONGEST_PATTERN = 128  # bytes; nobody is served while one is made ready


@dataclass(frozen=True, slots=True)
class AdminCommand:
    """What a name does; `arity` as in `Command`."""

    function: Function
    arity: int

    def takes(self, words: int) -> bool:
        """Whether a command may have so many words, its name counted."""
        return words == self.arity if self.arity >= 0 else words >= -self.arity


def require(connection: Connection, role: Role, what: str) -> None:
    """Refusal unless a client may do what `role` may; `what` names it. What an admin may
    is about all queues."""
    if not connection.may(role):
        raise Refusal(
            f"NOPERM this user ({_name(connection)}) may not ask {what}: it takes "
            f"the role {role}"
        )
    if role is Role.ADMIN:
        require_all_queues(connection, what)


def require_all_queues(connection: Connection, what: str) -> None:
    """Refusal for whoever may ask of some queues alone."""
    if connection.principal is None or connection.principal.is_limited:
        raise Refusal(
            f"NOPERM {_name(connection)} may ask of some queues alone, and {what} tells "
            "of all"
        )


def fitting(names: Iterable[str], pattern: bytes) -> set[str]:
    """Return the names that fit a pattern, in whatever case that is; Refusal when it is
    longer than one of use."""
    if len(pattern) > _LONGEST_PATTERN:
        raise Refusal(f"ERR a pattern has at most {_LONGEST_PATTERN} bytes")
    text = pattern.decode(errors="replace").lower()
    return {name for name in names if fnmatchcase(name, text)}


def _name(connection: Connection) -> str:
    return "nobody" if connection.principal is None else connection.principal.name
