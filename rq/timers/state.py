"""Reads what the timers of a root have done, from config/timers.state."""

from __future__ import annotations

import logging
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

from rq import config
from rq.errors import BadConfig, CannotRead
from rq.timers.past import Fire, Past

log = logging.getLogger(__name__)


def read_state(path: Path) -> dict[str, Past]:
    """Return what the timers of a root have done; empty when there is nothing that can
    be used. CannotRead: to begin without it would fire them all anew."""
    try:
        saved = config.read_json(path).get("timers", {})
        return {name: _past(saved[name]) for name in saved}
    except CannotRead:
        raise
    except (BadConfig, TypeError, AttributeError) as error:
        if path.exists():
            log.error(
                "what the timers did before cannot be read, so each starts anew: %s",
                error,
            )
        return {}


def _past(saved: object) -> Past:
    """Return what was saved of a timer; TypeError, AttributeError when it was not so."""
    kept = _fields_of(Past, saved)
    fires = kept.pop("fires", [])
    return Past(**kept, fires=tuple(Fire(**_fields_of(Fire, each)) for each in fires))


def _fields_of(kind: type[Past] | type[Fire], saved: object) -> dict[str, Any]:
    """Return what a saved object has of the fields of its type."""
    names = {field.name for field in fields(kind)}
    return {
        key: value for key, value in cast(dict[str, Any], saved).items() if key in names
    }
