"""When each reader looked at the failures last, so that pages can say what is new.

What people have marked is theirs, and stands apart from the index, which is made again from
the journals. The file `config/seen` is lost without harm: then all failures are new.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import orjson

from rq.config import files
from rq.layout import Root

MOST: Final = 1000  # readers; those who looked longest ago are forgotten


def path(root: Root) -> Path:
    return root.config_dir / "seen"


def all_of(root: Root) -> dict[str, float]:
    """Return when each reader looked (epoch seconds)."""
    with contextlib.suppress(OSError, orjson.JSONDecodeError):
        data = orjson.loads(path(root).read_bytes())
        moments = data.get("failures") if isinstance(data, Mapping) else None
        if isinstance(moments, Mapping):
            return {
                str(reader): float(at)
                for reader, at in moments.items()
                if isinstance(at, int | float)
            }
    return {}


def failures(root: Root, reader: str) -> float:
    """Return when a reader looked at the failures last; 0: never."""
    return all_of(root).get(reader, 0.0)


def mark_failures(root: Root, reader: str, now: float) -> None:
    """Keep that a reader has looked at the failures."""
    moments = {**all_of(root), reader: now}
    newest = sorted(moments.items(), key=lambda item: -item[1])[:MOST]
    files.write_state(path(root), {"failures": dict(newest)})
