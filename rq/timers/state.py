"""What the timers of a root have done, on disk.

`config/timers.state` is what all had done at some time, and names the journal that goes on
from there: `config/timers.journal`, to which each change appends a line. A fire costs a
few hundred bytes, however many timers there are. When the journal is larger than what it
spares, all is written again: the state first, so that a crash leaves a state with its
journal, or with one that it does not name and that has nothing to add.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, cast

import orjson

from rq import config
from rq.config import appended, files
from rq.config.appended import Appended
from rq.errors import BadConfig, CannotRead
from rq.layout import Root
from rq.timers.past import Fire, Past

log = logging.getLogger(__name__)


_LARGE = 256 * 1024  # bytes of a journal that are never too many
_FIELDS = tuple(field.name for field in fields(Past))


class State:
    """Writes what timers have done."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._journal: Appended | None = None
        self._pasts: dict[str, Past] = {}  # as they are on disk
        self._said: Mapping[str, object] = {}  # to those who read the state
        self._size = 0  # bytes of the state

    def save(self, pasts: Mapping[str, Past], said: Mapping[str, object]) -> None:
        """Keep what has changed; durable when it returns. What is `said` is for those who
        read the state: it is there when all is written again, and at a `save_said`."""
        lines = [
            {"name": name, "set": changed}
            for name, past in pasts.items()
            if past is not self._pasts.get(name)
            and (changed := _changed(self._pasts.get(name), past))
        ]
        lines += [{"name": name} for name in self._pasts if name not in pasts]
        if not lines and self._journal is not None:
            return
        if self._journal is None or self._journal.size > max(_LARGE, self._size):
            self._write_anew(pasts, said)
            return
        journal, self._journal = self._journal, None  # an error leaves none
        journal.append(lines)
        self._journal, self._pasts = journal, dict(pasts)

    def save_said(self, pasts: Mapping[str, Past], said: Mapping[str, object]) -> None:
        """Write all again if what is said has changed."""
        if self._journal is None or said != self._said:
            self._write_anew(pasts, said)

    def _write_anew(
        self, pasts: Mapping[str, Past], said: Mapping[str, object]
    ) -> None:
        if self._journal is not None:
            self._journal.close()
            self._journal = None
        name = secrets.token_hex(8)
        data = orjson.dumps({"timers": pasts, **said, "journal": name})
        files.write_state_bytes(self._root.timers_state, data + b"\n")
        self._journal = Appended(self._root.timers_journal, name)
        self._pasts, self._said, self._size = dict(pasts), dict(said), len(data)


def _changed(old: Past | None, new: Past) -> dict[str, object]:
    """Return the fields of a past that are other than they were."""
    before = Past() if old is None else old
    changed = {
        name: value
        for name in _FIELDS
        if (value := getattr(new, name)) != getattr(before, name)
    }
    return changed or ({"last": new.last} if old is None else {})


def read_state(root: Root) -> dict[str, Past]:
    """Return what the timers of a root have done; empty when there is nothing that can
    be used. CannotRead: to begin without it would fire them all again."""
    path = root.timers_state
    try:
        state = config.read_json(path)
        saved = state.get("timers", {})
        pasts = {name: _past(saved[name]) for name in saved}
        if journal := state.get("journal"):
            _go_on(pasts, root, str(journal))
        return pasts
    except OSError as error:
        raise CannotRead(f"{root.timers_journal} cannot be read: {error}") from None
    except CannotRead:
        raise
    except (BadConfig, TypeError, AttributeError) as error:
        if path.exists():
            log.error(
                "what the timers did before cannot be read, so each starts anew: %s",
                error,
            )
        return {}


def _go_on(pasts: dict[str, Past], root: Root, journal: str) -> None:
    """Bring what was done up to the end of its journal."""
    for line in appended.read(root.timers_journal, journal):
        entry = cast(dict[str, Any], line)
        name = entry["name"]
        if "set" not in entry:
            pasts.pop(name, None)
            continue
        changed = dict(entry["set"])
        if "fires" in changed:
            changed["fires"] = _fires(changed["fires"])
        pasts[name] = replace(pasts.get(name, Past()), **changed)


def _past(saved: object) -> Past:
    """Return what was saved of a timer; TypeError, AttributeError when it was not so."""
    kept = _fields_of(Past, saved)
    fires = kept.pop("fires", [])
    return Past(**kept, fires=_fires(fires))


def _fires(saved: Any) -> tuple[Fire, ...]:
    return tuple(Fire(**_fields_of(Fire, each)) for each in saved)


def _fields_of(kind: type[Past] | type[Fire], saved: object) -> dict[str, Any]:
    """Return what a saved object has of the fields of its type."""
    names = {field.name for field in fields(kind)}
    return {
        key: value for key, value in cast(dict[str, Any], saved).items() if key in names
    }
