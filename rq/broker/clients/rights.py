"""What a role may ask of the broker, and of which queues somebody may who may not of
all. Pure.

Deny by default: a command of a dialect that writes and is named nowhere here is for
operators, and one that does not tell its queues is not for whoever is limited to some.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rq.access.roles import Principal, Role
from rq.broker.desks.node import Node
from rq.broker.dialects.call import Command, Refusal
from rq.broker.dialects.disque_jobs import getting_in
from rq.broker.dialects.redisrq import popping_in
from rq.broker.state import ids

_PRODUCES = frozenset({b"ADDJOB", b"RQ.PUSH", b"QADD"})
_WORKS = frozenset(
    b"GETJOB ACKJOB FASTACK NACK WORKING RQ.POP RQ.ACK RQ.RECOVER QGET QACK QNOTIFY".split()
)
# Where the names of queues are: the first, the last (-1: the end), the step.
PLACES: Mapping[bytes, tuple[int, int, int]] = {
    **dict.fromkeys(
        b"ADDJOB QLEN QPEEK QSTAT PAUSE RQ.PUSH RQ.ACK RQ.RECOVER RQ.INSPECT RQ.INFO "
        b"QADD QGET QACK QFLUSH TYPE".split(),
        (1, 1, 1),
    ),
    **dict.fromkeys(b"QLPUSH QRPUSH QLPEEK QRPEEK QRPOP".split(), (1, 1, 1)),
    **dict.fromkeys((b"EXISTS", b"DEL", b"UNLINK", b"QREGISTER"), (1, -1, 1)),
    b"QNOTIFY": (3, -1, 1),
}
MOVING = frozenset((b"GETJOB", b"RQ.POP"))  # names of queues stand behind options
_OF_JOBS = frozenset(b"SHOW ACKJOB FASTACK DELJOB NACK ENQUEUE DEQUEUE WORKING".split())


def role_for(name: bytes, command: Command) -> Role:
    """Return the role that a command of a dialect takes."""
    if name in _PRODUCES:
        return Role.PRODUCER
    if name in _WORKS:
        return Role.WORKER
    return Role.OPERATOR if command.writes else Role.VIEWER


def check(
    principal: Principal | None,
    name: bytes,
    command: Command,
    node: Node,
    args: Sequence[bytes],
) -> None:
    """Refusal when somebody may not ask this."""
    principal = principal or _admitted(principal)
    if principal.role is Role.ADMIN and not principal.is_limited:
        return
    role = role_for(name, command)
    queues: Sequence[bytes] | None = ()
    if principal.is_limited or not principal.may(role):
        queues = _queues(name, node, args)
    if queues is None:
        raise Refusal(
            f"NOPERM {principal.name} may ask of some queues alone, and "
            f"{name.decode().lower()} does not say of which"
        )
    if role is Role.PRODUCER and queues and _may_send(principal, queues):
        return
    if not principal.may(role):
        raise Refusal(
            f"NOPERM {principal.name} may not ask {name.decode().lower()}: it takes the "
            f"role {role}"
        )
    for queue in queues:
        if not principal.sees(_text(queue)):
            raise Refusal(
                f"NOPERM {principal.name} may not ask of the queue {_text(queue)}"
            )


def require(principal: Principal | None, role: Role, what: str) -> None:
    """Refusal unless a client may do what `role` may; `what` names the command. What takes
    the role of an admin is about all queues."""
    if principal is None or not principal.may(role):
        raise Refusal(
            f"NOPERM this user ({_name(principal)}) may not ask {what}: it takes "
            f"the role {role}"
        )
    if role is Role.ADMIN:
        require_all_queues(principal, what)


def require_all_queues(principal: Principal | None, what: str) -> None:
    """Refusal for a client that may ask of some queues alone."""
    if principal is None or principal.is_limited:
        raise Refusal(
            f"NOPERM {_name(principal)} may ask of some queues alone, and {what} tells "
            "of all"
        )


def _name(principal: Principal | None) -> str:
    return "nobody" if principal is None else principal.name


def _admitted(principal: Principal | None) -> Principal:
    """Return who asks; Refusal when the password was changed while a body was written."""
    if principal is None:
        raise Refusal("NOAUTH Authentication required.")
    return principal


def _may_send(principal: Principal, queues: Sequence[bytes]) -> bool:
    return all(principal.may_send(_text(queue)) for queue in queues)


def _text(queue: bytes) -> str:
    return queue.decode(errors="backslashreplace")


def _queues(name: bytes, node: Node, args: Sequence[bytes]) -> list[bytes] | None:
    """Return the queues that a command is about; None: it does not tell. What is no such
    command is about none, and is refused as that."""
    return _of_jobs(node, args) if name in _OF_JOBS else named_queues(name, args)


def named_queues(name: bytes, args: Sequence[bytes]) -> list[bytes] | None:
    """Return the queues that a command names; None: none. Refusal: its words make no
    sense."""
    if name in PLACES:
        first, last, _ = PLACES[name]
        return list(args[first - 1 : None if last < 0 else last]) or None
    if name == b"GETJOB":
        return getting_in(list(args)).queues
    return popping_in(list(args))[2] if name == b"RQ.POP" else None


def _of_jobs(node: Node, args: Sequence[bytes]) -> list[bytes]:
    """Return the queues of the jobs that there are; of others nothing is done."""
    there = (node.jobs.by_id.get(ids.parsed(arg) or "") for arg in args)
    return [job.queue.name for job in there if job is not None]
