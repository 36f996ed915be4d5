"""The queues there are, and how they differ from what the links declare."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rq import names
from rq.layout import Root
from rq.scandir.cache import JsonCache
from rq.scandir.links import Definition, Links
from rq.words.nesting import Json


@dataclass(frozen=True, slots=True)
class Existing:
    """A queue as it is on disk."""

    config: Mapping[str, Json]
    mark: Mapping[str, Json]
    form: str | None


def read_existing(root: Root, cache: JsonCache) -> dict[str, Existing]:
    """Return the queues that are there."""
    queues = {}
    for name in os.listdir(root.queues):
        queue = root.queue(name)
        if names.is_queue_name(name) and queue.config.is_file():
            queues[name] = Existing(
                cache.read_or_empty(queue.config),
                cache.read_or_empty(queue.scandir_mark),
                _target(queue.form),
            )
    return queues


def _target(link: Path) -> str | None:
    try:
        return os.readlink(link)
    except OSError:
        return None


def is_as_defined(definition: Definition, queue: Existing) -> bool:
    """Return whether a queue is what its link says."""
    return (
        json.dumps(queue.config, sort_keys=True)
        == json.dumps(definition.config, sort_keys=True)
        and queue.mark.get("owner") == "scandir"
        and queue.mark.get("link") == definition.link
        and queue.form == definition.form
    )


def orphans(links: Links, queues: Mapping[str, Existing]) -> list[str]:
    """Return the queues that a link had made and none declares any more."""
    return sorted(
        name
        for name, queue in queues.items()
        if queue.mark.get("owner") == "scandir" and name not in links.present
    )
