"""The names of a message's fields, and what a new message may not call one.

A field that RQ does not know survives, for scripts to read. One that looks as if it told
RQ what to do, and does not, would do so in silence: it is refused where a client creates a
message. What was accepted elsewhere or before (relay, `new/`, copies, folders) is taken as
it is.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from rq.errors import BadMessage
from rq.message.table import BY_NAME, DROPPED, FIELDS, ROWS, SAID_BY_SENDERS
from rq.words import visible
from rq.words.nesting import Json, as_json

URLS_CUT = "post_run_webhook_cut"  # a sentence, of a message with more from before
KEY = "_key"
# Said by RQ's own user and root alone:
KEY_OF = "_key_of"  # beside a key: whose it is
PREPARER = "_preparer"  # the user who prepares, or changes what is prepared
AS_OPERATOR = "_as_operator"  # beside that: also what others prepare
BY = "_by"  # who sends the message, as the door knows it
# How a timer is called there. No name of a user holds a colon: none is taken for one.
OF_TIMER = "timer:"
FLOW_KEY = "flow/"  # how the keys begin under which the messages of a flow are sent
RELAY_KEY = "relay/"  # how the keys begin under which other hosts hand messages over
HOPS = "hops"  # a field of its own: how often the message was relayed
ORIGIN = "orig_msg_id"

# Of a queue's config alone, which root writes: no message says them.
OF_CONFIG = frozenset({"umask", "no_new_privs"})
# What steering a message will be called, and what other queues call it; until RQ knows it,
# nothing may rely on it.
RESERVED: Mapping[str, tuple[str, ...]] = {
    "key": (),
    "retry": ("backoff", "retry_delay", "retry_wait"),
}
_SHORTEST = 5  # characters of a field that a name one edit away is taken for
_LONGEST = 40  # characters of a name that can be like one of ours
_OFTEN = frozenset({"grace"})  # many words of other trades are one letter away
_PARAM = re.compile(r"param\d+", re.ASCII)


def check(fields: Mapping[str, object]) -> None:
    """BadMessage when a field of a new message is called like one that steers it."""
    if fields.keys() <= FIELDS:
        return
    for name in fields:
        if isinstance(name, str) and len(name) <= _LONGEST and name not in FIELDS:
            sentence = _refusal(name)
            if sentence:
                raise BadMessage(sentence)


def own(
    fields: Mapping[str, Json], ours: AbstractSet[str], *, is_new: bool
) -> Mapping[str, Json]:
    """Return the fields that RQ does not know, a sender's own; BadMessage when one cannot
    be kept or, of a new message, is called like one that steers it."""
    unknown = {name: value for name, value in fields.items() if name not in ours}
    if is_new:
        check(unknown)
    for name, value in unknown.items():
        as_json(name, value)
    return unknown


def is_handed_on(fields: Mapping[str, object], key: str | None) -> bool:
    """Return whether another RQ hands on what it has accepted: its key says so, or, of
    the ancestor's relay, that there was a first message."""
    return bool(fields.get("orig_msg_id")) or (key or "").startswith(RELAY_KEY)


@functools.lru_cache(maxsize=1024)
def _refusal(name: str) -> str:
    """Return why no field may be called `name`, "" when one may."""
    if name.lower().startswith(("x_", "x-")) or _PARAM.fullmatch(name):
        return ""
    plain = _plain(name)
    ours = _BY_OTHERS.get(plain)
    field = None if ours else _like(name, plain)
    if plain not in _OF_CONFIG and ours is None and field is None:
        return ""
    own = f"x_{visible.line(name)}"
    if plain in _OF_CONFIG:
        return (
            f"{name!r} is no field of a message: only the config of its queue sets it"
        )
    if ours is not None and ours in RESERVED:
        again = "" if plain == _plain(ours) else f" for {ours}"
        return (
            f"{name!r} is reserved{again}: RQ will know it and does not yet; a field of "
            f"your own can be called {own}"
        )
    if ours is not None:
        return f"{name!r} is no field of a message: say {ours} ({BY_NAME[ours].said})"
    whose = ", which RQ alone writes" if field not in SAID_BY_SENDERS else ""
    return (
        f"{name!r} is no field of a message; did you mean {field!r}{whose}? A field of "
        f"your own can be called {own}"
    )


def _plain(name: str) -> str:
    """Return a name without what people write differently: capitals, dashes, blanks."""
    return name[:1].lower() + re.sub(r"[-_ ]", "", name[1:].lower())


def _like(name: str, plain: str) -> str | None:
    """Return the field that a client may have meant by `name`. A message may have some
    90,000 fields, and its owner looks at each: so no field of ours is compared with one
    that cannot be like it."""
    near, cuts = [*_PLAINLY.get(plain, ())], _cuts(name)
    if not _BY_CUT.keys().isdisjoint(cuts):
        fields = (field for cut in cuts for field in _BY_CUT.get(cut, ()))
        near += (field for field in fields if _one_edit(name, field))
    return min(near, default=None)


def _cuts(name: str) -> list[str]:
    """Return a name, and what it is without each of its letters: names that are one edit
    away from each other have one of these in common.

    >>> _cuts("due")
    ['due', 'ue', 'de', 'du']
    """
    return [name, *(name[:at] + name[at + 1 :] for at in range(len(name)))]


def _one_edit(name: str, other: str) -> bool:
    """Return whether a letter more, less, changed, or two in the other order make one of
    the other.

    >>> [_one_edit("max_count", n) for n in ("maxcount", "max_coutn", "max_kount", "max")]
    [True, True, True, False]
    """
    if len(name) > len(other):
        name, other = other, name
    at = next(
        (i for i, (a, b) in enumerate(zip(name, other, strict=False)) if a != b), None
    )
    if at is None:
        return len(other) - len(name) <= 1
    if len(name) < len(other):
        return name[at:] == other[at + 1 :]
    swapped = name[at : at + 2] == other[at : at + 2][::-1]
    return name[at + 1 :] == other[at + 1 :] or (
        swapped and name[at + 2 :] == other[at + 2 :]
    )


_OF_CONFIG = frozenset(map(_plain, OF_CONFIG))
_BY_OTHERS = {
    **{_plain(other): row.name for row in ROWS for other in row.called},
    **{_plain(other): ours for ours, others in RESERVED.items() for other in others},
    **{_plain(name): name for name in RESERVED},
}


def _index(pairs: Iterable[tuple[str, str]]) -> Mapping[str, Sequence[str]]:
    """Return the fields by each text that leads to them."""
    by_text: dict[str, list[str]] = {}
    for text, field in pairs:
        by_text.setdefault(text, []).append(field)
    return by_text


_AS_IT_IS = DROPPED | _OFTEN
_PLAINLY = _index((f if f in _AS_IT_IS else _plain(f), f) for f in FIELDS)
_BY_CUT = _index(
    (cut, field)
    for field in FIELDS - _AS_IT_IS
    if len(field) >= _SHORTEST
    for cut in _cuts(field)
)
