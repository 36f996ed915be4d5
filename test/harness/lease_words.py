"""Asking the owner of a queue for leases, and saying words about them, on its socket."""

from __future__ import annotations

from typing import Any

from harness.queues import RunningQueue

Row = dict[str, Any]


def lease(queue: RunningQueue, **asked: Any) -> list[Row]:
    """Return the leases that a request gets."""
    leases: list[Row] = queue.ok("lease", asked)["leases"]
    return leases


def say(queue: RunningQueue, command: str, *taken: Row, **asked: Any) -> list[Row]:
    """Say a word about leases; return a row for each."""
    tokens = [each["token"] for each in taken]
    rows: list[Row] = queue.ok(command, {"tokens": tokens, **asked})["results"]
    return rows


def finish(queue: RunningQueue, *taken: Row, **said: Any) -> list[Row]:
    """End attempts, all by the same word; return a row for each."""
    finishes = [{"token": each["token"], **said} for each in taken]
    rows: list[Row] = queue.ok("finish", {"finishes": finishes})["results"]
    return rows
