"""Messages that wait, run or failed so long ago that no journal tells of them any more.

Retention removes segments, and the folder of a message that is not done stays. When a queue
is read from its beginning, such folders are read first; then the journal, whose lines say
how each of them stands now."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import orjson

from rq import names
from rq.index.batch import MOST_TEXT, Batch, Row, Source
from rq.layout import MSG, STATUS, QueueDir
from rq.words.states import State

_DIRS = (State.QUE, State.RUN, State.ERR)
_SLACK = 60.0  # seconds from the id of a message to the line that accepts it


def add(batch: Batch, source: Source, queue: QueueDir, before: float) -> None:
    """Add the messages of a queue whose ids were given before a moment (epoch seconds)."""
    for state, path in _folders(queue):
        msg_id = path.name.removeprefix(".")
        if names.is_msg_id(msg_id) and names.created(msg_id) < before + _SLACK:
            _add(batch, source, state, path)


def _folders(queue: QueueDir) -> Iterator[tuple[State, Path]]:
    for state in _DIRS:
        directory = queue.path / state
        for name in sorted(os.listdir(directory)) if directory.is_dir() else ():
            is_marked = state is State.ERR and name.startswith(".")
            yield (State.DISMISSED if is_marked else state), directory / name


def _add(batch: Batch, source: Source, state: State, path: Path) -> None:
    content, status = _object(path / MSG), _object(path / STATUS)
    try:
        changed = int((path / MSG).stat().st_mtime * 1e6)
    except OSError:
        return  # it has gone on
    msg_id = path.name.removeprefix(".")
    text = status.get("job_status")
    row = Row(
        queue=source.number,
        msg=msg_id,
        state=state,
        seq=0,
        accepted=int(names.created(msg_id) * 1e6),
        changed=changed,
        attempt=_number(status.get("attempt")),
        count=_number(status.get("count")),
        cause=str(status["cause"]) if status.get("cause") else None,
        text=str(text)[:MOST_TEXT] if text else None,
    )
    batch.add(source, row, content)


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _object(path: Path) -> dict[str, object]:
    """Return what is in a JSON file; nothing if it cannot be read."""
    try:
        content = orjson.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
