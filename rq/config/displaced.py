"""Queues, and the broker, that lost their directory: it was removed, moved, mounted over, or
a backup was laid over it; while they ran, or while they did not (see `begun`).

Such a queue is never made again by itself: after an umount, say, it would take messages into
the place beneath, and after the next mount they would be gone. The supervisor notes it here,
durably, starts it no more, and lets neither scandir nor the API make one of its name. It
begins with what lies there then when the operator restarts it, or deletes it. So it is with
the broker, until `rq broker accept`.
"""

from __future__ import annotations

from collections.abc import Mapping

from rq import config
from rq.config import files
from rq.errors import BadConfig
from rq.layout import Root

BROKER = "broker/"  # as the broker is noted: no queue can have this name


def read(root: Root) -> Mapping[str, float]:
    """Return the queues (and BROKER) that are held, and since when (epoch seconds). BadConfig: the file
    cannot be read."""
    if not root.displaced.exists():
        return {}
    try:
        held = config.read_json(root.displaced)
        return {str(name): float(str(at)) for name, at in held.items()}
    except ValueError as error:
        raise BadConfig(f"{root.displaced} is damaged ({error}); remove it") from None


def note(root: Root, name: str, now: float) -> None:
    """Hold a queue, or BROKER."""
    files.write_state(root.displaced, {name: now, **read(root)})


def release(root: Root, name: str) -> bool:
    """Hold it no more; return whether it was held."""
    held = dict(read(root))
    if held.pop(name, None) is None:
        return False
    files.write_state(root.displaced, held)
    return True


def why(name: str) -> str:
    """Return why it is held, and what the operator can do, in a sentence."""
    step = "rq broker accept" if name == BROKER else f"rq queue restart {name}"
    return (
        "its directory, or its journal there, was removed, moved or replaced: put it back, "
        f"or see what lies there now, then `{step}`"
    )
