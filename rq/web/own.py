"""What a sender is shown of its own messages: nothing that tells of those of others.

Why a message waits often names other messages, or how many there are; a batch counts its
members, and its output is of all of them. So of what RQ adds to a message only that is
shown which is of this message alone; a field that RQ learns later is hidden until it stands
in a list here. What the sender itself has said of it is shown as it was said.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import cast

from rq import names
from rq.access import attempt_tokens
from rq.access.roles import Principal, Role
from rq.errors import BadInput, NoSuchMessage, NoSuchQueue, NotPermitted
from rq.message import after
from rq.message.table import BY_NAME, KEPT
from rq.message.waits import Reason
from rq.outbound import peers
from rq.replies import (
    AttemptRow,
    AttemptsView,
    MessageRow,
    MessageView,
    Result,
    WhyView,
)
from rq.web import reading
from rq.web.site import Site
from rq.words.nesting import Json

NOT_FOUND = "msg not found"  # of an id that is in no state, and never will be
_TURN = "It waits for its turn."
_SELF = "Nothing; it starts by itself."
# Reasons that are of the message alone, or of what its sender has named.
_OF_ITS_OWN = frozenset(
    {Reason.PREP, Reason.TXN, Reason.HELD, Reason.DUE, Reason.AFTER}
)
_RESULT = frozenset(
    {
        *("job_status", "cause", "exit", "signal", "attempt", "count", "wait_us"),
        *("run_us", "cpu_us", "max_rss", "outcome", "result", "tries", "finished"),
        *("started", "printed", "how", "text"),
    }
)
_ADDED = frozenset(
    {
        *("queue", "state", "status", "phase", "removed_at", "next_attempt"),
        *("acknowledged", "_txn", "_limits", "_silent"),
    }
)
_ROW = frozenset(
    {
        *("queue", "msg_id", "state", "due", "count", "attempt", "status", "txn"),
        *("next_attempt", "started", "ended", "run_us", "wait_us", "cause"),
        *("param1", "param2", "param3", "param4"),
    }
)


async def check(site: Site, principal: Principal, name: str, msg_id: str) -> None:
    """Refuse who has not sent a message. To who sees none but its own, one of another
    sender is as one that does not exist, in the same words."""
    if await _has_sent(site, principal, name, msg_id):
        return
    if principal.sees_own_alone:
        raise NoSuchMessage(NOT_FOUND)
    raise NotPermitted(
        f"{principal.name} is {principal.role} here; of messages of other senders this "
        f"needs {Role.OPERATOR}."
    )


async def _has_sent(site: Site, principal: Principal, name: str, msg_id: str) -> bool:
    try:
        view = await reading.message(site, name, names.msg_id(msg_id))
    except (BadInput, NoSuchMessage, NoSuchQueue):
        return False
    return view.get("by") == principal.user


async def check_after(
    site: Site, principal: Principal, name: str, fields: Mapping[str, object]
) -> None:
    """Write the message that the asking script works on for `self`. BadMessage when a
    message of a queue names a predecessor that its sender may neither see nor has sent, in
    the words for one that is not there."""
    named = fields.get("after")
    place = attempt_tokens.message_of(principal)
    if place and isinstance(fields, dict) and after.names_self(named):
        named = fields["after"] = after.with_self(named, place)
    if not named or not (principal.is_limited or principal.sees_own_alone):
        return
    is_here = functools.partial(peers.is_here, own=site.config)
    for place in after.stored(cast(Json, named), name, is_here):
        queue, _, msg_id = place.partition("/")
        if not principal.sees_own_alone and principal.sees(queue):
            continue
        if not await _has_sent(site, principal, queue, msg_id):
            raise after.not_there(place)


def message(view: reading.Message) -> reading.Message:
    """Return what a sender is shown of its message."""
    allowed = {name: value for name, value in view.items() if _is_its(name)}
    allowed["result"] = _of_result(view.get("result", {}))
    if (files := view.get("_attachments")) is not None:
        without = ((file, {**it, "path": ""}) for file, it in files.items())
        allowed["_attachments"] = dict(without)
    why, story = view.get("_why"), view["story"]
    allowed["story"] = story
    if why is not None and why["reason"] not in _OF_ITS_OWN:
        allowed["story"] = {"what": story["what"], "why": _TURN, "todo": _SELF}
    if why is not None:
        allowed["_why"] = _why(why)
    return cast(reading.Message, allowed)


def _is_its(name: str) -> bool:
    """Whether a field is its sender's own, kept with the message, or of it alone."""
    if name in KEPT or name in _ADDED:
        return True
    return name not in BY_NAME and name not in MessageView.__annotations__


def row(listed: MessageRow) -> MessageRow:
    """Return what a sender is shown of its message in a list."""
    allowed = {name: value for name, value in listed.items() if name in _ROW}
    if (why := listed.get("why")) is not None:
        visible = _why(why)
        allowed |= {"why": visible, "waiting": visible["text"]}
    return cast(MessageRow, allowed)


def attempts(view: AttemptsView) -> AttemptsView:
    """Return what a sender is shown of the attempts on its message."""
    rows = [cast(AttemptRow, _of_result(each)) for each in view["attempts"]]
    return {"attempts": rows, "left_out": view["left_out"]}


def check_log(attempts: Sequence[AttemptRow], attempt: int | None) -> None:
    """NotPermitted when the output of an attempt, or of the last one, is of others, too."""
    of = [each for each in attempts if attempt in (None, each.get("attempt"))]
    if of and "batch" in of[-1]:
        raise NotPermitted(
            "the output of a batch is of all its messages: to read it takes the role viewer"
        )


def _why(why: WhyView) -> WhyView:
    if why["reason"] in _OF_ITS_OWN:
        return why
    return {"reason": Reason.SLOT, "text": _TURN, "until": None, "by": None}


def _of_result(result: Mapping[str, object]) -> Result:
    return cast(Result, {n: v for n, v in result.items() if n in _RESULT})
