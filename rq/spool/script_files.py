"""Files that RQ's own scripts keep in the folders of their messages.

They are opened below that folder, and no link is followed.
"""

from __future__ import annotations

import json
import os
from io import BufferedReader
from pathlib import Path
from typing import Any

from rq import names
from rq.errors import is_busy
from rq.files import beneath, durable
from rq.files.durable import content
from rq.layout import ATTACH
from rq.spool import folders


def read(folder: Path, inner: str) -> bytes:
    """Return the content of a small file below the folder of a message."""
    with beneath.top(folder, os.O_NOFOLLOW) as top:
        return folders.read_file(inner, top)


def read_json(folder: Path, inner: str) -> dict[str, Any] | None:
    """Return the JSON object in such a file; None if there is none. OSError: RQ lacks
    what it takes to look, and what is kept there is not known."""
    try:
        with beneath.top(folder, os.O_NOFOLLOW) as top:
            return folders.read_json(inner, top)
    except OSError as error:
        if is_busy(error):
            raise
        return None


def write_json(folder: Path, inner: str, data: object) -> None:
    """Replace such a file, durably."""
    text = json.dumps(data, indent=1, ensure_ascii=False)
    with beneath.top(folder, os.O_NOFOLLOW) as top:
        durable.replace_durable(inner, text.encode() + b"\n", top)


def attachment(folder: Path, name: str) -> BufferedReader:
    """Open an attachment of a message."""

    def opener(_path: str, _flags: int) -> int:
        with beneath.top(folder, os.O_NOFOLLOW) as top:
            linked = names.is_ancestors(folder.name)
            return content.open_attachment(f"{ATTACH}/{name}", top, linked)

    return open(folder / ATTACH / name, "rb", opener=opener)
