"""job/relay.json: what is durable of the hand-over of a message."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

from rq import config
from rq.config import files
from rq.errors import is_busy
from rq.layout import JOB, RELAY_STATE, Root
from rq.proc import locks
from rq.relay.two_phase import Stored
from rq.spool import script_files
from rq.words.nesting import Json

_STATE = f"{JOB}/{RELAY_STATE}"
_ANCESTORS = "relay_id"  # a file of the ancestor's script: the remote id alone
REMEMBERED = 29 * 86400.0  # seconds; a receiver's memory, less a day


class Store:
    """The file of one message."""

    def __init__(self, job: Path) -> None:
        self._folder = job.parent
        self.data = self._read()

    def _read(self) -> Mapping[str, Json]:
        data = script_files.read_json(self._folder, _STATE)
        if data is not None:  # else none, or torn by a power cut: the receiver knows
            return data
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
        remote, again = self.data.get("remote"), self.data.get("again")
        old = time.time() - self.since > REMEMBERED
        return Stored(
            remote=remote if isinstance(remote, str) else None,
            knows_keys=bool(self.data.get("keyed")),
            committing=bool(self.data.get("committing")),
            forgotten=old and remote is not None,
            again=again if isinstance(again, int) else 0,
        )

    @property
    def since(self) -> float:
        """Return when the first attempt failed or prepared, in epoch seconds."""
        since = self.data.get("since")
        return float(since) if isinstance(since, int | float) else time.time()

    def keep(self, **changes: Json) -> None:
        """Write down what must be durable before the next step."""
        self.data = {"since": time.time(), **self.data, **changes}
        script_files.write_json(self._folder, _STATE, self.data)


def installation(root: Root) -> str:
    """Return the id of this root, which no other has; made once.

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
