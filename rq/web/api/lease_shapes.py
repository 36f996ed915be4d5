"""What is asked and answered about leases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypedDict

from rq.config.checks import LEASE_SECONDS, RESULT_FILES
from rq.replies import WordResult
from rq.web.api.shapes import Limits

AT_ONCE = 1000  # tokens, or messages, in one request
WAIT = 60  # seconds
_TOKEN = Annotated[str, Limits(longest=200), "MESSAGE~ATTEMPT~RANDOM"]
_TOKENS = Annotated[list[str], Limits(shortest=1, longest=AT_ONCE)]
_SECONDS = Annotated[float | None, Limits(least=1, most=LEASE_SECONDS)]
_COUNT = Annotated[int | None, Limits(least=0, most=2**53)]
_LONGEST_DELAY = 9_999_999_999
Over = Literal["timeout", "heartbeat", "memory", "cpu"]
Words = Literal["done", "err", "resend", "later", "forward"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What is to be leased, and who asks."""

    count: Annotated[
        int, Limits(least=0, most=AT_ONCE), "messages at most; 0: only wait for news"
    ] = 1
    seconds: Annotated[_SECONDS, "of each lease; as the queue's config says"] = None
    wait: Annotated[
        float, Limits(least=0, most=WAIT), "seconds to wait until one is due"
    ] = 0
    label: Annotated[
        str, Limits(longest=64), "your own name for this worker, beside your user's"
    ] = ""
    request: Annotated[
        str,
        Limits(longest=128),
        "a name for this request: sent again, it gets the same leases",
    ] = ""
    slots: Annotated[_COUNT, "messages that this worker can work on at a time"] = None
    busy: Annotated[_COUNT, "slots that are taken"] = None
    version: Annotated[str, Limits(longest=40), "of the worker's program"] = ""
    host: Annotated[str, Limits(longest=64), "on which the worker runs"] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Which:
    """Which leases are listed; with `wait`, until when to wait for news instead."""

    cursor: Annotated[str, "`next` of the page before; the first page, if absent"] = ""
    limit: Annotated[int, Limits(least=1, most=AT_ONCE)] = 100
    wait: Annotated[float | None, Limits(least=0, most=WAIT)] = None
    label: Annotated[str, Limits(longest=64), "of the worker that waits"] = ""


class News(TypedDict):
    """Why leases should be ended, by their messages."""

    cancels: Mapping[str, str]
    why: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Leases that a word is about."""

    tokens: _TOKENS


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewal:
    """Leases that go on."""

    tokens: _TOKENS
    seconds: Annotated[_SECONDS, "from now; as many as before, if absent"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Leases that are given back, and why."""

    tokens: _TOKENS
    why: Annotated[str, Limits(longest=200)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why a lease is given back."""

    why: Annotated[str, Limits(longest=200)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """That a lease goes on, and how far its work is."""

    seconds: Annotated[_SECONDS, "from now; as many as before, if absent"] = None
    text: Annotated[str | None, Limits(longest=1000)] = None
    fraction: Annotated[float | None, Limits(least=0, most=1)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Dup:
    """A copy of the message that another queue gets."""

    dest: Annotated[str, Limits(shortest=1, longest=1000)]
    delay: Annotated[float, Limits(least=0, most=_LONGEST_DELAY)] = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """How the work on a message has ended."""

    word: Annotated[Words | None, "null: the exit status decides"] = None
    text: Annotated[str, "for people"] = ""
    result: Annotated[str | None, "a value for programs, of at most 64 KiB"] = None
    delay: Annotated[
        float | None, Limits(least=0, most=_LONGEST_DELAY), "of resend and later"
    ] = None
    dest: Annotated[str | None, Limits(longest=1000), "of forward: a queue"] = None
    waits_for: Annotated[str | None, "of later: what is waited for"] = None
    dups: Annotated[list[Dup], Limits(longest=100)] = field(default_factory=list)
    files: Annotated[
        Mapping[str, str],
        Limits(longest=RESULT_FILES),
        "result files that were sent: name and sha256",
    ] = field(default_factory=dict)
    exit: Annotated[int | None, Limits(least=0, most=255), "status of a script"] = None
    signal: Annotated[str | None, "that ended it, say SIGKILL"] = None
    unreadable: Annotated[str | None, "a word that could not be read"] = None
    over: Annotated[Over | None, "the limit for which the script was ended"] = None
    over_text: Annotated[str | None, "that, for people"] = None
    printed: Annotated[str | None, "the last line that it has printed"] = None
    run_us: _COUNT = None
    cpu_us: _COUNT = None
    max_rss: Annotated[_COUNT, "KiB"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OneFinish(Finish):
    """How the work on one of several messages has ended."""

    token: _TOKEN


@dataclass(frozen=True, slots=True, kw_only=True)
class Finishes:
    """How the work on several messages has ended."""

    finishes: Annotated[list[OneFinish], Limits(shortest=1, longest=AT_ONCE)]


class Results(TypedDict):
    """What became of a word about several leases, in the order of the request."""

    results: Sequence[WordResult]
