"""When a message that failed, or asked for it, is tried again, and why: the same words in
lists, pages, the command line and JSON."""

from __future__ import annotations

from rq.message import causes, retry
from rq.message.causes import Cause
from rq.replies import MessageView, NextAttempt, Result
from rq.words import wording
from rq.words.wording import duration, moment

# The outcome of an attempt that its message comes back from by itself, and waits; after
# `requeue` it is due at once.
_COMES_BACK = frozenset({"retry"})
_WELL = frozenset({"done", "relayed"})


def of(result: Result, count: int, max_count: int, due: float) -> NextAttempt | None:
    """Return when a message in que is tried again, and why; None: it is its first turn.

    >>> result: Result = {"outcome": "retry", "cause": "exit", "exit": 75, "tries": 5,
    ...                   "attempt": 2, "finished": 1000.0, "job_status": ""}
    >>> of(result, 2, 15, 1040.0)["text"]
    'attempt 3 of 5 at 1970-01-01 00:17:20 UTC: exit status 75, waits 40 s'
    """
    if result.get("outcome") not in _COMES_BACK:
        return None
    most = result.get("tries", max_count)
    waits = max(0.0, due - result.get("finished", due))
    why = _why(result)
    text = f"attempt {count + 1} of {most} at {moment(due)} UTC: {why}"
    if (whole := round(waits)) > 0:
        text += f", waits {f'{whole} s' if whole < 60 else duration(whole)}"
    return {
        "attempt": count + 1,
        "of": most,
        "at": due,
        "why": why,
        "waits": waits,
        "text": text,
    }


def retries(message: MessageView) -> str:
    """Return how many retries of a message were counted, of how many.

    >>> retries({"count": 4, "max_count": 15, "result": {"tries": 5}})
    '4 of 4'
    """
    tries = message.get("result", {}).get("tries")
    most = retry.most_retries(tries, message.get("max_count", 0))
    return f"{message.get('count', 0)} of {most}"


def how(result: Result) -> str:
    """Return in a few words how an attempt ended.

    >>> how({"outcome": "done", "cause": "done", "job_status": "all well"})
    'done: all well'
    >>> how({"outcome": "retry", "cause": "crash", "job_status": "the attempt was lost"})
    'lost: RQ ended while it ran'
    >>> how({"outcome": "err", "cause": "cancelled", "job_status": "cancelled by ann"})
    'cancelled by ann'
    >>> how({"outcome": "err", "cause": "too_large", "job_status": "too large"})
    'did not begin: too large'
    """
    text = result.get("job_status", "")
    if result.get("outcome") in _WELL:
        return f"{result['outcome']}: {text}" if text else result["outcome"]
    cause = causes.of(result.get("cause"))
    before = cause.row.how if cause else ""
    return f"{before}: {_why(result)}" if before else _why(result)


def _why(result: Result) -> str:
    word, text = result.get("cause", ""), result.get("job_status", "")
    cause = causes.of(word)
    if cause is None:
        return text or word or "it failed"
    if cause is Cause.EXIT:
        return f"exit status {result.get('exit', '?')}"
    if cause is Cause.SIGNAL:
        return f"ended by {result.get('signal', '?')}"
    said = wording.reason(text) if cause.row.names_delay else text
    return cause.row.brief or said or word
