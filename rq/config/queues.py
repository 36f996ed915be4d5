"""Which queues lie in a root."""

from __future__ import annotations

import os

from rq import names
from rq.layout import Root


def names_of(root: Root) -> list[str]:
    """Return the names of all that have a config, in no order."""
    try:
        every = os.listdir(root.queues)
    except (FileNotFoundError, NotADirectoryError):
        return []
    above = f"{root.queues}/"  # as text: there may be thousands
    named = filter(names.is_queue_name, every)
    return [name for name in named if os.path.isfile(f"{above}{name}/config.json")]
