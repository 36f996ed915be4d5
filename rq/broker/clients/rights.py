"""Whether a client may ask what it asks: by its role, and by the queues that it may use. Pure.

What a command takes stands in its row (`dialects.call.Command`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rq.access.roles import Principal, Role
from rq.broker.dialects.call import Call, Command, Refusal
from rq.broker.state import ids


def check(
    principal: Principal | None,
    name: bytes,
    command: Command,
    call: Call,
) -> None:
    """Refusal when a client may not ask this."""
    principal = principal or _admitted(principal)
    if principal.role is Role.ADMIN and not principal.is_limited:
        return  # as most, for whom nothing below is looked at
    _check_is_no_sender(principal)
    role = command.takes_role
    queues: Sequence[bytes] | None = ()
    if principal.is_limited or not principal.may(role):
        queues = _queues(command, call)
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


def _check_is_no_sender(principal: Principal) -> None:
    """Refusal for who sees nothing but its own messages: of a job none tells whose it
    is."""
    if principal.sees_own_alone:
        raise Refusal(
            f"NOPERM {principal.name} is {principal.role}, who sends to queues of RQ alone "
            f"(rq:NAME); all else takes the role {Role.VIEWER}, or more"
        )


# What a sender may ask of the broker itself: of its own connection, and what is the same for
# all. None: in all its words.
_OF_ITSELF: Mapping[bytes, frozenset[bytes] | None] = {
    **dict.fromkeys(
        (b"AUTH", b"HELLO", b"QUIT", b"PING", b"ECHO", b"TIME", b"COMMAND")
    ),
    b"CLIENT": frozenset(
        (b"ID", b"INFO", b"GETNAME", b"SETNAME", b"SETINFO", b"REPLY", b"NO-TOUCH")
    ),
}


def check_itself(
    principal: Principal | None, name: bytes, args: Sequence[bytes]
) -> None:
    """Refusal when a sender asks the broker about itself what tells of others."""
    if principal is None or not principal.sees_own_alone:
        return
    words = _OF_ITSELF.get(name, frozenset())
    if words is not None and (not args or args[0].upper() not in words):
        raise Refusal(
            f"NOPERM {principal.name} is {principal.role} here, and "
            f"{name.decode().lower()} tells of others"
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


def _queues(command: Command, call: Call) -> Sequence[bytes] | None:
    """Return the queues that a command is about; None: it does not tell. Of jobs that there
    are not nothing is done, so they are of no queue."""
    if not command.of_jobs:
        return command.queues_of(call)
    by_id = call.node.jobs.by_id
    jobs = (by_id.get(ids.parsed(arg) or "") for arg in call.args)
    return [job.queue.name for job in jobs if job is not None]
