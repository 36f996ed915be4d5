"""What a notice tells, read from its message, and in words; pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rq import names
from rq.errors import BadInput
from rq.message import stories
from rq.words import wording
from rq.words.nesting import Json
from rq.words.states import State

OF_ALL = ("daily", "trouble")  # matters of the root, which say in lines what they tell
_ENDED = {"err": State.ERR, "done": State.DONE, "relayed": State.RELAYED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A notice to be told."""

    queue: str
    matter: str
    values: Mapping[str, Json]

    def text(self, name: str) -> str:
        value = self.values.get(name)
        return "" if value is None else str(value)

    def number(self, name: str) -> float:
        value = self.values.get(name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return float(value) if is_number else 0.0  # type: ignore[arg-type]

    @property
    def more(self) -> int:
        """How many more of the matter there were since the last notice."""
        return int(self.number("more"))


def read(queue: str, matter: str, text: str) -> Story:
    """Return the story in a message; BadInput if there is none, or its message has no id
    that one can have."""
    try:
        values: Json = json.loads(text)
    except ValueError:
        values = None
    if not isinstance(values, dict):
        raise BadInput("param4 is not a JSON object that tells what a queue has to say")
    if values.get("msg_id"):
        names.msg_id(values["msg_id"])  # it becomes part of a path
    return Story(queue=queue, matter=matter, values=values)


def headline(story: Story) -> str:
    """Return what it is about, in a line."""
    more = f", and {story.more} more" if story.more else ""
    if story.matter in OF_ALL:
        return story.text("about")
    about = _ABOUT.get(story.matter, _plain)
    return f"{story.queue}: {about(story)}{more}"


def _plain(story: Story) -> str:
    return story.matter


def _err(story: Story) -> str:
    return f"a message failed: {story.text('text') or story.text('cause')}"


def _output(story: Story) -> str:
    how = "" if story.text("state") in ("done", "relayed") else " and failed"
    return f"its script printed something{how}"


def _slow(story: Story) -> str:
    took = wording.duration(story.number("run_us") / 1e6)
    at_work = story.text("state") == "run"
    return f"an attempt {'has been at work for' if at_work else 'took'} {took}"


def _quiet(story: Story) -> str:
    if story.values.get("over"):
        return "it succeeds again"
    return "nothing has succeeded for long"


def _again(story: Story) -> str:
    return "it succeeds again"


def _overdue(story: Story) -> str:
    timer = story.text("timer")
    if story.values.get("over"):
        return f"timer {timer} succeeds again"
    return f"timer {timer} has not succeeded when it should have"


def _test(story: Story) -> str:
    return "a test notice"


_ABOUT: Mapping[str, Callable[[Story], str]] = {
    "err": _err,
    "output": _output,
    "recovered": _again,
    "slow": _slow,
    "quiet": _quiet,
    "overdue": _overdue,
    "test": _test,
}


def sentences(story: Story) -> list[str]:
    """Return what happened, and what to do, a sentence each."""
    lines: list[str] = []
    if story.more:
        since = wording.moment(story.number("since"))
        lines.append(
            f"Since {since} UTC there were {story.more + 1} of these; this is the first."
        )
    lines += _happened(story)
    return lines


def _happened(story: Story) -> list[str]:
    since = wording.moment(story.number("since"))
    if story.matter == "test":
        return [f"This is a test: `rq notice test {story.queue}` has sent it."]
    if story.matter == "recovered":
        return [f"It had failed since {since} UTC; a message has succeeded now."]
    if story.matter == "quiet" and story.values.get("over"):
        return [f"Nothing had succeeded since {since} UTC; a message has now."]
    if story.matter == "quiet":
        return [
            f"Nothing has succeeded since {since} UTC.",
            f"`rq queue ls` and `rq ls {story.queue}` say what it waits for.",
        ]
    if story.matter in OF_ALL:
        return story.text("lines").split("\n")
    if story.matter == "overdue":
        return _of_timer(story, since)
    if story.text("state") == "run":
        return [
            "It is still at work.",
            f"`rq logs -f {story.text('msg_id')}` follows it.",
        ]
    return _ended(story)


def _of_timer(story: Story, since: str) -> list[str]:
    if story.values.get("over"):
        return [f"A message of it ended well at {since} UTC."]
    return [
        f"A success is expected, and none has come since {since} UTC.",
        f"`rq timer show {story.text('timer')}` says what became of its fires.",
    ]


def _ended(story: Story) -> list[str]:
    state = _ENDED.get(story.text("state"))
    if state is None:
        return []
    facts = {
        **story.values,
        "id": story.text("msg_id"),
        "job_status": story.text("text"),
    }
    in_words = stories.story(state, facts)
    if state is not State.ERR:
        return [in_words.what]
    return [in_words.what, in_words.why, in_words.todo]


def facts(story: Story) -> list[tuple[str, str]]:
    """Return names and values that say which message it is about."""
    rows = [("queue", story.queue)] if story.matter not in OF_ALL else []
    names = ("url", "param1", "param2", "param3", "param4", "attempt", "exit", "signal")
    labels = {"url": "message"}
    rows += [(labels.get(n, n), story.text(n)) for n in names if story.text(n)]
    if story.number("run_us"):
        rows.append(("took", wording.duration(story.number("run_us") / 1e6)))
    rows.append(("at", f"{wording.moment(story.number('at'))} UTC"))
    return rows
