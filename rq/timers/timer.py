"""Reads and checks the file timers/NAME.json."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from rq import config, names
from rq.errors import BadConfig, BadInput, BadMessage, NotPermitted
from rq.flow import plan as plans
from rq.flow.plan import Node, Plan
from rq.message import guarded
from rq.message.guarded import Sender
from rq.message.message import from_request
from rq.message.table import OWN, SAID_BY_SENDERS
from rq.timers.cron import DEFAULT_ZONE, Cron, cron
from rq.timers.rule import CatchUp, Overlap, Timer
from rq.words import moments, visible
from rq.words.nesting import Json

SHORTEST = 60  # seconds of a period
LONGEST = 100 * 366 * 86400
LONGEST_EXPECTED = 400 * 86400  # seconds
MOST_JITTER = 86400  # seconds
_KEYS = (
    "period",
    "cron",
    "timezone",
    "jitter",
    "catch_up",
    "overlap",
    "expect",
    "msg",
    "flow",
)
_OF_FLOW: Mapping[str, Json] = {"dest": "flow"}
_ANY_ID = "19700101.0000.00.000.0"
_Word = TypeVar("_Word", bound=StrEnum)


def parse(path: Path) -> Timer:
    """Return the timer in a file; BadConfig says in a sentence what is wrong."""
    data = config.read_json(path)
    for key in data:
        if key not in _KEYS:
            raise BadConfig(f"{path}: {_unknown(key)}")
    rule = _rule(data, path)
    period = 0 if rule else _period(data.get("period"), path)
    plan = _flow(data, path) if "flow" in data else None
    dest, fields = _message(data.get("msg") if plan is None else _OF_FLOW, path)
    return Timer(
        name=path.name.removesuffix(".json"),
        period=period,
        dest=dest,
        fields=fields,
        cron=rule,
        jitter=_jitter(data.get("jitter", 0), period, path),
        catch_up=_word(CatchUp, data, "catch_up", CatchUp.LAST, path),
        overlap=_overlap(data, dest, path),
        within=_within(data["expect"], path) if "expect" in data else 0.0,
        flow=plan,
    )


def _rule(data: Mapping[str, Json], path: Path) -> Cron | None:
    """Return the rule of cron, if the timer has one in place of a period."""
    if "cron" not in data:
        if "timezone" in data:
            raise BadConfig(f"{path}: 'timezone' is of 'cron', and there is none")
        return None
    if "period" in data:
        raise BadConfig(f"{path}: a timer has 'period' or 'cron', not both")
    expression, zone = data["cron"], data.get("timezone", DEFAULT_ZONE)
    if not isinstance(expression, str) or not isinstance(zone, str):
        raise BadConfig(f"{path}: 'cron' or 'timezone' is no text")
    try:
        return cron(expression, zone)
    except BadInput as error:
        raise BadConfig(f"{path}: {error}") from None


def _period(said: Json, path: Path) -> int:
    period = _whole(said)
    if isinstance(period, bool) or not isinstance(period, int):
        raise BadConfig(
            f"{path}: 'period' is missing or not a whole number of seconds, and there "
            "is no 'cron'"
        )
    if not SHORTEST <= period <= LONGEST:
        raise BadConfig(
            f"{path}: 'period' is {period} s; it has to be at least {SHORTEST} s, "
            f"and at most {LONGEST} s"
        )
    return period


def _jitter(said: Json, period: int, path: Path) -> int:
    jitter = _whole(said)
    most = min(period or MOST_JITTER, MOST_JITTER)
    is_whole = isinstance(jitter, int) and not isinstance(jitter, bool)
    if not (is_whole and isinstance(jitter, int) and 0 <= jitter <= most):
        raise BadConfig(
            f"{path}: 'jitter' is {jitter!r:.80}; it is whole seconds, {most} at most"
        )
    return jitter


def _overlap(data: Mapping[str, Json], dest: str, path: Path) -> Overlap:
    overlap = _word(Overlap, data, "overlap", Overlap.QUEUE, path)
    if overlap is not Overlap.QUEUE and names.is_remote(dest):
        raise BadConfig(
            f"{path}: 'overlap' is {overlap}, but the messages go to another host, and "
            "what becomes of them there is not known here: leave it out"
        )
    return overlap


def _within(expect: Json, path: Path) -> float:
    """Return the seconds in which a message has to succeed."""
    is_whole = isinstance(expect, dict) and expect.keys() == {"within"}
    seconds = _seconds(expect["within"]) if isinstance(expect, dict) and is_whole else 0
    if not SHORTEST <= seconds <= LONGEST_EXPECTED:
        raise BadConfig(
            f"{path}: 'expect' is {expect!r:.80}; it is an object with 'within', a time "
            'of a minute to 400 days: {"within": "26h"}'
        )
    return seconds


def _whole(value: Json) -> Json:
    """Return the whole seconds of a text such as 90s or 5m; all else as it is."""
    seconds = _seconds(value) if isinstance(value, str) else 0.0
    return int(seconds) if seconds and seconds.is_integer() else value


def _seconds(value: Json) -> float:
    """Return the seconds of a number, or of a text such as 26h; 0 if it is neither."""
    if isinstance(value, str):
        with contextlib.suppress(BadInput):
            return moments.duration(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and isinstance(value, int | float) else 0.0


def _word(
    kind: type[_Word], data: Mapping[str, Json], key: str, default: _Word, path: Path
) -> _Word:
    """Return the word that a key has."""
    said = data.get(key, default)
    if said not in list(kind):
        raise BadConfig(f"{path}: {key!r} is {said!r:.80}; say {', '.join(kind)}")
    return kind(str(said))


def _message(message: object, path: Path) -> tuple[str, dict[str, Json]]:
    """Return `dest` and the other fields of a timer's message that are set."""
    if not isinstance(message, dict):
        raise BadConfig(f"{path}: 'msg' is missing or not an object")
    dest = message.get("dest")
    if not isinstance(dest, str) or not dest:
        raise BadConfig(f"{path}: 'dest' of 'msg' is missing")
    if not names.is_remote(dest) and not names.is_queue_name(dest):
        raise BadConfig(f"{path}: 'dest' is neither a queue nor a URL: {dest!r}")
    try:
        _check(message)
    except BadMessage as error:
        raise BadConfig(f"{path}: 'msg': {error}") from None
    fields = {k: v for k, v in message.items() if k != "dest" and v is not None}
    return dest, fields


def _flow(data: Mapping[str, Json], path: Path) -> Plan:
    """Return the plan of a timer that sends a flow in place of a message."""
    if "msg" in data:
        raise BadConfig(f"{path}: a timer has 'msg' or 'flow', not both")
    try:
        plan = plans.parse(data["flow"])
        for node in plan.nodes:
            _check_guarded(node)
    except (BadInput, NotPermitted) as error:
        raise BadConfig(f"{path}: 'flow': {error}") from None
    if plan.key is not None:
        raise BadConfig(f"{path}: 'flow': each fire has a key of its own; leave it out")
    return plan


def _check_guarded(node: Node) -> None:
    try:
        guarded.check(node.queue, Sender.TIMER)
    except NotPermitted as error:
        raise NotPermitted(f"{node.name}: {error}") from None


def _unknown(key: str) -> str:
    """Return why a timer has no such key."""
    if key in SAID_BY_SENDERS:
        return f"{key!r} is a field of the message: put it into 'msg'"
    close = difflib.get_close_matches(key, _KEYS, 1)
    has = "a timer has 'period' or 'cron', and 'msg' or 'flow'"
    hint = f"did you mean {close[0]!r}?" if close else has
    return f"unknown key {key!r:.60}; {hint}"


def _check(message: Mapping[str, Json]) -> None:
    """BadMessage unless a queue would take the message as it is meant."""
    for name in sorted(OWN & message.keys()):
        raise BadMessage(f"{name!r} is set by RQ, and cannot be set by a timer")
    from_request(message, _ANY_ID, 0.0, "", is_new=True).encode_new()


def refusal(name: str) -> str:
    """Return why a file of that name is no timer, "" when it may be one."""
    if not names.is_text(name):
        return f"{visible.line(name)}: its name is no UTF-8: rename it"
    stem, _, suffix = name.partition(".")
    if suffix in ("yaml", "yml"):
        return f"{name} is YAML, which RQ does not read: write it as {stem}.json"
    if suffix != "json" or not stem:
        return f"{name} is not called NAME.json, with no other dot"
    return ""
