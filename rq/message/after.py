"""A message that runs when others have ended: its field `after`, and the rule of it.

A *predecessor* is named `QUEUE/ID`. Its owner says how it stands in one of a few words
(`Standing`); what may follow from these words stands in this file alone:

- `OPEN`: nothing follows yet. `unknown` is one of them: a predecessor that has expired,
  or came from another copy of the root, never fails by itself. A person decides.
- `LASTING`: the word never changes again, so its owner is not asked any more. What has
  failed may run again, and is asked until the message has been decided.

`verdict` is the rule. It looks at counts, never at the predecessors one by one: a message
may have ten thousand, and each of them may be named by a hundred thousand messages.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rq import names
from rq.errors import BadInput, BadMessage
from rq.words.nesting import Json

MOST = 10_000  # predecessors of a message
MOST_INLINE = 100  # of them in `msg`; more stand in a file of their own
# The queue of the messages that send flows. Such a predecessor is the *gate* of those that
# it sends: none runs before it has ended in done, whatever their rules say, and when it
# ends otherwise each is discarded.
GATES = "flow"
SELF = "self"  # in a list of a script: the message that it works on
NO_SELF = (
    "after: self is the message that a script works on, which only the script's own token "
    "or environment tells: name a message by its id here"
)


class Rule(StrEnum):
    """When a message runs that names predecessors; the word of `after_rule`."""

    DONE = "done"  # each has ended in done or relayed
    ENDED = "ended"  # each has ended, however
    FAILED = "failed"  # all have ended, and at least one in err


class Fail(StrEnum):
    """What becomes of it when `done` is not to be; the word of `after_fail`."""

    HOLD = "hold"  # it waits on: a retry of the predecessor may still satisfy it
    ERR = "err"
    CANCEL = "cancel"  # it is not run, and tells nobody


class Standing(StrEnum):
    """How a predecessor stands, as its owner says."""

    WAITING = "waiting"  # it waits or runs
    DONE = "done"
    RELAYED = "relayed"
    FAILED = "failed"  # in err, acknowledged or not
    CANCELLED = "cancelled"  # by a person while it ran: it has failed, too
    DELETED = "deleted"  # by a person
    NOT_RUN = "not_run"  # cancelled, for what it waited for itself has failed
    NOT_NEEDED = "not_needed"  # its own rule said that it need not run
    GOES_ON = "goes_on"  # under another id, which the answer names
    UNKNOWN = "unknown"


OPEN = frozenset({Standing.WAITING, Standing.UNKNOWN, Standing.GOES_ON})
LASTING = frozenset(
    {Standing.DONE, Standing.RELAYED, Standing.DELETED, Standing.NOT_NEEDED}
)
FAILURES = frozenset({Standing.FAILED, Standing.CANCELLED, Standing.DELETED})
# A retry may change these: before a message is decided by them, they are asked again.
DOUBTFUL = frozenset({Standing.FAILED, Standing.CANCELLED, Standing.NOT_RUN})


class Verdict(StrEnum):
    """What becomes of a message that waits for others."""

    WAIT = "wait"
    RUN = "run"
    ERR = "err"
    CANCEL = "cancel"
    NOT_NEEDED = "not_needed"
    DISCARD = "discard"  # its flow was not begun


@dataclass(frozen=True, slots=True)
class Wait:
    """What a message waits for."""

    ids: tuple[str, ...]  # QUEUE/ID, none twice
    rule: Rule = Rule.DONE
    fail: Fail = Fail.HOLD


@dataclass(slots=True)
class Tally:
    """How the predecessors of one message stand."""

    open: int = 0
    failed: int = 0
    not_run: int = 0
    not_needed: int = 0
    gates: int = 0  # that have not ended
    barred: int = 0  # gates that have ended otherwise than well

    def add(self, standing: Standing, number: int = 1, place: str = "") -> None:
        """Count a predecessor; -1: it stands otherwise now."""
        if is_gate(place):
            if standing in OPEN:
                self.gates += number
            elif standing not in (Standing.DONE, Standing.RELAYED):
                self.barred += number
        elif standing in OPEN:
            self.open += number
        elif standing in FAILURES:
            self.failed += number
        elif standing is Standing.NOT_RUN:
            self.not_run += number
        elif standing is Standing.NOT_NEEDED:
            self.not_needed += number


_BY_FAIL = {
    Fail.HOLD: Verdict.WAIT,
    Fail.ERR: Verdict.ERR,
    Fail.CANCEL: Verdict.CANCEL,
}


def verdict(wait: Wait, tally: Tally) -> Verdict:
    """Return what becomes of a message whose predecessors stand so.

    >>> verdict(Wait(("a/1",)), Tally()), verdict(Wait(("a/1",)), Tally(failed=1))
    (<Verdict.RUN: 'run'>, <Verdict.WAIT: 'wait'>)
    """
    if tally.barred:
        return Verdict.DISCARD
    if tally.gates:
        return Verdict.WAIT
    if wait.rule is Rule.DONE:
        return _verdict_of_done(wait, tally)
    if tally.open:
        return Verdict.WAIT
    needed = wait.rule is Rule.ENDED or tally.failed > 0
    return Verdict.RUN if needed else Verdict.NOT_NEEDED


def _verdict_of_done(wait: Wait, tally: Tally) -> Verdict:
    """As `verdict`: one that has failed decides, whatever the others do. All else decides
    when all have ended: what is said of them first must not make a difference."""
    if tally.failed:
        return _BY_FAIL[wait.fail]
    if tally.open:
        return Verdict.WAIT
    if tally.not_run:
        return Verdict.CANCEL
    return Verdict.NOT_NEEDED if tally.not_needed else Verdict.RUN


# ---- how it is written


def no_host(url: str) -> bool:
    """Which hosts are this one for who does not know its address."""
    return False


def stored(
    ids: object, queue: str = "", is_here: Callable[[str], bool] = no_host
) -> tuple[str, ...]:
    """Return predecessors as a message keeps them, each once: QUEUE/ID. With `queue`, an
    ID alone is one of that queue; a full id is one of this root where `is_here` says so of
    what stands in it before `/q/`. An id that is the same elsewhere is another message."""
    listed = ids.replace(",", " ").split() if isinstance(ids, str) else ids
    if not isinstance(listed, list | tuple):
        raise BadMessage(f"after is not a list of messages: {ids!r:.80}")
    is_root = functools.cache(is_here)
    there = dict.fromkeys(_stored(text, queue, is_root) for text in listed)
    if len(there) > MOST:
        raise BadMessage(f"after names {len(there)} messages, at most {MOST} can be")
    return tuple(there)


def names_self(ids: object) -> bool:
    """Return whether a sender names the message that it works on."""
    return isinstance(ids, str | list | tuple) and SELF in _listed(ids)


def with_self(ids: object, place: str) -> list[object]:
    """Return what a sender names, with QUEUE/ID for the message that it works on.

    >>> with_self("self a/1", "b/2")
    ['b/2', 'a/1']
    """
    listed = _listed(ids) if isinstance(ids, str | list | tuple) else []
    return [place if each == SELF else each for each in listed]


def _listed(ids: str | list[object] | tuple[object, ...]) -> list[object]:
    return list(ids.replace(",", " ").split() if isinstance(ids, str) else ids)


def not_there(place: str) -> BadMessage:
    """Return why a message may not name a predecessor; whether it is there, or may not be
    read by who names it, is not said."""
    return BadMessage(
        f"after: there is no message {place} that you may read: name messages of this root "
        "that are still there"
    )


def _stored(text: object, queue: str, is_here: Callable[[str], bool]) -> str:
    if text == SELF:
        raise BadMessage(NO_SELF)
    if isinstance(text, str):
        try:
            place = _place(text, queue)
        except BadInput:
            pass
        else:
            root, is_full, _ = text.partition("/q/")
            if root and is_full and not text.startswith("q/") and not is_here(root):
                raise not_there(f"{text:.200}")
            return place
    raise BadMessage(
        f"after: {text!r:.80} is no message: say ID, QUEUE/ID or a full id"
    )


def _place(text: str, queue: str) -> str:
    if names.is_msg_id(text) and queue:
        return f"{queue}/{text}"
    name, short = names.split_url(text)
    place = f"{name}/{names.msg_id(short)}"
    # A list is read several times on its way in: what is kept is one text each.
    return text if text == place else place


def wait_in(fields: Mapping[str, object]) -> Wait | None:
    """Return what a message waits for that is JSON in a line or a file, as RQ has written
    it; None: it names no predecessors, or has been decided."""
    ids = fields.get("after")
    if not ids or fields.get("after_end"):
        return None
    try:
        rule = Rule(str(fields.get("after_rule") or Rule.DONE))
        fail = Fail(str(fields.get("after_fail") or Fail.HOLD))
        return Wait(stored(ids), rule, fail)
    except (ValueError, BadMessage):
        return None  # a sender's own, of a message from before RQ knew the field


def is_gate(place: str) -> bool:
    """Return whether a predecessor is a message that sends a flow.

    >>> is_gate("flow/20260102.0304.05.006.7"), is_gate("flows/20260102.0304.05.006.7")
    (True, False)
    """
    return queue_of(place) == GATES


def only_result(rows: Sequence[Mapping[str, Json]]) -> Json:
    """Return the result of the only predecessor, None if there are several: of what is
    told of all, the row of a gate does not count, for each message of a flow has one."""
    others = [row for row in rows if row.get("queue") != GATES]
    return others[0].get("result") if len(others) == 1 else None


def queue_of(place: str) -> str:
    """Return the queue of a predecessor.

    >>> queue_of("mail/20260102.0304.05.006.7")
    'mail'
    """
    return place.partition("/")[0]
