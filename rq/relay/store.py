"""job/relay.json: what is durable of the hand-over of a message."""

from __future__ import annotations

import dataclasses
import os
import time
from pathlib import Path
from typing import Any

from rq import config
from rq.config import files
from rq.errors import is_busy
from rq.layout import JOB, RELAY_STATE, Root
from rq.proc import locks
from rq.relay.two_phase import Stored
from rq.spool import script_files

_STATE = f"{JOB}/{RELAY_STATE}"
_ANCESTORS = "relay_id"  # a file of the ancestor's script: the remote id alone
REMEMBERED = 29 * 86400.0  # seconds; a receiver's memory, less a day
_FIELDS = tuple(one.name for one in dataclasses.fields(Stored))


class Store:
    """The file of one message."""

    def __init__(self, job: Path) -> None:
        self._folder = job.parent
        self.data = self._read()

    def _read(self) -> dict[str, Any]:
        known = script_files.read_json(self._folder, _STATE)
        if known is not None:  # else none, or torn by a power cut: the receiver knows
            return known
        try:
            text = script_files.read(self._folder, f"{JOB}/{_ANCESTORS}").decode()
            return {"remote": text.strip() or None}
        except OSError as error:
            if is_busy(error):  # what was sent already is not known
                raise
            return {}
        except UnicodeDecodeError:
            return {}

    @property
    def stored(self) -> Stored:
        known = {k: v for k, v in self.data.items() if k in _FIELDS}
        old = time.time() - self.since > REMEMBERED
        forgotten = old and known.get("remote") is not None
        return Stored(**{**known, "forgotten": forgotten})

    @property
    def since(self) -> float:
        """Return when the first attempt failed or prepared, in epoch seconds."""
        return float(self.data.get("since", time.time()))

    def keep(self, **changes: Any) -> None:
        """Write down what must be durable before the next step."""
        self.data = {"since": time.time(), **self.data, **changes}
        script_files.write_json(self._folder, _STATE, self.data)


def installation(root: Root) -> str:
    """Return what tells this root from all others; made once.

    A root that was made by copying another needs one of its own: remove the file.
    """
    path = root.config_dir / "relay.id"
    if path.exists():
        return str(config.read_json(path).get("id"))
    turn = locks.lock_waiting(root.config_dir / ".relay.id.lock")
    try:
        if not path.exists():
            files.write_state(path, {"id": os.urandom(16).hex()})
    finally:
        os.close(turn)
    return str(config.read_json(path).get("id"))
