"""Why a message is where it is, in three sentences.

What happened, why, and what to do; the same words in `rq show`, in JSON and in pages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rq.message import causes, retry
from rq.message.causes import RETRY, Cause
from rq.replies import StoryView
from rq.words import wording
from rq.words.states import State


@dataclass(frozen=True, slots=True)
class Story:
    """What happened, why, and what to do, a sentence each."""

    what: str
    why: str
    todo: str

    def to_json(self) -> StoryView:
        return {"what": self.what, "why": self.why, "todo": self.todo}


_MEMORY = "If nobody did that, memory may have run out: ask `dmesg`. "

_PLAIN: dict[State, Story] = {
    State.PREP: Story(
        "It is being prepared.",
        "Its creator has not committed it yet.",
        "Attach what is missing, then `rq commitmesg --msg_id {id}`. RQ removes it if it "
        "is not committed within 36 hours.",
    ),
    State.QUE: Story(
        "It waits in the queue.",
        "{waiting}",
        "Nothing; it starts by itself.",
    ),
    State.RUN: Story(
        "It is running, attempt {attempt}.",
        "Its script was started and has not ended{says}",
        "`rq logs -f {id}` follows it, `rq cancel {id}` ends it.",
    ),
    State.DONE: Story("It succeeded.", "The script reported done.", "Nothing."),
    State.RELAYED: Story("It was handed over.", "{text}", "Nothing."),
    State.ERR: Story("It failed.", "{known}", RETRY),
    State.DISMISSED: Story("It failed, and was acknowledged.", "{known}", RETRY),
}


_RETRIED = "retry"
# Of a failed attempt that the setting `retry` lets be made again.
_AGAIN = Story(
    "Attempt {attempt} failed after {run} and it waits for the next.",
    "",
    "Nothing; it runs again by itself (`retry`). `rq run {id}` does not wait.",
)
_HELD = Story(
    "It stays in run: something of its last attempt is still at work.",
    "{held}",
    "Wait, or end that process; the message then goes on by itself. Until then a new "
    "attempt would run beside it.",
)
_LEASED = Story(
    "It is worked on elsewhere, attempt {attempt}.",
    "{leased}{says}",
    "Nothing: if its worker is gone, the lease runs out and the message runs again. "
    "`rq logs -f {id}` follows it, `rq cancel {id}` asks its worker to end it.",
)
_UNSEEN = Story(
    "It is in run.",
    "An attempt began, and who works on it is not known now. {unseen}",
    "`rq show {id}` tells more when its queue answers.",
)
_IN_TRANSACTION = Story(
    "It is being prepared.",
    "It belongs to transaction {txn}, which has not been committed yet.",
    "Nothing; its creator commits or aborts them all, and RQ aborts a transaction "
    "that is not ended in time. `rq txn ls QUEUE` lists what is open.",
)


def story(state: State, facts: Mapping[str, Any]) -> Story:
    """Return the three sentences for a message in `state`.

    `facts` is its file `status` with `id`, `count`, `max_count` and, for a message
    in que, `waiting` (why it has not started) and `needs` (what a person has to do
    before it can, if anything), for one in run `held` (who keeps it there though its
    script has ended), `leased` (who works on it elsewhere) or `unseen` (why its queue does
    not say). A fact that is missing reads "?".
    """
    cause = causes.of(facts.get("cause"))
    if cause is None or state in (State.RUN, State.PREP):
        template = _PLAIN[state]
    else:
        template = Story(cause.row.what, cause.row.why, cause.row.todo)
    if state is State.QUE and cause is not None and _is_retried(facts, cause):
        template = Story(_AGAIN.what, template.why, _AGAIN.todo)
    if state is State.PREP and "txn" in facts:
        template = _IN_TRANSACTION
    if state is State.RUN:
        template = _at_work(facts)
    filled = _Facts(facts)
    why = wording.ended(template.why.format_map(filled))
    if facts.get("tries") and state in (State.ERR, State.DISMISSED):
        why = f"{why} It was the last of {facts['tries']} attempts (`retry`)."
    waiting = str(facts.get("waiting") or "")
    if state is State.QUE and cause is not None and not _tells(filled, waiting):
        why = f"{why.rstrip('.')}. {waiting}"
    needs = str(facts.get("needs") or "") if state is State.QUE else ""
    todo = needs or template.todo.format_map(filled)
    return Story(template.what.format_map(filled), why, todo)


def _is_retried(facts: Mapping[str, object], cause: Cause) -> bool:
    """Whether the setting `retry` has a failed attempt made again."""
    return facts.get("outcome") == _RETRIED and not cause.row.comes_back


def _at_work(facts: Mapping[str, object]) -> Story:
    """Return the story of a message in run."""
    if facts.get("held"):
        return _HELD
    if facts.get("unseen"):
        return _UNSEEN
    return _LEASED if facts.get("leased") else _PLAIN[State.RUN]


def _teller(facts: Mapping[str, object]) -> str | None:
    """Return who has told how an attempt ended that was leased, without a word of a
    script; None: a script has."""
    lease = facts.get("lease")
    ran = facts.get("exit") is not None or facts.get("signal") is not None
    return None if ran or not isinstance(lease, dict) else str(lease.get("by"))


def _tells(filled: Mapping[str, Any], waiting: str) -> bool:
    """Whether the cause says already why a message waits."""
    return not waiting or bool(filled["text"] and filled["text"] in waiting)


def _most(facts: Mapping[str, Any]) -> int | str:
    """Return the limit of the retries of a message."""
    max_count = facts.get("max_count")
    if max_count is None:
        return "?"
    return retry.most_retries(facts.get("tries"), max_count)


class _Facts(dict[str, Any]):
    def __init__(self, facts: Mapping[str, Any]) -> None:
        super().__init__(facts)
        text = self["text"] = str(facts.get("job_status") or "")
        self["most"] = _most(facts)
        self["other"] = wording.leader(text)
        self["reason"] = wording.reason(text)
        self["later"] = wording.later(text)
        self["refusal"] = wording.refusal(text)
        self["times"] = wording.times(facts.get("count"))
        # How many were lost before RQ counted them apart is not known.
        losses = facts.get("lost_attempts")
        number = f"attempt {facts.get('attempt', '?')} was lost"
        self["lost"] = (
            f"its attempt was lost {wording.times(losses)}" if losses else number
        )
        self["size"] = wording.size_of_environment(text)
        self["says"] = f"; it says: {text}" if text else ""
        self["said"] = f"; its last words: {text}" if text else ""
        self["known"] = text or "The reason is not known."
        word, last = wording.improper(text)
        self["after"] = f" after it had reported {word}" if word else ""
        self["words"] = f" Its last words: {last}" if last else ""
        self["last"] = self["words"] or " It reported nothing; its log may say more."
        beside = wording.beside_limit(text)
        self["beside"] = f" Its last words: {wording.ended(beside)}" if beside else ""
        self["hint"] = _MEMORY if facts.get("signal") == "SIGKILL" else ""
        by = _teller(facts)
        self["who"] = "The script" if by is None else f"Its worker {by}"
        self["exited"] = " and exited with 0" if by is None else ""
        run_us = facts.get("run_us")
        self["run"] = "?" if run_us is None else wording.duration(run_us / 1e6)

    def __missing__(self, name: str) -> str:
        return "?"
