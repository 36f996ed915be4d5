"""What is not well: one rule for `rq status`, for /readyz and for the pages.

A queue that somebody paused or took down is well. Trouble that passes by itself is shown,
and does not make RQ unwell.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TypeAlias

from rq.replies import ChildView, Detail, SupervisorStatus
from rq.words.states import Child

# A start takes a moment; one that takes long, or comes after a failure, has a reason.
_PASSING = (Child.STARTING, Child.STOPPING)
_MUCH_LAG = 1000  # folders


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Something that a person should look at."""

    who: str  # a queue, a helper, a file
    said: str
    why: str = ""
    queue: str = ""  # its name, if it is about one
    kind: str = "bad"  # or "warn"
    passing: bool = False  # it ends by itself
    stops: bool = False  # messages cannot be taken, or cannot run

    @property
    def sentence(self) -> str:
        text = f"{self.who} {self.said}" if self.said else self.who
        return f"{text}: {self.why}" if self.why else text

    def to_json(self) -> dict[str, object]:
        return asdict(self)


_Make: TypeAlias = Callable[..., Trouble]


def of_helpers(facts: SupervisorStatus) -> Iterator[Trouble]:
    """Give what is wrong with helpers, scandir's links and timers; `facts` is the
    supervisor's `status`."""
    for child in children(facts):
        if child.get("kind") != "queue" and (trouble := _of_helper(child)):
            yield trouble
    yield from of_held(facts)
    for name, why in (facts.get("unusable") or {}).items():
        yield Trouble(who=f"queue/{name}", said="is not used", why=why, kind="warn")
    for name, why in (facts.get("scripts") or {}).items():
        yield Trouble(who=name, said="has the wrong script", why=why, queue=name)
    yield from _of_displaced(facts)
    for name in facts.get("held_timers") or ():
        why = (
            "the Ruby RQ left it, and it may start what RQ does itself (cleaner): `rq timer "
            f"resume {name}` lets it fire, `rq restore accept` all that waits"
        )
        yield Trouble(who=f"timers/{name}", said="waits for you", why=why, kind="warn")
    yield from _of_files(facts)


def _of_files(facts: SupervisorStatus) -> Iterator[Trouble]:
    """Give what is wrong with links and timers; of a queue that is held `_of_displaced`
    says more."""
    held = facts.get("displaced") or {}
    helpers = {"scandir": facts.get("scandir"), "timers": facts.get("timers")}
    for helper, state in helpers.items():
        for name, text in ((state or {}).get("errors") or {}).items():
            if name not in held:
                yield Trouble(
                    who=f"{helper}/{name}", said="", why=str(text), kind="warn"
                )


def children(facts: SupervisorStatus) -> Sequence[ChildView]:
    """Return the children that a supervisor tells of; none when it does not answer."""
    return facts.get("children") or []


def _of_displaced(facts: SupervisorStatus) -> Iterator[Trouble]:
    minded = {child.get("name") for child in children(facts)}
    if any(child.get("kind") == "broker" for child in children(facts)):
        minded.add("broker/")  # the directory; a queue may be called broker
    for name, why in (facts.get("displaced") or {}).items():
        if name not in minded:  # else its child says so
            yield Trouble(who=name, said="is held", why=why, stops=True)


def _of_helper(child: ChildView) -> Trouble | None:
    state, reason = str(child.get("state")), str(child.get("reason") or "")
    if state in (Child.UP, Child.DOWN) or child.get("wanted") == "DOWN":
        return None
    passing = state in _PASSING and not reason
    kind = "warn" if passing else "bad"
    who = str(child.get("name", "?"))
    return Trouble(who=who, said=f"is {state}", why=reason, kind=kind, passing=passing)


def of_held(facts: SupervisorStatus) -> Iterator[Trouble]:
    """Give where a helper should listen, and another process does."""
    for child in children(facts):
        if child.get("state") == Child.UP and child.get("held"):
            yield _held(child["name"], child["held"])


def _held(name: str, place: str) -> Trouble:
    return Trouble(
        who=name,
        said=f"does not listen on {place}, for another process does",
        why="who says `localhost` may come to that one, and show it a password: end it "
        "(as root, `ss -ltnp` names it), then start RQ again",
        kind="warn",
    )


def of_silent(name: str, admin: str, child: ChildView, why: str) -> Iterator[Trouble]:
    """Give what is wrong with a queue that nobody answers for: `admin` is what is wanted
    of it, `child` what the supervisor says of its process, `why` is told if it has no
    reason."""
    if admin == "DOWN":
        return
    state, reason = str(child.get("state") or ""), str(child.get("reason") or "")
    passing = state in _PASSING and not reason
    yield Trouble(
        who=name,
        said="does not answer" if state in ("", Child.UP) else f"is {state}",
        why=reason or ("" if passing else why),
        queue=name,
        kind="warn" if passing else "bad",
        passing=passing,
        stops=True,
    )


def of_queue(name: str, detail: Detail) -> Iterator[Trouble]:
    """Give what is wrong with a queue, by its answer to `detail`; not its errors."""
    if detail["admin"] == "DOWN":
        return
    trouble = functools.partial(Trouble, who=name, queue=name)
    yield from _stops(detail, trouble)
    yield from of_files(name, detail)
    yield from _hampers(detail, trouble)


def _stops(detail: Detail, trouble: _Make) -> Iterator[Trouble]:
    """Give what keeps a queue from taking messages, or from running them."""
    if detail["closed_reason"]:
        why = detail["closed_reason"]
        yield trouble(said="accepts no messages", why=why, stops=True)
    if detail["oper"] != "UP":
        why = detail["reason"] or ""
        yield trouble(said="cannot start its script", why=why, stops=True)
    if detail.get("stalled"):
        # What waits for others runs as soon as they are there; it is not this machine.
        here = detail.get("stalled_by") not in ("outside", "workers")
        yield trouble(said="makes no progress", why=detail["stalled"], stops=here)


def _hampers(detail: Detail, trouble: _Make) -> Iterator[Trouble]:
    """Give what else a person should look at."""
    if detail.get("stuck") and not detail["closed_reason"]:
        yield trouble(said="cannot make folders", why=str(detail["stuck"]))
    if number := detail.get("in_doubt"):
        what = "a copy or webhook" if number == 1 else f"{number:,} copies or webhooks"
        yield trouble(said=f"could not deliver {what} in six days (`rq owed ls`)")
    for name, why in (detail.get("left_at_door") or {}).items():
        yield trouble(said=f"cannot take new/{name}", why=str(why), kind="warn")
    for held in detail.get("held") or ():
        said = f"cannot end the attempt of {held['msg_id']}"
        yield trouble(said=said, why=held["by"], kind="warn")
    if (lag := detail.get("lag") or 0) > _MUCH_LAG:
        said = f"is behind with {lag:,} folders, which are still to be made or moved"
        yield trouble(said=said, kind="warn", passing=True)


def of_files(name: str, detail: Detail) -> Iterator[Trouble]:
    """Give what is wrong with files of a queue: its config, its checkpoint, rows that are
    to become messages."""
    why = detail["reason"]
    if why and detail["oper"] == "UP":
        yield Trouble(who=name, queue=name, said="has a problem", why=why)


def of_errors(name: str, counts: Mapping[str, int]) -> Iterator[Trouble]:
    """Give that messages of a queue have failed, and nobody has acknowledged them."""
    if number := counts.get("err", 0):
        what = "a message" if number == 1 else f"{number:,} messages"
        todo = f"`rq ls {name} --state err`, then `rq retry` or `rq ack`"
        yield Trouble(who=name, queue=name, said=f"has {what} that failed", why=todo)
