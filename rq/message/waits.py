"""Why a message waits: a reason for programs, and a sentence for people.

Whoever shows a waiting message (lists, pages, the API, the command line; its queue, or who
reads the folders of one that is silent) takes these words, so that all agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from rq.replies import PauseView, WhyView
from rq.words.wording import duration, moment


class Reason(StrEnum):
    """What a message waits for."""

    PREP = "prep"  # its creator, who has not committed it
    TXN = "txn"  # the commit of its transaction
    HELD = "held"  # somebody holds it
    AFTER = "after"  # the ends of other messages
    RIDES = "rides"  # the end of an equal one
    RESTORED = "restored"  # a decision: its queue was copied or restored
    PAUSED = "paused"  # its queue
    DOWN = "down"  # its queue
    SILENT = "silent"  # its queue's process, which does not answer
    SCRIPT = "script"  # a script that can be started
    DISK = "disk"  # the disk, or its journal
    DUE = "due"  # the moment when it is due
    KEY = "key"  # messages with an equal key
    OUTSIDE = "outside"  # a host, or what else its script has named
    RATE = "rate"  # the rate of its queue
    LEASE = "lease"  # a worker elsewhere
    SLOT = "slot"  # a slot
    BATCH = "batch"  # more messages of its batch
    START = "start"  # a process, which cannot be started just now, or is not ready
    NEXT = "next"  # nothing: it is the next


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """Why a message waits, until when (epoch seconds), and because of whom."""

    reason: Reason
    text: str
    until: float | None = None
    by: str | None = None

    def to_json(self) -> WhyView:
        """Return it as it is told."""
        return {
            "reason": str(self.reason),
            "text": self.text,
            "until": self.until,
            "by": self.by,
        }


def rows(number: int, of: str = "que") -> str:
    """Return that so many of those that wait are rows, which no list shows.

    >>> rows(900_000)
    '900,000 of que are rows still: messages are made of them as their turn nears'
    >>> rows(1)
    '1 of que is a row still: a message is made of it as its turn nears'
    """
    if number == 1:
        return f"1 of {of} is a row still: a message is made of it as its turn nears"
    still = f"{number:,} of {of} are rows still"
    return f"{still}: messages are made of them as their turn nears"


def prepared(txn: str | None) -> Why:
    """Return why a message waits that is being prepared, perhaps in a transaction."""
    if txn is None:
        return Why(reason=Reason.PREP, text="Its creator has not committed it yet.")
    text = f"It belongs to transaction {txn}, which has not been committed yet."
    return Why(reason=Reason.TXN, text=text, by=txn)


def due(at: float, now: float, because: str = "") -> Why:
    """Return why a message waits that is not due yet; `because`: the end of the
    sentence.

    >>> due(600.0, 0.0).text
    'It is due in 10 min (1970-01-01 00:10:00 UTC).'
    """
    text = f"It is due in {duration(at - now)} ({moment(at)} UTC){because}."
    return Why(reason=Reason.DUE, text=text, until=at)


def and_due(why: Why, at: float, now: float) -> Why:
    """Return why a message waits for something else, and also for its due if that has not
    come: what ends the one does not end the other.

    >>> and_due(paused("ann", "", None, None), 600.0, 0.0).text
    'The queue is paused by ann. It is due in 10 min (1970-01-01 00:10:00 UTC).'
    """
    if at <= now:
        return why
    return replace(why, text=f"{why.text} {due(at, now).text}")


def held(hold: Mapping[str, object]) -> Why:
    """Return why a message waits that somebody holds.

    >>> held({"by": "ann", "why": "disk swap", "since": 0}).text
    'It is held by ann since 1970-01-01 00:00:00 UTC: disk swap.'
    """
    by, why = str(hold.get("by") or ""), str(hold.get("why") or "")
    text = "It is held" + said_by(by, hold.get("since")) + (f": {why}" if why else "")
    return Why(reason=Reason.HELD, text=f"{text.rstrip('.')}.", by=by or None)


def others(number: int) -> str:
    """Return for how many messages another one waits.

    >>> others(1), others(3000)
    ('another message', '3,000 other messages')
    """
    return "another message" if number == 1 else f"{number:,} other messages"


def paused(by: str, why: str, since: float | None, until: float | None) -> Why:
    """Return why the messages of a queue wait that somebody has paused.

    >>> paused("ann", "disk swap", 50520.0, 64800.0).text
    'The queue is paused by ann since 14:02 until 18:00 UTC: disk swap.'
    >>> paused("", "", None, None).text
    'The queue is paused.'
    """
    text = f"The queue is {pause(by, why, since, until)}."
    return Why(reason=Reason.PAUSED, text=text, until=until, by=by or None)


def pause(by: str, why: str, since: float | None, until: float | None) -> str:
    """Return how a queue is that somebody has paused, as in "the queue is …"."""
    who, reason = f" by {by}" if by else "", f": {why}" if why else ""
    return f"paused{who}{_span(since, until)}{reason}".rstrip(".")


def pause_view(
    by: str, why: str, since: float | None, until: float | None
) -> PauseView:
    """Return a pause of a queue as it is told."""
    text = paused(by, why, since, until).text
    return {"by": by, "why": why, "since": since, "until": until, "text": text}


def pause_of_view(view: PauseView) -> str:
    """Return `pause`, of a pause as it is told."""
    return pause(view["by"], view["why"], view["since"], view["until"])


def _span(since: float | None, until: float | None) -> str:
    """Return from when to when; the date, too, if it is not the same for both."""
    ends = [moment(at) for at in (since, until) if at is not None]
    short = len({at[:10] for at in ends}) == 1 and len(ends) == 2
    cut = [at[11:16] if short else at[:16] for at in ends]
    words = [
        name for name, at in (("since", since), ("until", until)) if at is not None
    ]
    said = "".join(f" {word} {at}" for word, at in zip(words, cut, strict=True))
    return f"{said} UTC" if said else ""


def said_by(by: str, since: object) -> str:
    """Return who has said so, and since when, as the rest of a sentence."""
    who = f" by {by}" if by else ""
    is_known = isinstance(since, int | float) and since is not True
    return who + (f" since {moment(float(str(since)))} UTC" if is_known else "")
