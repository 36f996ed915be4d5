"""Routing rules: read from JSON, checked once, and the first that matches a message."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from rq.config.values import check_key
from rq.errors import BadConfig, BadInput
from rq.layout import Root
from rq.message import guarded
from rq.message.fields import param_text
from rq.message.table import PARAMS
from rq.words.nesting import Json

DEFAULT = "default"
FIELDS = ("src", "dest", *PARAMS)
PORT = 3333
_KEYS = ("name", *FIELDS, "action", "route", "delay", "log")
_LONGEST_DELAY = 86400 * 365


class Action(StrEnum):
    """What a rule does with a message."""

    RELAY = "relay"  # a copy to each host
    BALANCE = "balance"  # a copy to one host, by chance
    DONE = "done"
    ERR = "err"


_SENDS = frozenset({Action.RELAY, Action.BALANCE})
# Picks one of several; by chance, where it matters.
Choose = Callable[[Sequence[str]], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """If all of `match` are found in their fields, then `action`."""

    name: str
    action: Action
    match: Mapping[str, re.Pattern[str]] = field(default_factory=dict)
    route: tuple[tuple[str, ...], ...] = ()  # of each, one is chosen
    delay: int = 0  # seconds until the copies are due
    log: bool = False

    def matches(self, message: Mapping[str, Json]) -> bool:
        """Whether all patterns are found; a field that is missing has none."""
        return all(
            message.get(name) is not None and pattern.search(param_text(message[name]))
            for name, pattern in self.match.items()
        )

    def to_json(self) -> dict[str, Json]:
        data: dict[str, Json] = {"name": self.name}
        data.update({name: pattern.pattern for name, pattern in self.match.items()})
        data["action"] = str(self.action)
        if self.route:
            data["route"] = [
                hosts[0] if len(hosts) == 1 else list(hosts) for hosts in self.route
            ]
        if self.delay:
            data["delay"] = self.delay
        if self.log:
            data["log"] = True
        return data


# What becomes of a message that no rule matches.
LAST = Rule(name=DEFAULT, action=Action.ERR, log=True)


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules in their order; the last one matches everything."""

    rules: tuple[Rule, ...]
    last: Rule = LAST

    def first(self, message: Mapping[str, Json]) -> Rule:
        """Return the rule for a message."""
        matching = (rule for rule in self.rules if rule.matches(message))
        return next(matching, self.last)

    def to_json(self) -> dict[str, Json]:
        return {"rules": [entry.to_json() for entry in (*self.rules, self.last)]}


# ---- reading


def parse(data: Mapping[str, Json]) -> Rules:
    """Return the rules in a JSON object; BadConfig names the rule and the key."""
    entries = data.get("rules")
    if set(data) != {"rules"} or not isinstance(entries, list):
        raise BadConfig('the file is not {"rules": [...]}')
    return ordered([rule(entry, number) for number, entry in enumerate(entries, 1)])


def ordered(every: Sequence[Rule]) -> Rules:
    """Return rules, those called `default` taken out: the last of them ends the list."""
    last = [entry for entry in every if entry.name == DEFAULT]
    plain = tuple(entry for entry in every if entry.name != DEFAULT)
    return Rules(plain, last[-1] if last else LAST)


def rule(data: Json, number: int) -> Rule:
    """Return a checked rule."""
    name = data.get("name") if isinstance(data, dict) else None
    try:
        if not isinstance(data, dict):
            raise ValueError("it is not a JSON object")
        return _rule(data, name or f"rule {number}")
    except (ValueError, TypeError) as error:
        named = f" ({name})" if isinstance(name, str) else ""
        raise BadConfig(f"rule {number}{named}: {error}") from None


def _rule(data: Mapping[str, Json], name: Json) -> Rule:
    for key in data:
        check_key(key, _KEYS)
    action = _action(data.get("action"))
    match = {key: _pattern(key, data[key]) for key in FIELDS if key in data}
    route = _route(data.get("route", []))
    if not isinstance(name, str):
        raise ValueError("name is not text")
    if name != DEFAULT and not match:
        raise ValueError(f"it matches nothing: give one of {', '.join(FIELDS)}")
    if name == DEFAULT and match:
        raise ValueError(
            "the default rule matches everything, so it can have no patterns"
        )
    if (action in _SENDS) != bool(route):
        raise ValueError(
            f"action {action} {'needs a' if not route else 'has no'} route"
        )
    return Rule(
        name=name,
        action=action,
        match=match,
        route=route,
        delay=_delay(data.get("delay", 0)),
        log=_flag(data.get("log", False)) or action is Action.ERR,
    )


def _action(value: Json) -> Action:
    if isinstance(value, str) and value in list(Action):
        return Action(value)
    raise ValueError(f"action {value!r:.40} is not one of {', '.join(Action)}")


def _pattern(name: str, value: Json) -> re.Pattern[str]:
    if not isinstance(value, str):
        raise ValueError(f"{name} is not text")
    try:
        return re.compile(value)
    except re.error as error:
        raise ValueError(f"{name}: {value!r:.80} is no pattern: {error}") from None


def _route(value: Json) -> tuple[tuple[str, ...], ...]:
    if not isinstance(value, list):
        raise ValueError("route is not a list of hosts, or of lists of them")
    return tuple(_hosts(entry) for entry in value)


def _hosts(value: Json) -> tuple[str, ...]:
    hosts = [value] if isinstance(value, str) else value
    if isinstance(hosts, list) and hosts and all(_is_host(host) for host in hosts):
        return tuple(hosts)
    raise ValueError(f"route: {value!r:.80} is not a host, or a list of them")


_HOST = re.compile(r"(https?://)?[^\s/@?#]+(?(1)\S*)", re.ASCII)


def _is_host(value: Json) -> bool:
    """Whether `value` is HOST, HOST:PORT or a URL of a queue."""
    return isinstance(value, str) and _HOST.fullmatch(value) is not None


def _delay(value: Json) -> int:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if is_whole and isinstance(value, int) and 0 <= value <= _LONGEST_DELAY:
        return value
    raise ValueError(f"delay {value!r:.40} is not a whole number of seconds, 0 or more")


def _flag(value: Json) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError(f"log {value!r:.40} is not true or false")


# ---- where copies go


def destinations(rule: Rule, dest: str, choose: Choose) -> list[str]:
    """Return the URLs that a rule sends copies to; `choose` picks among several."""
    every = [[address(host, dest) for host in hosts] for hosts in rule.route]
    if rule.action is Action.RELAY:
        return [choose(urls) for urls in every]
    if rule.action is Action.BALANCE:
        return [choose([url for urls in every for url in urls])]
    return []


def address(host: str, dest: str) -> str:
    """Return `dest` as a queue of another host; a URL in place of the host is final.

    >>> address("h2", "http://h1:3333/q/x/"), address("h2:80", "x")
    ('http://h2:3333/q/x/', 'http://h2:80/q/x')
    """
    if host.startswith(("http://", "https://")):
        return host
    named = host if _has_port(host) else f"{host}:{PORT}"
    queue = dest.split("/q/", 1)[1] if "/q/" in dest else dest
    if not queue:
        raise BadInput(f"dest {dest!r:.80} names no queue")
    return f"http://{named}/q/{queue}"


def _has_port(host: str) -> bool:
    return host.rpartition(":")[2].isdecimal() and not host.endswith("]")


# ---- where the web's messages go


_NOT_ROUTED = frozenset({"rq_router", "relay", *guarded.QUEUES})


def addressed(root: Root, name: str) -> str:
    """Return the queue that the web's routes about messages of queue `name` mean: the
    router, while there are rules for it."""
    routed = name not in _NOT_ROUTED and root.router.exists()
    return "rq_router" if routed else name
