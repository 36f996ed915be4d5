"""Notices of how a queue goes, to people: the rule, and the messages that tell it.

Of each matter one notice goes out in `every` minutes; what comes meanwhile is counted,
and told together when these are over. Pure but for `look`, which is asked every few
seconds. A line of the journal owes the notices and says what was told by them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import orjson

from rq.config import notices
from rq.config.notices import Matter, Notice
from rq.message.causes import Cause
from rq.message.fields import JsonObject
from rq.message.message import Message
from rq.message.table import PARAMS
from rq.queues.owner.settings import NOTICE, Settings
from rq.spool import Spool
from rq.spool.news import Ended, Group, GroupFields, News, NewsFields, Printed
from rq.spool.record import Facts, More, OutEntry

MARK = (
    "x_notice"  # a field of messages that are notices themselves: none is told of them
)
_TEXT = 1000  # characters of a text in a story
_PARAM = 200  # of a param
_FACTS = ("cause", "outcome", "text", "exit", "signal", "run_us", "max_rss")
_WELL = frozenset({"done", "relayed"})
_UNTOLD = frozenset({"not_run"})  # what it waited for has failed, and that was told


@dataclass(slots=True)
class Telling:
    """What one line tells: it grows as matters are looked at."""

    news: News
    now: float
    out: list[OutEntry] = field(default_factory=list)
    change: NewsFields = field(default_factory=NewsFields)

    def say(self, matter: Matter, notice: Notice, story: JsonObject) -> bool:
        """Tell a story of a matter, or count it; return whether it is news."""
        group = self._group(matter)
        every = notice["every"] * 60
        if group and (group.more or not group.is_over(self.now, every)):
            more: GroupFields = {"more": group.more + 1}
            if not group.more:
                more["first"] = story
            self._set(matter, more)
            return False
        if every:
            self._set(matter, {"at": self.now, "more": 0})
        self.send(matter, notice, story)
        return True

    def say_rest(self, matter: str, notice: Notice, group: Group) -> None:
        """Tell what was only counted, with the story of the first of it."""
        story = {**group.first, "more": group.more - 1, "since": group.at}
        self._set(matter, {"at": self.now, "more": 0})
        self.send(matter, notice, story)

    def _group(self, matter: str) -> Group | None:
        """Return how a matter stands after what this line says of it so far."""
        said = self.change.get("groups", {}).get(matter)
        groups = self.news.groups
        return groups.get(matter) if said is None else self.news.changed(matter, said)

    def _set(self, matter: str, values: GroupFields) -> None:
        groups = self.change.setdefault("groups", {})
        groups[str(matter)] = {**groups.get(str(matter), {}), **values}

    def send(self, matter: str, notice: Notice, story: JsonObject) -> None:
        """Owe a notice to all whom it is for."""
        for target in notices.targets(notice):
            self.send_to(target, matter, story)

    def send_to(self, target: str, matter: str, story: JsonObject) -> None:
        """Owe a notice to one of them."""
        text = orjson.dumps({**story, "matter": matter, "at": self.now}).decode()
        params = {
            "param1": target,
            "param2": str(story["queue"]),
            "param3": str(matter),
            "param4": text,
        }
        self.out.append({"dest": NOTICE, "message": {"dest": NOTICE, **params}})

    def more(self) -> More:
        """Return the fields of a line."""
        more: More = {}
        if self.out:
            more["out"] = self.out
        if self.change:
            more["news"] = cast(JsonObject, self.change)
        return more


# ---- the end of a message


def of_end(settings: Settings, ended: Ended) -> More:
    """Return what the end of a message adds to its line."""
    wanted = settings.notices
    if not wanted or MARK in ended.message.extra:
        return {}
    telling = Telling(ended.news, ended.now)
    story = _story(settings, ended.message, ended.facts, ended.printed)
    said, cause = False, ended.facts.get("cause")
    if ended.facts["outcome"] in _WELL:
        _succeeded(telling, wanted, story)
    elif ended.facts["outcome"] not in _UNTOLD and cause != Cause.CANCELLED:
        said = _failed(telling, wanted, story)
    if Matter.SLOW in wanted and is_slow(wanted[Matter.SLOW], ended):
        telling.say(Matter.SLOW, wanted[Matter.SLOW], story)
    if Matter.OUTPUT in wanted and ended.printed is not None:
        _tell_output(telling, wanted, story, said)
    return telling.more()


def _failed(
    telling: Telling, wanted: Mapping[Matter, Notice], story: JsonObject
) -> bool:
    """Tell of an err; return whether it is told at once."""
    if Matter.ERR not in wanted:
        return False
    if not telling.news.failing:
        telling.change["failing"] = telling.now
    return telling.say(Matter.ERR, wanted[Matter.ERR], story)


def _succeeded(
    telling: Telling, wanted: Mapping[Matter, Notice], story: JsonObject
) -> None:
    news = telling.news
    if news.failing:
        telling.change["failing"] = 0.0
        if Matter.RECOVERED in wanted:
            again = {**story, "since": news.failing}
            telling.say(Matter.RECOVERED, wanted[Matter.RECOVERED], again)
    if news.quiet:
        telling.change["quiet"] = 0.0
        if Matter.QUIET in wanted:
            again = {**story, "since": news.quiet, "over": True}
            telling.send(Matter.QUIET, wanted[Matter.QUIET], again)


def _tell_output(
    telling: Telling, wanted: Mapping[Matter, Notice], story: JsonObject, said: bool
) -> None:
    """Tell what a script has printed, to those who have not just got it with its err."""
    notice = wanted[Matter.OUTPUT]
    if said:
        got = wanted[Matter.ERR]
        notice = cast(
            Notice,
            {
                **notice,
                "mail": [each for each in notice["mail"] if each not in got["mail"]],
                "webhook": [
                    each for each in notice["webhook"] if each not in got["webhook"]
                ],
                "queue": "" if notice["queue"] == got["queue"] else notice["queue"],
            },
        )
    if notices.targets(notice):
        telling.say(Matter.OUTPUT, notice, story)


def is_slow(notice: Notice, ended: Ended) -> bool:
    """Whether an attempt has taken long, and that was not told while it ran."""
    run_us = ended.facts.get("run_us")
    limit = slow_from(notice, ended.news)
    if run_us is None or limit is None or run_us / 1e6 < limit:
        return False
    return not ended.news.is_slow(ended.message)


def slow_from(notice: Notice, news: News) -> float | None:
    """Return the seconds from which on an attempt is slow; None: it is not known yet."""
    limits = [notice["seconds"]] if "seconds" in notice else []
    if "times" in notice and (median := news.median) is not None:
        limits.append(max(1.0, notice["times"] * median))
    return min(limits, default=None)


def _story(
    settings: Settings, message: Message, facts: Facts, printed: Printed | None = None
) -> JsonObject:
    """Return what a notice tells of a message; short, whatever the message holds."""
    story: dict[str, Any] = {
        "queue": settings.name,
        "url": settings.main.full_id(settings.name, message.msg_id),
        "msg_id": message.msg_id,
        "state": facts.get("outcome", "run"),
        "attempt": message.attempt,
        "count": message.count,
        "lost_attempts": message.lost_attempts,
        "max_count": message.max_count,
        **{name: facts[name] for name in _FACTS if facts.get(name) is not None},  # type: ignore[literal-required]
    }
    for name in PARAMS:
        if name in message.params:
            story[name] = str(message.params[name])[:_PARAM]
    if "text" in story:
        story["text"] = str(story["text"])[:_TEXT]
    if printed is not None:
        story["printed"] = list(printed)
    return story


# ---- between ends


def look(
    spool: Spool, settings: Settings, running: Iterable[tuple[Message, float]]
) -> bool:
    """Tell what has become due; `running` are messages at work and for how many seconds,
    the longest first. Return whether something was news."""
    wanted, news, now = settings.notices, spool.news, spool.clock()
    telling = Telling(news, now)
    for matter, group in news.groups.items():
        notice = wanted.get(cast(Matter, matter))
        if group.more and notice is None:
            telling.change.setdefault("groups", {})[matter] = {"at": now, "more": 0}
        elif group.more and notice and group.is_over(now, notice["every"] * 60):
            telling.say_rest(matter, notice, group)
    slow = _look_for_slow(telling, settings, wanted, running)
    _look_for_quiet(telling, settings, wanted)
    if not telling.change and not telling.out:
        return False
    spool.tell_people(cast(JsonObject, telling.change), telling.out)
    if slow is not None:
        news.note_slow(slow)
    return True


def _look_for_slow(
    telling: Telling,
    settings: Settings,
    wanted: Mapping[Matter, Notice],
    running: Iterable[tuple[Message, float]],
) -> Message | None:
    """Tell of the first attempt that takes long, and return its message; the others at
    the next looks."""
    notice, news = wanted.get(Matter.SLOW), telling.news
    limit = None if notice is None else slow_from(notice, news)
    if notice is None or limit is None:
        return None
    for message, seconds in running:
        if seconds < limit:
            break
        if not news.is_slow(message) and MARK not in message.extra:
            story = _story(settings, message, {"run_us": int(seconds * 1e6)})
            telling.say(Matter.SLOW, notice, story)
            return message
    return None


def _look_for_quiet(
    telling: Telling, settings: Settings, wanted: Mapping[Matter, Notice]
) -> None:
    """Tell once that nothing has succeeded for long."""
    notice, news, now = wanted.get(Matter.QUIET), telling.news, telling.now
    if notice is None:
        if news.watched:
            telling.change["watched"] = telling.change["quiet"] = 0.0
        return
    if not news.watched or news.watched > now:
        telling.change["watched"] = now
        return
    last = max(news.watched, news.succeeded)
    if news.quiet or now - last < notice["seconds"]:
        return
    telling.change["quiet"] = last
    story = {"queue": settings.name, "since": last, "state": "quiet"}
    if news.succeeded:
        story["succeeded"] = news.succeeded
    telling.send(Matter.QUIET, notice, cast(JsonObject, story))


def limit(notice: Notice, news: News) -> float | None:
    """Return the seconds from which on something is told, if it is told by these."""
    if "times" in notice:
        return slow_from(notice, news)
    return notice.get("seconds")


def test(settings: Settings, spool: Spool) -> list[str]:
    """Send a notice now to all whom the queue would tell of something; return whom."""
    telling = Telling(spool.news, spool.clock())
    everybody: dict[str, None] = {}
    for notice in settings.notices.values():
        new = [each for each in notices.targets(notice) if each not in everybody]
        everybody.update(dict.fromkeys(new))
    story = {"queue": settings.name, "state": "test"}
    for target in everybody:
        telling.send_to(target, "test", story)
    if telling.out:
        spool.tell_people({}, telling.out)
    return list(everybody)
