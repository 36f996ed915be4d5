"""Whether a client may use a route: by its role, and the queues that it is about."""

from __future__ import annotations

from collections.abc import Mapping

from falcon.asgi import Request

from rq.access.roles import Principal, Role
from rq.errors import NotPermitted, OtherQueue
from rq.message import guarded
from rq.message.guarded import Sender
from rq.web.routes import Own, Right

_OF_A_SENDER = (
    " Pages tell of queues as a whole, and so of what others have sent. A sender sees what "
    "it has sent itself by /api/v1: listMessages, search, getMessage."
)


def check_right(
    principal: Principal | None, right: Right, params: Mapping[str, str]
) -> None:
    """Raise NotPermitted unless `principal` may use a route with these fields."""
    if principal is None or right.role is None:
        raise NotPermitted("No role may use this address.")
    queue = right.queue or params.get("name")
    # A sender may by what sends alone: all else is about what others send, too.
    is_open = right.own is Own.SENDS or not principal.sees_own_alone
    is_sent = right.role is Role.PRODUCER and is_open
    if queue and is_sent and principal.may_send(queue):
        return
    if queue and is_sent and principal.may(Role.SENDER):
        raise OtherQueue(
            f"{principal.name} may send to {', '.join(principal.queues)}; "
            f"this is about the queue {queue}."
        )
    if not (principal.may(right.role) or may_own(principal, right)):
        raise NotPermitted(
            f"{principal.name} is {principal.role} here; this needs {right.role}."
            f"{_OF_A_SENDER if principal.sees_own_alone else ''}"
        )
    if right.shared or not principal.is_limited:
        return
    if queue is None or not principal.sees(queue):
        what = f"the queue {queue}" if queue else "all queues"
        raise OtherQueue(
            f"{principal.name} may ask of {', '.join(principal.queues)}; "
            f"this is about {what}."
        )


def may_own(principal: Principal, right: Right) -> bool:
    """Whether a route does something for who has sent a message, and they may send."""
    is_about_theirs = right.own in (Own.MESSAGE, Own.LIST)
    return is_about_theirs and principal.may(Role.SENDER)


def is_about_own(principal: Principal | None, right: Right) -> bool:
    """Whether they may use a route only because a message is their own."""
    if principal is None or right.role is None or right.own is not Own.MESSAGE:
        return False
    return not principal.may(right.role)


def only_by(req: Request) -> str:
    """Return the user whose messages alone the client may see; "": those of all."""
    principal: Principal = req.context.principal
    return principal.user if principal.sees_own_alone else ""


def check_guarded(req: Request, right: Right, params: Mapping[str, str]) -> None:
    """Raise NotPermitted when a route sends to a guarded queue what that does not take
    from the one who asks."""
    queue = right.queue or params.get("name", "")
    if right.role is Role.PRODUCER and req.context.principal is not None:
        demand_guarded(req, queue, req.context.principal.sender)


def demand_guarded(req: Request, queue: str, sender: Sender) -> None:
    """Raise NotPermitted unless a queue takes messages from `sender`, or the operator
    admits relays of the host that asks."""
    if not req.context.trusted_relay:
        guarded.check(queue, sender)


def demand(req: Request, role: Role) -> None:
    """Raise NotPermitted unless the client has a role, for what a route's fields say."""
    req.context.role = role
    check_right(req.context.principal, Right(role=role, shared=True), {})
