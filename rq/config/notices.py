"""Whom a queue tells how it goes: the settings `on_err`, `on_output`, and their kin; pure.

A value is an object, or short: a text with an @ is an address of mail, a URL a webhook,
all else the name of a queue; a list holds several.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import NotRequired, TypedDict

from rq import names
from rq.config.values import check_names
from rq.errors import BadInput
from rq.message import guarded
from rq.words import moments


class Matter(StrEnum):
    """What is told."""

    ERR = "err"  # a message has ended in err
    OUTPUT = "output"  # a script has printed something
    RECOVERED = "recovered"  # the first success after an err that was told
    SLOW = "slow"  # an attempt takes long
    QUIET = "quiet"  # nothing has succeeded for long


class Notice(TypedDict):
    """A setting, whole."""

    mail: list[str]
    webhook: list[str]
    queue: str  # "": none
    every: float  # minutes between two of a matter at the least
    seconds: NotRequired[float]  # slow, or quiet, from here on
    times: NotRequired[float]  # slow: so many times the median


SETTINGS: Mapping[str, Matter] = {f"on_{matter}": matter for matter in Matter}
EVERY = 10.0  # minutes
MOST_TARGETS = 10  # of a setting; each takes its own entry in a line of the journal
_LONGEST = 1000  # characters of a target
_DAY = 1440.0  # minutes
_YEAR = 366 * 86400.0  # seconds
# As mail servers take them in practice; nothing that could begin another header or be
# taken for an option.
_BAD = r"\s@,;:<>()\[\]\\\""
_PART = f"[^-{_BAD}][^{_BAD}]*"
_CLOCK = re.compile(r"([01]\d|2[0-3]):[0-5]\d", re.ASCII)
_ADDRESS = re.compile(f"{_PART}(?:@{_PART})?")
_ALSO = {Matter.SLOW: ("seconds", "times"), Matter.QUIET: ("seconds",)}
_AND = ", "  # between addresses of a letter
_TARGETS = ("mail", "webhook", "queue")


def targets(notice: Notice) -> list[str]:
    """Return whom to tell: `mail:ADDRESS, …`, a URL, `queue:NAME`.

    >>> targets({"mail": ["a@b", "root"], "webhook": [], "queue": "alarm", "every": 10.0})
    ['mail:a@b, root', 'queue:alarm']
    """
    mail = [f"mail:{_AND.join(notice['mail'])}"] if notice["mail"] else []
    queue = [f"queue:{notice['queue']}"] if notice["queue"] else []
    return [*mail, *notice["webhook"], *queue]


def checked_target(text: str) -> str:
    """Return a target as `targets` gives them; ValueError or BadInput if it is none."""
    kind, _, to = text.partition(":")
    if kind == "mail":
        for address in to.split(_AND):
            _address(address)
    elif kind == "queue":
        check_queue(names.queue_name(to))
    elif kind in ("http", "https"):
        _url(text)
    else:
        raise ValueError(f"{text!r:.80} is neither mail:ADDRESS, queue:NAME nor a URL")
    return text


def still_told(notices: Iterable[Notice], target: str) -> str:
    """Return what of a target some settings name; "" when they name none of it: who was
    removed from the settings is told nothing any more.

    >>> given = [_from_short(["a@b", "root@b", "alarm"])]
    >>> [still_told(given, t) for t in ("mail:c@d, a@b", "mail:c@d", "queue:alarm")]
    ['mail:a@b', '', 'queue:alarm']
    """
    kind, _, to = target.partition(":")
    if kind != "mail":
        others = (targets({**notice, "mail": []}) for notice in notices)
        return target if any(target in told_now for told_now in others) else ""
    named = {address for notice in notices for address in notice["mail"]}
    left = [address for address in to.split(_AND) if address in named]
    return f"mail:{_AND.join(left)}" if left else ""


def check_queue(name: str) -> None:
    """ValueError for a queue that is told nothing: it would take a notice for an order."""
    if rule := guarded.QUEUES.get(name):
        raise ValueError(f"queue: {name} {rule.does}, it takes no notices")


def wanted(
    own: Callable[[str], Notice | None], default: Callable[[str], Notice | None]
) -> dict[Matter, Notice]:
    """Return whom a queue tells of what: `own` gives a setting of it by its name,
    `default` that of the root, which holds where the queue's says nothing."""
    by_matter: dict[Matter, Notice] = {}
    for name, matter in SETTINGS.items():
        notice = own(name)
        if notice is None:
            notice = default(name)
        if notice and targets(notice):
            by_matter[matter] = notice
    return by_matter


def sort_of(text: str) -> str:
    """Return what a short form means: mail, webhook or queue.

    >>> [sort_of(t) for t in ("ops@example.org", "https://u@h/x", "alarm")]
    ['mail', 'webhook', 'queue']
    """
    if "://" in text:
        return "webhook"
    return "mail" if "@" in text else "queue"


def check(matter: Matter) -> Callable[[object], Notice]:
    """Return what checks the setting of a matter; ValueError, BadInput say what is wrong."""

    def checked(value: object) -> Notice:
        given = value if isinstance(value, dict) else _from_short(value)
        return _whole(matter, given)

    return checked


class Daily(TypedDict):
    """The setting `daily`, whole: a letter each morning."""

    at: str  # HH:MM
    timezone: str  # "": the machine's
    to: list[str]  # whom to tell, as `targets` gives them


def daily(value: object) -> Daily | None:
    """Return the setting `daily`; None: no letter. ValueError, BadInput say what is wrong."""
    if value in (None, False, {}):
        return None
    if not isinstance(value, dict):
        raise ValueError('it is an object: {"at": "07:00", "to": "mail:ADDRESS"}')
    check_names(value, ("at", "timezone", "to"))
    at, zone = value.get("at"), value.get("timezone", "")
    if not isinstance(at, str) or not _CLOCK.fullmatch(at):
        raise ValueError(f"at: {at!r:.60} is no time of day such as 07:00")
    if not isinstance(zone, str):
        raise ValueError(f"timezone: {zone!r:.60} is no text")
    to = [checked_target(_long(text)) for text in _texts(value.get("to"), "to")]
    if not 0 < len(to) <= MOST_TARGETS:
        raise ValueError(f"to: it names from 1 to {MOST_TARGETS} to tell")
    return {"at": at, "timezone": zone, "to": to}


def whom(value: object) -> tuple[str, ...]:
    """Return the setting `on_trouble`: whom to tell, as `targets` gives them.

    >>> whom("ops@example.org"), whom(["queue:alarm", "https://h/hook"]), whom("")
    (('mail:ops@example.org',), ('queue:alarm', 'https://h/hook'), ())
    """
    if value in (None, False, "", []):
        return ()
    to = tuple(checked_target(_long(text)) for text in _texts(value, "on_trouble"))
    if len(to) > MOST_TARGETS:
        raise ValueError(f"it names more than {MOST_TARGETS} to tell")
    return to


def _long(text: str) -> str:
    """Return a target as `targets` gives it, of a short form, too."""
    if text.startswith(("mail:", "queue:")) or sort_of(text) == "webhook":
        return text
    return f"{sort_of(text)}:{text}"


def _from_short(value: object) -> dict[str, object]:
    if value in ("", False):
        return {}
    texts = value if isinstance(value, list) else [value]
    sorted_: dict[str, list[object]] = {sort: [] for sort in _TARGETS}
    for text in texts:
        if not isinstance(text, str) or not text:
            raise ValueError(
                f"{text!r:.60} is neither an address of mail, a URL nor a queue"
            )
        sorted_[sort_of(text)].append(text)
    if len(sorted_["queue"]) > 1:
        raise ValueError("it names more than one queue")
    queue = sorted_.pop("queue")
    return {**sorted_, "queue": queue[0] if queue else ""}


def _whole(matter: Matter, given: Mapping[str, object]) -> Notice:
    allowed = (*_TARGETS, "every", *_ALSO.get(matter, ()))
    check_names(given, allowed)
    queue = given.get("queue") or ""
    every = EVERY if matter is not Matter.OUTPUT else 0.0
    notice: Notice = {
        "mail": [_address(text) for text in _texts(given.get("mail"), "mail")],
        "webhook": [_url(text) for text in _texts(given.get("webhook"), "webhook")],
        "queue": names.queue_name(queue) if queue else "",
        "every": _number(given.get("every", every), "every", 0.0, 7 * _DAY),
    }
    check_queue(notice["queue"])
    if len(notice["mail"]) + len(notice["webhook"]) > MOST_TARGETS:
        raise ValueError(f"it tells more than {MOST_TARGETS}")
    if targets(notice):
        _add_limit(matter, notice, given)
    return notice


def _add_limit(matter: Matter, notice: Notice, given: Mapping[str, object]) -> None:
    if matter not in _ALSO:
        return
    if "seconds" in given:
        notice["seconds"] = _seconds(given["seconds"])
    if "times" in given:
        notice["times"] = _number(given["times"], "times", 1.0, 1e6)
    if "seconds" not in notice and "times" not in notice:
        also = (
            ', or {"times": 3} for three times the median'
            if matter is Matter.SLOW
            else ""
        )
        raise ValueError(f'it needs a limit: {{"seconds": 300}}{also}')


def _seconds(value: object) -> float:
    if isinstance(value, str):
        value = moments.duration(value.strip())
    return _number(value, "seconds", 1.0, _YEAR)


def _number(value: object, name: str, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name}: {value!r:.60} is not a number")
    if not low <= value <= high:
        raise ValueError(f"{name}: {value!r:.60} is not between {low:g} and {high:g}")
    return float(value)


def _texts(value: object, name: str) -> list[str]:
    texts = [value] if isinstance(value, str) else value or []
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{name}: {value!r:.60} is not a list of texts")
    return list(dict.fromkeys(texts))


def _address(text: str) -> str:
    """Return an address, or a name of this machine's users, as cron takes them too."""
    if len(text) > 254 or not text.isprintable() or not _ADDRESS.fullmatch(text):
        raise ValueError(f"mail: {text!r:.60} is no address")
    return text


def _url(text: str) -> str:
    if not names.is_url(text) or len(text) > _LONGEST or not text.isprintable():
        raise BadInput(f"webhook: {text!r:.60} is no URL that begins with http(s)://")
    return text


def check_settings(settings: Mapping[str, object]) -> None:
    """BadInput when one of some settings is not as it may be."""
    for setting, value in settings.items():
        try:
            CHECKS[setting](value)
        except ValueError as error:
            raise BadInput(f"{setting}: {error}") from None


CHECKS: Mapping[str, Callable[[object], Notice]] = {
    setting: check(matter) for setting, matter in SETTINGS.items()
}
