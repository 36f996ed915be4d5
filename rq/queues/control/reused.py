"""Of a key that comes again with another request: in which fields the two differ; pure.

The line that took the key holds a digest of the request alone, so the fields are those of the
message as it is now. One that is gone, or can no more be read, differs in fields that
cannot be named; then the refusal does without them. Values are never told: a param may
be a secret of who sent the message first.
"""

from __future__ import annotations

from rq.errors import KeyReused
from rq.message.message import Message
from rq.message.table import OWN
from rq.spool import Accepted

_DUE = "due"  # moves while a message is tried again: told when nothing else differs
# What RQ itself changes.
_ASIDE = OWN | {_DUE, "cloned_from", "count", "dest", "orig_msg_id"}
_MOST = 10  # names in a sentence


def refusal(
    key: str | None, earlier: Accepted, both: tuple[Message, Message] | None
) -> KeyReused:
    """Return why a key does not stand for a request. `both`: the message of the key and
    the one that was asked for, where these are known."""
    names = [] if both is None else _differing(*both)
    fields = ", ".join(names[:_MOST]) + (" …" if len(names) > _MOST else "")
    return KeyReused(
        f"the key {key!r} came with another message before, {earlier.msg_id}"
        f"{f', which differs in {fields}' if fields else ''}: a key names one request"
    )


def _differing(before: Message, wanted: Message) -> list[str]:
    """Return the names of the fields in which two messages differ."""
    old, new = before.to_json(), wanted.to_json()
    names = sorted((old.keys() | new.keys()) - _ASIDE)
    differing = [name for name in names if old.get(name) != new.get(name)]
    return differing or ([_DUE] if before.due != wanted.due else [])
