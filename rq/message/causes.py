"""Why a message is where it is: each cause with its three sentences.

What happened, why, and what to do; the same words in `rq show`, in JSON and in pages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rq import wording
from rq.message import retry
from rq.replies import StoryView
from rq.states import State


class Cause(StrEnum):
    """Why an attempt ended or did not begin; stored in events and status files."""

    DONE = "done"
    EXITED = "exited"
    RELAYED = "relayed"
    FORWARDED = "forwarded"
    MOVED = "moved"
    DUPLICATE = "duplicate"
    SAID_ERR = "said_err"
    RESEND = "resend"
    LATER = "later"
    RESEND_LIMIT = "resend_limit"
    BAD_REPORT = "bad_report"
    EXIT = "exit"
    SIGNAL = "signal"
    NO_WORD = "no_word"
    SCRIPT = "script"
    SPAWN = "spawn"
    FOLDER = "folder"
    FOLDER_LIMIT = "folder_limit"
    FAULT = "fault"
    TOO_LARGE = "too_large"
    TIMEOUT = "timeout"
    HEARTBEAT = "heartbeat"
    MEMORY = "memory"
    CPU = "cpu"
    DEADLINE = "deadline"
    BAD_MESSAGE = "bad_message"
    CRASH = "crash"
    HOST = "host"
    CRASH_LIMIT = "crash_limit"
    BATCH = "batch"
    CANCELLED = "cancelled"
    STOP = "stop"
    LEASE_ENDED = "lease_ended"
    NOT_TAKEN = "not_taken"
    RELEASED = "released"
    JOINED = "joined"
    REPLACED = "replaced"
    NOT_UNIQUE = "not_unique"
    OPERATOR = "operator"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Story:
    """What happened, why, and what to do, a sentence each."""

    what: str
    why: str
    todo: str

    def to_json(self) -> StoryView:
        return {"what": self.what, "why": self.why, "todo": self.todo}


_RETRY = "Mend the cause, then `rq retry {id}`; `rq logs {id}` shows its output."
_MEMORY = "If nobody did that, memory may have run out: ask `dmesg`. "

STORIES: dict[Cause, Story] = {
    Cause.DONE: Story(
        "It succeeded in attempt {attempt} after {run}.",
        "{who} reported done{exited}: {text}",
        "Nothing.",
    ),
    Cause.EXITED: Story(
        "It succeeded in attempt {attempt} after {run}.",
        "The script exited with 0, which is success in this queue: {text}",
        "Nothing.",
    ),
    Cause.RELAYED: Story(
        "It was handed over in attempt {attempt} after {run}.",
        "The script reported relayed and exited with 0: {text}",
        "Nothing here; the message goes on at that address.",
    ),
    Cause.FORWARDED: Story(
        "It succeeded in attempt {attempt} after {run}, and was handed on.",
        "{who} reported forward{exited}: {text}",
        "Nothing here; a copy of it goes on there.",
    ),
    Cause.MOVED: Story(
        "It was moved to another queue.",
        "Somebody asked for it: {text}",
        "Nothing here; it goes on there, under an id of that queue.",
    ),
    Cause.DUPLICATE: Story(
        "It ended together with another message and did not run itself.",
        "An equal message ran for it (coalesce_params): {other}",
        "Nothing.",
    ),
    Cause.SAID_ERR: Story(
        "It failed in attempt {attempt} after {run}.",
        "{who} reported err: {text}",
        _RETRY,
    ),
    Cause.RESEND: Story(
        "Attempt {attempt} ended after {run} and it waits for the next.",
        "{who} asked to be run again (retry {count} of {most}): {reason}",
        "Nothing; it runs again by itself. `rq run {id}` does not wait.",
    ),
    Cause.LATER: Story(
        "Attempt {attempt} ended after {run} and it waits for the next.",
        "{who} asked to be run later: {later}",
        "Nothing, if that passes by itself: the message then runs again. `rq run {id}` "
        "tries now.",
    ),
    Cause.RESEND_LIMIT: Story(
        "It failed: it asked to be run again {times}, and that is the end.",
        "{who} still could not finish, and max_count is {max_count}.",
        "`rq logs {id}` shows what it waited for; `rq retry {id}` counts from 0 again.",
    ),
    Cause.BAD_REPORT: Story(
        "It failed in attempt {attempt} after {run}.",
        "What the script reported makes no sense: RQ {text}",
        "Mend the script (docs/reference/pipe.md), then `rq retry {id}`.",
    ),
    Cause.EXIT: Story(
        "It failed in attempt {attempt} after {run}.",
        "The script exited with status {exit}{after}; only 0 is success.{last}",
        _RETRY,
    ),
    Cause.SIGNAL: Story(
        "It failed in attempt {attempt} after {run}.",
        "The script was killed by {signal}{after}.{words}",
        "{hint}" + _RETRY,
    ),
    Cause.NO_WORD: Story(
        "It failed in attempt {attempt} after {run}.",
        "The script exited with 0 but never reported done, err or resend{said}",
        "Let the script write `done` to descriptor 3 as its last act, then "
        "`rq retry {id}`.",
    ),
    Cause.SCRIPT: Story(
        "It waits in the queue; its script cannot be started.",
        "The start failed: {text}",
        "Mend the script (path, x bit, first line); the message then starts by "
        "itself within seconds.",
    ),
    Cause.SPAWN: Story(
        "It waits in the queue; no process could be started for it.",
        "The machine is short of something: {text}",
        "Nothing if it passes; it is tried again with growing pauses. Otherwise "
        "look at memory, process and descriptor limits.",
    ),
    Cause.FOLDER: Story(
        "It waits in the queue; its own folder cannot be used, and the others go on.",
        "The start failed: {text}",
        "Nothing if it passes; it is tried again with growing pauses, and goes to err "
        "after some. Otherwise see what holds the folder: a mount, a flag, the disk.",
    ),
    Cause.FOLDER_LIMIT: Story(
        "It failed before it was started: its own folder cannot be used.",
        "It was tried again and again: {text}",
        "See what holds the folder (a mount, a flag, the disk: `dmesg`), then "
        "`rq retry {id}`.",
    ),
    Cause.FAULT: Story(
        "RQ itself failed over it; the others go on.",
        "That is a fault of RQ: {text}",
        "Report it, with the log of its queue. What waits is tried again with growing "
        "pauses; what is in err runs again with `rq retry {id}`.",
    ),
    Cause.TOO_LARGE: Story(
        "It failed before it was started.",
        "Its parameters are too large for the environment of a process {size}",
        "Send large data as an attachment.",
    ),
    Cause.TIMEOUT: Story(
        "It failed in attempt {attempt}: it took too long.",
        "The script was {text}",
        "If it needs longer, raise `timeout`; then `rq retry {id}`. `rq logs {id}` shows "
        "how far it came.",
    ),
    Cause.HEARTBEAT: Story(
        "It failed in attempt {attempt}: it was silent for too long.",
        "The script was {text}",
        "Let it say `run TEXT` on descriptor 3, or print something, more often than its "
        "`heartbeat`; then `rq retry {id}`.",
    ),
    Cause.MEMORY: Story(
        "It failed in attempt {attempt}: it wanted too much memory.",
        "The script was {text}",
        "If it needs more, raise `memory`; then `rq retry {id}`.",
    ),
    Cause.CPU: Story(
        "It failed in attempt {attempt}: it took too much of the processor.",
        "The script was {text}",
        "If it needs more, raise `cpu_seconds`; then `rq retry {id}`.",
    ),
    Cause.DEADLINE: Story(
        "It failed before it was started: it came too late.",
        "Nothing starts after its deadline: {text}",
        "`rq retry {id}` does not help past a deadline of its own; send it anew. A "
        "`deadline` of the queue counts from the retry.",
    ),
    Cause.BAD_MESSAGE: Story(
        "It was refused when its folder was read.",
        "What is wrong with it: {text}",
        "Correct it and send it again; nothing was removed.",
    ),
    Cause.CRASH: Story(
        "Attempt {attempt} was lost and it waits for the next.",
        "RQ itself ended without warning while it ran (retry {count} of {most}).",
        "Nothing; it runs again by itself. The log of its queue says more.",
    ),
    Cause.HOST: Story(
        "Attempt {attempt} was lost and it waits for the next.",
        "The machine restarted while it ran (retry {count} of {most}).",
        "Nothing; it runs again by itself.",
    ),
    Cause.CRASH_LIMIT: Story(
        "It failed: {lost}, and it is not tried again.",
        "RQ, the machine, the process of its batch or its worker elsewhere ended while "
        "it ran (tries used: {count}); this message may be what ends them.",
        "Look at `rq logs {id}` and the log of its queue before `rq retry {id}`.",
    ),
    Cause.BATCH: Story(
        "Attempt {attempt} was lost and it waits for the next.",
        "The process of its batch ended before it had reported how this message ended "
        "(retry {count} of {most}): {text}",
        "Nothing; it runs again by itself. `rq logs {id}` shows the output of the batch.",
    ),
    Cause.CANCELLED: Story(
        "It was cancelled in attempt {attempt} after {run}.",
        "It was {text} while it ran.",
        "`rq retry {id}` runs it again, `rq delete {id}` removes it.",
    ),
    Cause.STOP: Story(
        "Attempt {attempt} was cut short and it waits for the next.",
        "The queue was stopped while it ran; this does not count.",
        "Nothing; it runs again by itself when the queue is up.",
    ),
    Cause.LEASE_ENDED: Story(
        "Attempt {attempt} was lost and it waits for the next.",
        "Its lease ran out (retry {count} of {most}): {text}",
        "Nothing; it runs again by itself. See that its worker runs, and that it renews "
        "its leases in time.",
    ),
    Cause.NOT_TAKEN: Story(
        "It waits for the next attempt; the one before did not begin.",
        "It was leased to a worker that did not take it: {text}",
        "Nothing; it is leased again by itself. If this happens often, look at that "
        "worker.",
    ),
    Cause.RELEASED: Story(
        "Attempt {attempt} was given back and it waits for the next.",
        "Its worker did not end it: {text}",
        "Nothing; it runs again by itself.",
    ),
    Cause.JOINED: Story(
        "It joined an equal message and did not run itself.",
        "The queue takes one of equal messages (unique): {text} stands for it.",
        "Nothing; look at that message.",
    ),
    Cause.REPLACED: Story(
        "It was removed before it ran.",
        "A newer message took its place (unique): {text}.",
        "Nothing; look at that message.",
    ),
    Cause.NOT_UNIQUE: Story(
        "It came by new/ and ended in err at once.",
        "The queue takes one of equal messages (unique): {text}",
        "`rq retry {id}` when that one has ended; nothing was removed.",
    ),
    Cause.OPERATOR: Story(
        "It waits to run again.",
        "It was put back into the queue {text}.",
        "Nothing; it runs when it is due.",
    ),
    Cause.REFUSED: Story(
        "It failed in attempt {attempt} after {run}.",
        "What it had to hand on was refused: {refusal}",
        "See that the queue is there and UP, then `rq retry {id}`; `rq logs {id}` shows "
        "its output.",
    ),
}

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
    State.ERR: Story("It failed.", "{known}", _RETRY),
    State.DISMISSED: Story("It failed, and was acknowledged.", "{known}", _RETRY),
}


_RETRIED = "retry"
# Causes that tell by themselves that the message runs again.
_COMES_BACK = frozenset(
    {
        Cause.RESEND,
        Cause.LATER,
        Cause.CRASH,
        Cause.HOST,
        Cause.BATCH,
        Cause.STOP,
        Cause.LEASE_ENDED,
        Cause.NOT_TAKEN,
        Cause.RELEASED,
    }
)
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
    cause = facts.get("cause")
    named = Cause.__members__.get(str(cause).upper()) if cause else None
    plain = named is None or state in (State.RUN, State.PREP)
    template = _PLAIN[state] if plain or named is None else STORIES[named]
    again = facts.get("outcome") == _RETRIED and named not in _COMES_BACK
    if state is State.QUE and named is not None and again:
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
    if state is State.QUE and named is not None and not _tells(filled, waiting):
        why = f"{why.rstrip('.')}. {waiting}"
    needs = str(facts.get("needs") or "") if state is State.QUE else ""
    todo = needs or template.todo.format_map(filled)
    return Story(template.what.format_map(filled), why, todo)


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
        self["hint"] = _MEMORY if facts.get("signal") == "SIGKILL" else ""
        by = _teller(facts)
        self["who"] = "The script" if by is None else f"Its worker {by}"
        self["exited"] = " and exited with 0" if by is None else ""
        run_us = facts.get("run_us")
        self["run"] = "?" if run_us is None else wording.duration(run_us / 1e6)

    def __missing__(self, name: str) -> str:
        return "?"
