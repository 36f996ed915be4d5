"""What a script is told of the messages that its own has waited for: RQ_AFTER, a file of a
JSON object a line.

It is made by a thread when an attempt starts, from folders alone: predecessors may be in
any queue of the root, and none of their owners is asked for as many as ten thousand. A
result and attachments stand in it only where who has sent the message may read that
predecessor now; the message was accepted with its name, and rights may have changed since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import orjson

from rq.access import logins, tokens
from rq.access.roles import Principal, Role
from rq.config.settings import RootConfig
from rq.errors import RQError
from rq.layout import AFTER_FILE, ATTACH, QueueDir, Root
from rq.message.after import only_result, queue_of
from rq.message.message import Message
from rq.replies import Result
from rq.spool import folders
from rq.words.nesting import Json
from rq.words.states import LIVE, State

FILE = AFTER_FILE
# Bytes of results that one answer to who asks for leases tells: as many as memory holds
# easily of it, here, in the web and at the worker.
_RESULTS = 8 * 1024 * 1024
_HOPS = 10  # ids under which one message goes on, at most

ToldRow = Mapping[str, Json]  # what is told of one predecessor
MayRead = Callable[[str, str | None], bool]  # queue, who has sent the message there


class AfterFile(NamedTuple):
    """What a script is told."""

    data: bytes  # of the file
    result: str | None  # of the only predecessor


class _Place(NamedTuple):
    """Where a predecessor is now."""

    queue: QueueDir
    state: State
    msg_id: str


def readers(root: Root, config: RootConfig, by: str | None) -> MayRead:
    """Return what who has sent a message may read now: RQ itself and users of this machine
    all, others what their role and queues allow, and what they have sent themselves."""
    principals = None if by is None else _principals(root, config, by)

    def may(queue: str, sent_by: str | None) -> bool:
        if principals is None or sent_by == by:
            return True
        return any(each.may(Role.VIEWER) and each.sees(queue) for each in principals)

    return may


def _principals(root: Root, config: RootConfig, by: str) -> Sequence[Principal] | None:
    """Return as whom the sender of a message may come by the web, none if its token was
    revoked; None: it does not come by the web."""
    user = logins.users(config).get(by)
    principals = [] if user is None else [user.principal]
    # A token may be of any user, also of one who has no login.
    every = (token.principal for token in tokens.read(root))
    principals += [principal for principal in every if principal.user == by]
    return principals if principals or by.startswith("token:") else None


def build(root: Root, message: Message, may: MayRead) -> AfterFile:
    """Return what the script of a message is told. Blocks."""
    rows = list(_rows(root, message, may))
    result = only_result(rows)
    data = b"".join(orjson.dumps(row) + b"\n" for row in rows)
    return AfterFile(data, None if result is None else str(result))


def for_leases(
    root: Root, config: RootConfig, messages: Iterable[Message]
) -> Mapping[str, Sequence[ToldRow]]:
    """Return, by its id, what the holder of each leased message is told: he is on another
    host, and gets names of attachments instead of paths. Blocks."""
    by_message, room = {}, _RESULTS
    for message in messages:
        may, rows = readers(root, config, message.by), []
        for each in _rows(root, message, may):
            row = _without_paths(each)
            room -= len(str(row.get("result", "")))
            rows.append(row if room >= 0 else _without_result(row))
        by_message[message.msg_id] = rows
    return by_message


def _without_paths(row: ToldRow) -> ToldRow:
    paths = row.get("attachments")
    return {**row, "attachments": list(paths)} if isinstance(paths, Mapping) else row


def _without_result(row: ToldRow) -> ToldRow:
    """Return a row for which there is no room; one without a result stays as it is."""
    if "result" not in row:
        return row
    return {**{k: v for k, v in row.items() if k != "result"}, "left_out": True}


def _rows(root: Root, message: Message, may: MayRead) -> Iterator[ToldRow]:
    for place in message.after:
        queue, msg_id = queue_of(place), place.partition("/")[2]
        row: dict[str, Json] = {"id": msg_id, "queue": queue}
        try:
            at = _find(root, place)
            yield {**row, **({"gone": True} if at is None else _row(at, may))}
        except (RQError, OSError) as error:
            yield {**row, "unread": str(error)}


def _find(root: Root, place: str) -> _Place | None:
    """Return where a predecessor is, under whatever id it went on; None: nowhere."""
    for _ in range(_HOPS):
        queue, msg_id = root.queue(queue_of(place)), place.partition("/")[2]
        state = folders.find(queue, msg_id)
        if state is None:
            return None
        goes_on = (
            None if state in LIVE else _status(queue, state, msg_id).get("goes_on")
        )
        if goes_on is None:
            return _Place(queue, state, msg_id)
        place = str(goes_on)
    return None


def _status(queue: QueueDir, state: State, msg_id: str) -> Result:
    return folders.read_status(queue, state, msg_id)


def _row(at: _Place, may: MayRead) -> ToldRow:
    queue, state, msg_id = at
    status = _status(queue, state, msg_id) if state not in LIVE else {}
    row: dict[str, Json] = {
        "state": "err" if state is State.DISMISSED else str(state),
        "cause": status.get("cause", ""),
    }
    message = folders.read_message(queue, state, msg_id)
    if not may(queue.name, message.by):
        return row
    if "result" in status:
        row["result"] = status["result"]
    if message.attachments:
        place = queue.message(state, msg_id) / ATTACH
        row["attachments"] = {name: str(place / name) for name in message.attachments}
    return row
