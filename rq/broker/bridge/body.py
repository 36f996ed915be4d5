"""The body of a job as the fields of a message, and the other way round. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import orjson

from rq.broker.dialects.call import Refusal
from rq.message import fieldnames
from rq.message.fields import ENV_STRING_LIMIT, param_text
from rq.message.message import MESSAGE_LIMIT, too_large
from rq.message.table import FIELDS, PARAMS, REBUILT
from rq.words.nesting import Json

LEASE_SECONDS = "lease_seconds"  # the field that keeps what a producer says with RETRY
# Beside a key of the sender's: the owner refuses it when it came with another message.
SAME = "_same"
_FIRST = PARAMS[0]
_NOT_SHOWN = FIELDS - set(PARAMS) | {LEASE_SECONDS, REBUILT}
_NO_TEXT = (
    "ERR the body is not UTF-8, and a message of RQ holds text: send bytes as base64, or "
    "as an attachment with `rq send`"
)


def fields_of(body: bytes) -> dict[str, Json]:
    """Return the fields of the message that a job becomes: those of a JSON object, else
    one, with all of its body. Refusal: no message can hold it.

    >>> fields_of(b"hello"), fields_of(b'{"param2": 7}')
    ({'param1': 'hello'}, {'param2': 7})
    """
    if len(body) > MESSAGE_LIMIT:
        raise Refusal(f"ERR {too_large(len(body))}")
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise Refusal(_NO_TEXT) from None
    if text.lstrip().startswith("{"):
        try:
            fields = orjson.loads(text)
        except orjson.JSONDecodeError:
            return _in_a_param(text)
        if isinstance(fields, dict):
            return {**fields, SAME: True} if fieldnames.KEY in fields else fields
    return _in_a_param(text)


def _in_a_param(text: str) -> dict[str, Json]:
    if len(text) > ENV_STRING_LIMIT:
        raise Refusal(
            f"ERR the body has {len(text)} characters, and a param of a message at most "
            f"{ENV_STRING_LIMIT} bytes: send large data as an attachment"
        )
    return {_FIRST: text}


def body_of(message: Mapping[str, object], files: Sequence[str] = ()) -> bytes:
    """Return the body of the job that a message becomes: its first param, if it has no
    other fields of its sender's, else a JSON object of them. `files`: its attachments.

    >>> body_of({"dest": "mail", "param1": "hello"})
    b'hello'
    >>> body_of({"dest": "mail", "param1": "hello", "to": "all"})
    b'{"param1":"hello","to":"all"}'
    >>> body_of({"param1": "hello", "orig_msg_id": "http://far/q/mail/1", "hops": 1})
    b'hello'
    >>> body_of({"param1": "hello", "rebuilt": True})
    b'hello'
    """
    hidden = _NOT_SHOWN
    if fieldnames.ORIGIN in message:  # else a sender may have a field of that name
        hidden |= {fieldnames.HOPS}
    sent = (name for name in message if name not in hidden)
    own = cast(dict[str, Json], {name: message[name] for name in sent})
    if files:
        own["attachments"] = list(files)
    if not own.keys() - {_FIRST}:
        return param_text(own.get(_FIRST, "")).encode()
    return orjson.dumps(own)
