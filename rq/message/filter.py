"""Which messages are meant: a filter as a value, and whether a message matches it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rq import names
from rq.errors import BadInput
from rq.message.causes import Cause
from rq.message.group import group
from rq.message.table import PARAMS
from rq.words import moments
from rq.words.nesting import Json
from rq.words.states import COUNTED, State

TEXT_LIMIT = 4096  # characters of a text that is looked for
_TIMES = ("before", "after")
OLDER = "older"  # as people say it: 90 (seconds), 10m, 2d
MOST_IDS = 1000  # that one filter names
MOST_WORDS = 16  # each is looked for in all that a message says, up to a MiB
_TEXTS = ("cause", "group", "text", "find", "key", "by", *PARAMS)
NAMES = ("state", "ids", *_TIMES, *_TEXTS)
_STATES = ", ".join(map(str, COUNTED))


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What a filter looks at in a message of its state."""

    msg_id: str = ""
    src: str = ""
    params: Mapping[str, str] = field(default_factory=dict)  # as a script gets them
    # As those see them who are no admins; None: the same.
    visible: Mapping[str, str] | None = None
    key: str = ""  # its unique_key
    by: str = ""  # who has sent it
    cause: str = ""  # of its last end, or of its last return into que
    text: str = ""  # what was said then
    since: float = 0.0  # epoch seconds of that


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Messages of one state; each further field that is given makes them fewer."""

    state: State
    ids: frozenset[str] | None = None  # one of these
    before: float | None = None  # epoch seconds: it came into its state earlier, …
    after: float | None = None  # … or not earlier
    cause: str | None = None
    group: str | None = None  # of failures that are alike: `message.group` says which
    text: str | None = None  # a part of what was said, in any case of letters
    find: str | None = (
        None  # words, each a part of anything that Traits has, in any case
    )
    key: str | None = None  # the whole unique_key
    by: str | None = None  # who has sent it
    params: Mapping[str, str] = field(default_factory=dict)  # whole values

    @property
    def wants_message(self) -> bool:
        """Whether the fields of a message decide."""
        return bool(self.params or self.find) or (self.key, self.by) != (None, None)

    @property
    def wants_status(self) -> bool:
        """Whether its last attempt decides."""
        wanted = (self.before, self.after, self.cause, self.group, self.text, self.find)
        return any(value is not None for value in wanted)

    def to_json(self) -> dict[str, Json]:
        """Return the JSON object that `from_json` takes."""
        given: dict[str, Json] = {
            "state": str(self.state),
            "ids": None if self.ids is None else sorted(self.ids),
            "before": self.before,
            "after": self.after,
            "cause": self.cause,
            "group": self.group,
            "text": self.text,
            "find": self.find,
            "key": self.key,
            "by": self.by,
            **self.params,
        }
        return {name: value for name, value in given.items() if value is not None}


def matches(wanted: Filter, traits: Traits) -> bool:
    """Whether a message of the state that is wanted is meant.

    >>> timed_out = Filter(state=State.ERR, text="Timeout", params={"param1": "a"})
    >>> matches(timed_out, Traits(params={"param1": "a"}, text="a timeout of 3 s"))
    True
    >>> matches(timed_out, Traits(params={"param1": "ab"}, text="a timeout of 3 s"))
    False
    """
    if wanted.ids is not None and traits.msg_id not in wanted.ids:
        return False
    if not _is_of_then(wanted, traits.since):
        return False
    if not _ended_so(wanted, traits):
        return False
    if wanted.find is not None and not _holds(wanted.find, traits):
        return False
    if wanted.key not in (None, traits.key) or wanted.by not in (None, traits.by):
        return False
    params = wanted.params.items()
    return all(traits.params.get(name, "") == value for name, value in params)


def _is_of_then(wanted: Filter, since: float) -> bool:
    if wanted.before is not None and since >= wanted.before:
        return False
    return wanted.after is None or since >= wanted.after


def _ended_so(wanted: Filter, traits: Traits) -> bool:
    """Whether what a message's last end says of itself is what is wanted."""
    if wanted.cause is not None and traits.cause != wanted.cause:
        return False
    if wanted.text is not None and wanted.text.lower() not in traits.text.lower():
        return False
    return wanted.group is None or group(traits.cause, traits.text) == wanted.group


def _holds(words: str, traits: Traits) -> bool:
    said = (traits.msg_id, traits.src, traits.key, traits.cause, traits.text)
    params = traits.params if traits.visible is None else traits.visible
    return holds(words, (*said, *params.values()))


def holds(words: str, texts: Iterable[str]) -> bool:
    """Whether each word is a part of something that a message says of itself."""
    every = "\n".join(texts).lower()
    return all(word in every for word in words.lower().split())


def from_json(fields: Json, now: float | None = None) -> Filter:
    """Return the filter that somebody asks for; BadInput says what is wrong with it.

    `now`, in epoch seconds, lets it say `older` in place of `before`: an age, as `2d`.
    """
    if not isinstance(fields, Mapping):
        raise BadInput("a filter is a JSON object")
    given: dict[str, Json] = {
        name: value for name, value in fields.items() if value is not None
    }
    if now is not None and OLDER in given:
        given = _dated(given, now)
    for name in given:
        if name not in NAMES:
            raise BadInput(f"a filter has no field {name:.40}, only {', '.join(NAMES)}")
    return Filter(
        state=_state(given.get("state")),
        ids=_ids(given.get("ids")),
        before=_moment(given, "before"),
        after=_moment(given, "after"),
        cause=_cause(given),
        group=_text(given, "group"),
        text=_text(given, "text"),
        find=_words(given),
        key=_text(given, "key"),
        by=_text(given, "by"),
        params={name: _text(given, name) or "" for name in PARAMS if name in given},
    )


def _dated(given: dict[str, Json], now: float) -> dict[str, Json]:
    """Return a filter that names a moment in place of an age."""
    age = given.pop(OLDER)
    if "before" in given:
        raise BadInput(f"a filter has {OLDER} or before, not both")
    if not isinstance(age, str):
        raise BadInput(
            f"{OLDER} of a filter is {age!r:.40}, not an age as 90, 10m or 2d"
        )
    return {**given, "before": now - moments.duration(age)}


def _state(value: Json) -> State:
    if isinstance(value, str) and value in COUNTED:
        return State(value)
    raise BadInput(f"the state of a filter is one of {_STATES}")


def _ids(value: Json) -> frozenset[str] | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) > MOST_IDS:
        raise BadInput(f"ids of a filter is not a list of at most {MOST_IDS:,} ids")
    return frozenset(names.msg_id(msg_id) for msg_id in value)


def _moment(given: Mapping[str, Json], name: str) -> float | None:
    value = given.get(name)
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    raise BadInput(f"{name} of a filter is {value!r:.40}, not seconds since the epoch")


def _cause(given: Mapping[str, Json]) -> str | None:
    """Return a cause; BadInput names those that exist, for another would match nothing."""
    cause = _text(given, "cause")
    if not cause or cause in list(Cause):
        return cause
    raise BadInput(f"no cause is {cause!r:.40}; say one of {', '.join(sorted(Cause))}")


def _words(given: Mapping[str, Json]) -> str | None:
    words = _text(given, "find")
    if words is not None and len(words.split()) > MOST_WORDS:
        raise BadInput(f"find of a filter is more than {MOST_WORDS} words")
    return words


def _text(given: Mapping[str, Json], name: str) -> str | None:
    value = given.get(name)
    if value is None:
        return None
    if isinstance(value, str) and len(value) <= TEXT_LIMIT:
        return value
    raise BadInput(
        f"{name} of a filter is not a text of at most {TEXT_LIMIT} characters"
    )
