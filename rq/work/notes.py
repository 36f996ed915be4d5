"""What could not be handed in, kept on disk: the agent that starts next hands it in.

A note lies in the folder of its attempt, which keeps the log and the results, too.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from rq import config
from rq.config import files
from rq.errors import RQError
from rq.files import beneath
from rq.logs import fields
from rq.words.nesting import Json
from rq.work import place
from rq.work.place import Place

NOTE = "end.json"  # in an attempt's folder; it holds the token

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """How an attempt has ended."""

    folder: str
    finish: dict[str, Json]  # as the host takes it
    log_from: int  # where the attempt's output begins in its log
    log_to: int  # and where it ends
    log_sent: int  # bytes of it that the host has


def write(at: Place, note: Note) -> None:
    """Keep a note durably; OSError."""
    files.write_secret_state(
        at.messages / note.folder / NOTE,
        {
            "finish": note.finish,
            "log_from": note.log_from,
            "log_to": note.log_to,
            "log_sent": note.log_sent,
        },
    )


def take_all(at: Place) -> Iterator[Note]:
    """Give the notes that an earlier agent has left; what it left without a note is
    removed: those leases run out. A note that cannot be read now stays, and the log says
    so."""
    for name in sorted(os.listdir(at.messages)):
        try:
            note = _read(at, name)
        except (FileNotFoundError, NotADirectoryError):
            _remove(at, name)
        except (RQError, KeyError, TypeError, ValueError) as error:
            _say("an end that was kept is damaged; its lease runs out", name, error)
            _remove(at, name)
        except OSError as error:
            text = (
                "an end that was kept cannot be read now; it waits for the next start"
            )
            _say(text, name, error.strerror or error)
        else:
            yield note


def _say(text: str, name: str, reason: object) -> None:
    log.error("%s: %s", text, fields(folder=name, reason=reason))


def _remove(at: Place, name: str) -> None:
    with contextlib.suppress(OSError):
        place.remove(at.messages / name)


def _read(at: Place, name: str) -> Note:
    """OSError, NotPlain, RQError, KeyError, TypeError, ValueError."""
    path = f"{name}/{NOTE}"
    with open(beneath.open_plain(path, at.dir_fd), "rb") as file:
        data = config.json_object(file.read(), Path(path))
    finish = data["finish"]
    if not isinstance(finish, dict) or not isinstance(finish.get("token"), str):
        raise TypeError("it holds no token")
    return Note(
        folder=name,
        finish=cast("dict[str, Json]", finish),
        log_from=int(data["log_from"]),
        log_to=int(data["log_to"]),
        log_sent=int(data["log_sent"]),
    )
