"""The log line of every process: `LEVEL time pid name: text key=value`, rotated."""

from __future__ import annotations

import logging
import logging.handlers
import sys
import time
from pathlib import Path

ROTATE_BYTES = 16 * 1024 * 1024
KEEP = 4


class _Line(logging.Formatter):
    converter = staticmethod(time.gmtime)

    def __init__(self, name: str) -> None:
        super().__init__(
            f"%(levelname).1s %(asctime)s.%(msecs)03dZ %(process)d {name}: %(message)s",
            "%Y-%m-%dT%H:%M:%S",
        )


def open_log(name: str, path: Path | None, level: int = logging.INFO) -> None:
    """Send this process's log to `path`, rotated, or to standard error."""
    handler: logging.Handler
    if path is None:
        handler = logging.StreamHandler(sys.stderr)
    else:
        path.parent.mkdir(mode=0o750, exist_ok=True)
        handler = logging.handlers.RotatingFileHandler(
            path, maxBytes=ROTATE_BYTES, backupCount=KEEP
        )
    handler.setFormatter(_Line(name))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)


def fields(**values: object) -> str:
    """Return `key=value` pairs for the end of a log line.

    >>> fields(msg_id="20260102.0304.05.006.7", reason="no such file")
    'msg_id=20260102.0304.05.006.7 reason="no such file"'
    """
    return " ".join(f"{name}={_value(value)}" for name, value in values.items())


def _value(value: object) -> str:
    text = str(value)
    plain = text and not any(c in text for c in ' "=\n\r\t') and text.isprintable()
    if plain:
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else repr(c)[1:-1] for c in escaped) + '"'
