"""An answer over HTTP; pure."""

from __future__ import annotations

from dataclasses import dataclass

from rq.kinds import Kind


@dataclass(frozen=True, slots=True)
class Reply:
    """Status and body of an answer; of a failure also its kind, if it tells one."""

    status: int
    body: bytes
    kind: Kind | None = None
