"""The verdict: one list of what is not well, how bad each is, and what to do about it.

`ROWS` is the only table of troubles. `replies.health` reads them out of what owners, the
supervisor and the timers answer; `rq status`, `check_rq`, `/api/v1/verdict`, the head of
the overview and notices show the same list. So a monitor cannot say OK while a page shows
a full disk, nor be CRITICAL about what the pages call well.

At all times: a trouble that many queues share is one line (`folded`), so 200 queues on a
full disk are one thing to do. What a person wants (PAUSE, DOWN) and what ends by itself is
WARNING at most. The sample failures of the bundled queue `demo` are in the list, and OK.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from typing import TypedDict

_NAMED = 3  # queues that a line names; of more it says how many
_NUMBERS = re.compile(r"\d[\d.,]*")


class Level(IntEnum):
    """How bad it is: the exit code of a monitor's check, and its first word."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


class Fault(StrEnum):
    """The kinds of troubles; programs know these words."""

    NOT_RUNNING = "not_running"
    DISK_FULL = "disk_full"
    DISK_FAILED = "disk_failed"
    DISK_SOON = "disk_soon"
    HELPER = "helper"
    PORT_HELD = "port_held"
    QUEUE_STATE = "queue_state"
    SILENT = "silent"
    CLOSED = "closed"
    SCRIPT_ERROR = "script_error"
    STALLED = "stalled"
    NO_WORKERS = "no_workers"
    HOSTS_AWAY = "hosts_away"
    NO_FOLDERS = "no_folders"
    DISPLACED = "displaced"
    WRONG_SCRIPT = "wrong_script"
    FAILED = "failed"
    SAMPLE = "sample"
    IN_DOUBT = "in_doubt"
    PROBLEM = "problem"
    DOOR = "door"
    HELD_ATTEMPT = "held_attempt"
    LONG_RUN = "long_run"
    LAG = "lag"
    UNUSED = "unused"
    LINK = "link"
    TIMER = "timer"
    TIMER_WAITS = "timer_waits"
    TIMER_OVERDUE = "timer_overdue"
    TIMER_FAILED = "timer_failed"
    TIMER_MISSED = "timer_missed"
    PAUSED = "paused"
    DOWN = "down"
    BROKER = "broker"
    BROKER_PRESSURE = "broker_pressure"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What is said of a kind of trouble.

    `said` and `many` follow the names of one and of several queues; `{what}` is a fact of
    the trouble, `{number}` a number of `things`. `todo` is said where no reason is known
    that says what to do; `{queue}` in it, and in `path` (a page), is the queue, `{name}`
    that of the file which has it, without its folder.
    """

    level: Level
    said: str
    many: str = ""  # "": it is never shared by queues
    todo: str = ""
    todo_of_many: str = ""
    path: str = "/q/{queue}"
    path_of_many: str = "/"
    things: tuple[str, str] = ("", "")


_W, _C = Level.WARNING, Level.CRITICAL
_LOG = "log/queue-{queue}.log may say why"

# fmt: off
ROWS: Mapping[Fault, Row] = {
    Fault.NOT_RUNNING: Row(level=_C, said="is not running", path="/system",
                           todo="`rq up` starts it"),
    Fault.DISK_FULL: Row(level=_C, said="accepts no messages", many="accept no messages",
                         todo="free some space", path="/system"),
    Fault.DISK_FAILED: Row(level=_C, said="accepts no messages", many="accept no messages",
                           todo="look at the disk, then `rq queue restart {queue}`",
                           path="/system"),
    Fault.DISK_SOON: Row(level=_W, said="is nearly full", path="/system",
                         todo="free some space"),
    Fault.HELPER: Row(level=_C, said="is {what}", path="/system",
                      todo="log/ and `rq doctor` may say why"),
    Fault.PORT_HELD: Row(level=_W, said="does not listen on {what}, for another process does",
                         path="/system",
                         todo="who says `localhost` may come to that one, and show it a "
                         "password: end it (as root, `ss -ltnp` names it), then start RQ "
                         "again"),
    Fault.QUEUE_STATE: Row(level=_C, said="is {what}", many="are {what}", todo=_LOG),
    Fault.SILENT: Row(level=_C, said="does not answer", many="do not answer", todo=_LOG),
    Fault.CLOSED: Row(level=_C, said="accepts no messages", many="accept no messages",
                      todo=_LOG),
    Fault.SCRIPT_ERROR: Row(level=_C, said="cannot start its script",
                            many="cannot start their scripts", todo="`rq doctor`"),
    Fault.STALLED: Row(level=_C, said="makes no progress", many="make no progress",
                       todo="`rq ls {queue} --why`"),
    Fault.NO_WORKERS: Row(level=_C, said="makes no progress", many="make no progress",
                          todo="`rq worker ls {queue}`"),
    Fault.HOSTS_AWAY: Row(level=_W, said="makes no progress", many="make no progress",
                          todo="`rq ls {queue} --why`"),
    Fault.NO_FOLDERS: Row(level=_C, said="cannot make folders", many="cannot make folders",
                          todo="`rq doctor`"),
    Fault.DISPLACED: Row(level=_C, said="is held", path="/system",
                         todo="`rq queue restart {what}`"),
    Fault.WRONG_SCRIPT: Row(level=_C, said="has the wrong script",
                            many="have the wrong script", todo="`rq doctor`"),
    Fault.FAILED: Row(level=_C, said="has {number} that failed",
                      many="have {number} that failed",
                      things=("a message", "messages"), path="/q/{queue}?state=err",
                      todo="`rq ls {queue} --state err`, then `rq retry` or `rq ack`",
                      path_of_many="/failures", todo_of_many="`rq failures` says by which "
                      "causes, then `rq retry --group` or `rq ack --group`"),
    Fault.SAMPLE: Row(level=Level.OK, said="has {number} that failed by design",
                      things=("a sample", "samples"), path="/q/{queue}?state=err",
                      todo="`rq ls {queue} --state err`, then `rq retry` or `rq ack`"),
    Fault.IN_DOUBT: Row(level=_W, said="could not deliver {number} in six days",
                        many="could not deliver {number} in six days",
                        things=("a copy or webhook", "copies or webhooks"),
                        todo="`rq owed ls` lists them"),
    Fault.PROBLEM: Row(level=_W, said="has a problem", many="have a problem", todo=_LOG),
    Fault.DOOR: Row(level=_W, said="cannot take new/{what}",
                    many="cannot take what lies in new/", todo=_LOG),
    Fault.HELD_ATTEMPT: Row(level=_W, said="cannot end the attempt of {what}",
                            many="cannot end attempts", todo="end that process"),
    Fault.LONG_RUN: Row(level=_W, said="runs {what} for long", many="run messages for long",
                        todo="`rq show {what}` says whether it is silent, `rq cancel "
                        "{what}` ends it", path="/q/{queue}?state=run"),
    Fault.LAG: Row(level=_W, said="is behind with {number}, which are still to be made or moved",
                   many="are behind with {number}, which are still to be made or moved",
                   things=("a folder", "folders"), todo="it passes; wait"),
    Fault.UNUSED: Row(level=_W, said="is not used", path="/system", todo="`rq doctor`"),
    Fault.LINK: Row(level=_W, said="", path="/system", todo="`rq doctor`"),
    Fault.TIMER: Row(level=_W, said="", path="/timers", todo="`rq timer ls`"),
    Fault.TIMER_WAITS: Row(level=_W, said="waits for you", path="/timers",
                           todo="the Ruby RQ left it, and it may start what RQ does itself "
                           "(cleaner): `rq timer resume {what}` lets it fire, `rq restore "
                           "accept` all that waits"),
    Fault.TIMER_OVERDUE: Row(level=_C, said="expected a success, and none has come {what}",
                             path="/timers", todo="`rq timer show {name}` says what became of its "
                             "fires, `rq timer run {name}` sends one now"),
    Fault.TIMER_FAILED: Row(level=_W, said="failed at its last fire: {what}", path="/timers",
                            todo="`rq timer show {name}`, then `rq timer ack {name}`"),
    Fault.TIMER_MISSED: Row(level=_W, said="missed {number}{what}", path="/timers",
                            things=("a fire", "fires"),
                            todo="`rq timer ls` says which, `rq timer ack` that you know"),
    Fault.PAUSED: Row(level=_W, said="is {what}", many="are paused",
                      todo="`rq queue resume {queue}` lets it go on"),
    Fault.DOWN: Row(level=_W, said="was taken DOWN", many="were taken DOWN",
                    todo="`rq queue up {queue}` starts it"),
    Fault.BROKER: Row(level=_C, said="{what}", path="/broker", todo="`rq broker status`"),
    Fault.BROKER_PRESSURE: Row(level=_W, said="{what}", path="/broker",
                               todo="`rq broker status`"),
}
# fmt: on


class TroubleView(TypedDict):
    """A trouble, as it is told."""

    fault: str  # its kind
    level: str  # OK (a sample), WARNING or CRITICAL
    who: str  # what has it: queues, a helper, a file
    said: str  # goes on from `who`
    why: str  # the reason; "": none is known
    todo: str  # what to do about it
    path: str  # of the page that shows it
    queue: str  # its name, if it is about one
    queues: list[str]  # all whose trouble it is, if it is shared
    number: int  # of messages, copies or folders
    kind: str  # bad or warn: how pages colour it
    passing: bool  # it ends by itself, or a person wants it so
    stops: bool  # messages cannot be accepted, or cannot run


class Figures(TypedDict, total=False):
    """What monitors measure, in sums."""

    queues: int
    waiting: int  # messages
    running: int
    failed: int  # that are not acknowledged; without samples
    oldest_due_age: float  # seconds
    disk_free_bytes: int  # not for users of some queues only


class VerdictView(TypedDict):
    """How RQ is: `level` is that of the worst of the troubles."""

    level: str
    time: float  # epoch seconds
    running: bool
    troubles: list[TroubleView]
    figures: Figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Something that a person should look at."""

    fault: Fault
    who: str  # a queue, a helper, a file
    what: str = ""
    number: int = 0
    why: str = ""
    queue: str = ""  # its name, if it is about one
    queues: tuple[str, ...] = ()  # all whose trouble it is, if it is shared
    passing: bool = False  # it ends by itself, or a person wants it so
    stops: bool = False  # messages cannot be taken, or cannot run

    @property
    def row(self) -> Row:
        return ROWS[self.fault]

    @property
    def level(self) -> Level:
        """How bad it is; what passes is no alarm."""
        return min(self.row.level, Level.WARNING) if self.passing else self.row.level

    @property
    def kind(self) -> str:
        """How pages colour it."""
        return "bad" if self.level is Level.CRITICAL else "warn"

    @property
    def said(self) -> str:
        text = self.row.many if self.queues else self.row.said
        return text.format(what=self.what, number=self._number())

    def _number(self) -> str:
        one_thing, things = self.row.things
        return one_thing if self.number == 1 else f"{self.number:,} {things}"

    @property
    def todo(self) -> str:
        """What to do about it."""
        if self.queues and self.row.todo_of_many:
            return self.row.todo_of_many
        queue = self.queue or "QUEUE"
        name = self.who.rpartition("/")[2]
        return self.row.todo.format(queue=queue, what=self.what, name=name)

    @property
    def path(self) -> str:
        """The page that shows it, and lets it be mended."""
        if self.queues and "{queue}" in self.row.path:
            return self.row.path_of_many
        return self.row.path.format(queue=self.queue)

    @property
    def sentence(self) -> str:
        text = f"{self.who} {self.said}" if self.said else self.who
        why = self.why or ("" if self.passing else self.todo)
        return f"{text}: {why}" if why else text

    def to_json(self) -> TroubleView:
        return {
            "fault": str(self.fault),
            "level": self.level.name,
            "who": self.who,
            "said": self.said,
            "why": self.why,
            "todo": self.todo,
            "path": self.path,
            "queue": self.queue,
            "queues": list(self.queues),
            "number": self.number,
            "kind": self.kind,
            "passing": self.passing,
            "stops": self.stops,
        }


def level(troubles: Iterable[Trouble]) -> Level:
    """Return how bad it is in all: as bad as the worst."""
    return max((trouble.level for trouble in troubles), default=Level.OK)


def is_well(troubles: Iterable[Trouble]) -> bool:
    """Return whether nothing is left that a person has to do."""
    return all(trouble.passing or not trouble.level for trouble in troubles)


def folded(troubles: Iterable[Trouble]) -> list[Trouble]:
    """Return the troubles, the worst first; those that queues share as one."""
    groups: dict[object, list[Trouble]] = {}
    for trouble in troubles:
        groups.setdefault(_shared(trouble), []).append(trouble)
    lines = [line for group in groups.values() for line in _lines(group)]
    return sorted(lines, key=lambda line: -line.level)  # of one level as they came


def _shared(trouble: Trouble) -> object:
    """Return what is the same of troubles that are one: numbers, and the queue's own
    name, in a reason say nothing of what it is."""
    if not trouble.queue or not trouble.row.many:
        return trouble
    own_name = rf"(?<!\w){re.escape(trouble.queue)}(?!\w)"
    why = _NUMBERS.sub("#", re.sub(own_name, "*", trouble.why))
    what = trouble.what if "{what}" in trouble.row.many else ""
    return trouble.fault, what, why, trouble.passing


def _lines(group: Sequence[Trouble]) -> Sequence[Trouble]:
    queues = tuple(dict.fromkeys(trouble.queue for trouble in group))
    if len(queues) < 2:
        return group
    first = group[0]
    line = replace(
        first,
        who=named("queues", queues),
        number=sum(trouble.number for trouble in group),
        queue="",
        queues=queues,
        stops=any(trouble.stops for trouble in group),
    )
    return [line]


def named(things: str, names: Sequence[str]) -> str:
    """Name some things, and of many the first.

    >>> named("queues", ["a", "b"]), named("timers", ["a", "b", "c", "d", "e"])
    ('2 queues (a, b)', '5 timers (a, b, c and 2 more)')
    """
    more = len(names) - _NAMED
    first = ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
    return f"{len(names)} {things} ({first})"
