"""Why an attempt ended or did not begin: each cause with all that follows from it.

A row has the three sentences that people are told, and what the rules ask of a cause: does
the attempt count as a retry, may the setting `retry` make it again, was it lost, was it
ended for a limit. Retries, the end of an attempt, lists, pages and the history read the
rows; only what makes a cause names it. So a cause is added here, and in the table of
docs/reference/messages.md.

The words are stored in events and status files, and lines of the journal are read for ever:
none is ever renamed, or given another meaning.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Row:
    """What happened, why, and what to do, a sentence each; and what follows from it."""

    what: str
    why: str
    todo: str
    # By which words of the setting `retry` such an attempt is made again; none: never.
    on: tuple[str, ...] = ()
    counts: bool = True  # if the message runs again, that is a retry
    comes_back: bool = False  # the sentences say that the message runs again by itself
    is_limit: bool = False  # the attempt was ended for a limit
    is_last: bool = False  # it was tried as often as it may be
    is_wanted: bool = False  # a person ended it, so it is acknowledged from the first
    is_lost: bool = False  # it is not known how the attempt would have ended
    lacks_word: bool = False  # the script ended, and had not properly said how
    names_delay: bool = False  # what was said begins with the seconds to wait
    how: str = ""  # it ended, in a list of attempts, before the reason
    brief: str = ""  # the reason there, in place of what was said

    def __post_init__(self) -> None:
        sentences = self.what, self.why, self.todo
        assert all(sentences), "a cause has three sentences"
        assert not (self.is_last and self.comes_back), "the last attempt is the last"


RETRY = "Mend the cause, then `rq retry {id}`; `rq logs {id}` shows its output."


class Cause(StrEnum):
    """Why an attempt ended or did not begin; its word, and its row."""

    row: Row

    def __new__(cls, word: str, row: Row) -> Cause:
        cause = str.__new__(cls, word)
        cause._value_ = word
        cause.row = row
        return cause

    DONE = (
        "done",
        Row(
            "It succeeded in attempt {attempt} after {run}.",
            "{who} reported done{exited}: {text}",
            "Nothing.",
        ),
    )
    EXITED = (
        "exited",
        Row(
            "It succeeded in attempt {attempt} after {run}.",
            "The script exited with 0, which is success in this queue: {text}",
            "Nothing.",
        ),
    )
    RELAYED = (
        "relayed",
        Row(
            "It was handed over in attempt {attempt} after {run}.",
            "The script reported relayed and exited with 0: {text}",
            "Nothing here; the message goes on at that address.",
        ),
    )
    FORWARDED = (
        "forwarded",
        Row(
            "It succeeded in attempt {attempt} after {run}, and was handed on.",
            "{who} reported forward{exited}: {text}",
            "Nothing here; a copy of it goes on there.",
        ),
    )
    MOVED = (
        "moved",
        Row(
            "It was moved to another queue.",
            "Somebody asked for it: {text}",
            "Nothing here; it goes on there, under an id of that queue.",
        ),
    )
    DUPLICATE = (
        "duplicate",
        Row(
            "It ended together with another message and did not run itself.",
            "An equal message ran for it (coalesce_params): {other}",
            "Nothing.",
        ),
    )
    SAID_ERR = (
        "said_err",
        Row(
            "It failed in attempt {attempt} after {run}.",
            "{who} reported err: {text}",
            RETRY,
        ),
    )
    RESEND = (
        "resend",
        Row(
            "Attempt {attempt} ended after {run} and it waits for the next.",
            "{who} asked to be run again (retry {count} of {most}): {reason}",
            "Nothing; it runs again by itself. `rq run {id}` does not wait.",
            comes_back=True,
            names_delay=True,
            how="asked to be run again",
        ),
    )
    LATER = (
        "later",
        Row(
            "Attempt {attempt} ended after {run} and it waits for the next.",
            "{who} asked to be run later: {later}",
            "Nothing, if that passes by itself: the message then runs again. `rq run {id}` "
            "tries now.",
            counts=False,
            comes_back=True,
            names_delay=True,
            how="asked to be run later",
        ),
    )
    RESEND_LIMIT = (
        "resend_limit",
        Row(
            "It failed: it asked to be run again {times}, and that is the end.",
            "{who} still could not finish, and max_count is {max_count}.{beside}",
            "`rq logs {id}` shows what it waited for; `rq retry {id}` counts from 0 again.",
            is_last=True,
        ),
    )
    BAD_REPORT = (
        "bad_report",
        Row(
            "It failed in attempt {attempt} after {run}.",
            "What the script reported makes no sense: RQ {text}",
            "Mend the script (docs/reference/pipe.md), then `rq retry {id}`.",
        ),
    )
    EXIT = (
        "exit",
        Row(
            "It failed in attempt {attempt} after {run}.",
            "The script exited with status {exit}{after}; only 0 is success.{last}",
            RETRY,
            on=("exit",),
            lacks_word=True,
        ),
    )
    SIGNAL = (
        "signal",
        Row(
            "It failed in attempt {attempt} after {run}.",
            "The script was killed by {signal}{after}.{words}",
            "{hint}" + RETRY,
            on=("signal",),
            lacks_word=True,
        ),
    )
    NO_WORD = (
        "no_word",
        Row(
            "It failed in attempt {attempt} after {run}.",
            "The script exited with 0 but never reported done, err or resend{said}",
            "Let the script write `done` to descriptor 3 as its last act, then "
            "`rq retry {id}`.",
            on=("no_word",),
            lacks_word=True,
            brief="it never reported how it ended",
        ),
    )
    SCRIPT = (
        "script",
        Row(
            "It waits in the queue; its script cannot be started.",
            "The start failed: {text}",
            "Mend the script (path, x bit, first line); the message then starts by "
            "itself within seconds.",
            counts=False,
            how="did not begin",
        ),
    )
    SPAWN = (
        "spawn",
        Row(
            "It waits in the queue; no process could be started for it.",
            "The machine is short of something: {text}",
            "Nothing if it passes; it is tried again with growing pauses. Otherwise "
            "look at memory, process and descriptor limits.",
            counts=False,
            how="did not begin",
        ),
    )
    FOLDER = (
        "folder",
        Row(
            "It waits in the queue; its own folder cannot be used, and the others go on.",
            "The start failed: {text}",
            "Nothing if it passes; it is tried again with growing pauses, and goes to err "
            "after some. Otherwise see what holds the folder: a mount, a flag, the disk.",
            counts=False,
            how="did not begin",
        ),
    )
    FOLDER_LIMIT = (
        "folder_limit",
        Row(
            "It failed before it was started: its own folder cannot be used.",
            "It was tried again and again: {text}",
            "See what holds the folder (a mount, a flag, the disk: `dmesg`), then "
            "`rq retry {id}`.",
            how="did not begin",
        ),
    )
    FAULT = (
        "fault",
        Row(
            "RQ itself failed over it; the others go on.",
            "That is a fault of RQ: {text}",
            "Report it, with the log of its queue. What waits is tried again with growing "
            "pauses; what is in err runs again with `rq retry {id}`.",
            counts=False,
        ),
    )
    TOO_LARGE = (
        "too_large",
        Row(
            "It failed before it was started.",
            "Its parameters are too large for the environment of a process {size}",
            "Send large data as an attachment.",
            how="did not begin",
        ),
    )
    TIMEOUT = (
        "timeout",
        Row(
            "It failed in attempt {attempt}: it took too long.",
            "The script was {text}",
            "If it needs longer, raise `timeout`; then `rq retry {id}`. `rq logs {id}` shows "
            "how far it came.",
            on=("timeout",),
            is_limit=True,
        ),
    )
    HEARTBEAT = (
        "heartbeat",
        Row(
            "It failed in attempt {attempt}: it was silent for too long.",
            "The script was {text}",
            "Let it say `run TEXT` on descriptor 3, or print something, more often than its "
            "`heartbeat`; then `rq retry {id}`.",
            on=("timeout",),
            is_limit=True,
        ),
    )
    MEMORY = (
        "memory",
        Row(
            "It failed in attempt {attempt}: it wanted too much memory.",
            "The script was {text}",
            "If it needs more, raise `memory`; then `rq retry {id}`.",
            on=("memory",),
            is_limit=True,
        ),
    )
    CPU = (
        "cpu",
        Row(
            "It failed in attempt {attempt}: it took too much of the processor.",
            "The script was {text}",
            "If it needs more, raise `cpu_seconds`; then `rq retry {id}`.",
            on=("cpu",),
            is_limit=True,
        ),
    )
    DEADLINE = (
        "deadline",
        Row(
            "It failed before it was started: it came too late.",
            "Nothing starts after its deadline: {text}",
            "`rq retry {id}` does not help past a deadline of its own; send it anew. A "
            "`deadline` of the queue counts from the retry.",
        ),
    )
    BAD_MESSAGE = (
        "bad_message",
        Row(
            "It was refused when its folder was read.",
            "What is wrong with it: {text}",
            "Correct it and send it again; nothing was removed.",
            how="did not begin",
        ),
    )
    CRASH = (
        "crash",
        Row(
            "Attempt {attempt} was lost and it waits for the next.",
            "RQ itself ended without warning while it ran (retry {count} of {most}).",
            "Nothing; it runs again by itself. The log of its queue says more.",
            on=("crash",),
            comes_back=True,
            is_lost=True,
            how="lost",
            brief="RQ ended while it ran",
        ),
    )
    HOST = (
        "host",
        Row(
            "Attempt {attempt} was lost and it waits for the next.",
            "The machine restarted while it ran (retry {count} of {most}).",
            "Nothing; it runs again by itself.",
            on=("crash",),
            comes_back=True,
            is_lost=True,
            how="lost",
            brief="the machine restarted while it ran",
        ),
    )
    CRASH_LIMIT = (
        "crash_limit",
        Row(
            "It failed: {lost}, and it is not tried again.",
            "RQ, the machine, the process of its batch or its worker elsewhere ended while "
            "it ran (tries used: {count}); this message may be what ends them.{beside}",
            "Look at `rq logs {id}` and the log of its queue before `rq retry {id}`.",
            is_last=True,
            is_lost=True,
            how="lost",
        ),
    )
    BATCH = (
        "batch",
        Row(
            "Attempt {attempt} was lost and it waits for the next.",
            "The process of its batch ended before it had reported how this message ended "
            "(retry {count} of {most}): {text}",
            "Nothing; it runs again by itself. `rq logs {id}` shows the output of the batch.",
            on=(
                "crash",
                "exit",
                "signal",
            ),
            comes_back=True,
            is_lost=True,
            how="lost",
        ),
    )
    CANCELLED = (
        "cancelled",
        Row(
            "It was cancelled in attempt {attempt} after {run}.",
            "It was {text} while it ran.",
            "Nothing: it counts as acknowledged. `rq retry {id}` runs it again, `rq delete "
            "{id}` removes it.",
            is_wanted=True,
        ),
    )
    STOP = (
        "stop",
        Row(
            "Attempt {attempt} was cut short and it waits for the next.",
            "The queue was stopped while it ran; this does not count.",
            "Nothing; it runs again by itself when the queue is up.",
            counts=False,
            comes_back=True,
            how="cut short",
            brief="a stop of its queue",
        ),
    )
    LEASE_ENDED = (
        "lease_ended",
        Row(
            "Attempt {attempt} was lost and it waits for the next.",
            "Its lease ran out (retry {count} of {most}): {text}",
            "Nothing; it runs again by itself. See that its worker runs, and that it renews "
            "its leases in time.",
            on=("crash",),
            comes_back=True,
            is_lost=True,
            how="lost",
        ),
    )
    NOT_TAKEN = (
        "not_taken",
        Row(
            "It waits for the next attempt; the one before did not begin.",
            "It was leased to a worker that did not take it: {text}",
            "Nothing; it is leased again by itself. If this happens often, look at that "
            "worker.",
            counts=False,
            comes_back=True,
            how="did not begin",
        ),
    )
    RELEASED = (
        "released",
        Row(
            "Attempt {attempt} was given back and it waits for the next.",
            "Its worker did not end it: {text}",
            "Nothing; it runs again by itself.",
            counts=False,
            comes_back=True,
            how="given back",
        ),
    )
    JOINED = (
        "joined",
        Row(
            "It joined an equal message and did not run itself.",
            "The queue takes one of equal messages (unique): {text} stands for it.",
            "Nothing; look at that message.",
        ),
    )
    REPLACED = (
        "replaced",
        Row(
            "It was removed before it ran.",
            "A newer message took its place (unique): {text}.",
            "Nothing; look at that message.",
        ),
    )
    NOT_UNIQUE = (
        "not_unique",
        Row(
            "It came by new/ and ended in err at once.",
            "The queue takes one of equal messages (unique): {text}",
            "`rq retry {id}` when that one has ended; nothing was removed.",
        ),
    )
    AFTER = (
        "after",
        Row(
            "It was not run, because of what it waited for.",
            "It runs when others have ended well (after): {text}",
            "See why that did not end well and `rq retry` it; then `rq retry {id}` lets this "
            "one wait for it again.",
            how="did not begin",
        ),
    )
    NOT_NEEDED = (
        "not_needed",
        Row(
            "It ended without being run: it was not needed.",
            "What it waited for has not failed (after_rule), or was not needed itself.",
            "Nothing.",
        ),
    )
    OPERATOR = (
        "operator",
        Row(
            "It waits to run again.",
            "It was put back into the queue {text}.",
            "Nothing; it runs when it is due.",
        ),
    )
    REFUSED = (
        "refused",
        Row(
            "It failed in attempt {attempt} after {run}.",
            "What it had to hand on was refused: {refusal}",
            "See that the queue is there and UP, then `rq retry {id}`; `rq logs {id}` shows "
            "its output.",
        ),
    )


# What the entries of `on` in the setting `retry` may be, beside statuses and signals.
WORDS = tuple(dict.fromkeys(word for cause in Cause for word in cause.row.on))

_BY_WORD = {str(cause): cause for cause in Cause}


def of(word: object) -> Cause | None:
    """Return the cause of a word; None: it is none that this RQ knows."""
    return _BY_WORD.get(word) if isinstance(word, str) else None
