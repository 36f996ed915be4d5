"""The queues that come with RQ, and the links in a root that lead to them.

A root and the code may lie apart, and the code may move: another Python, another prefix, a
checkout before and a package now. So links lead to where the code was when they were
made. Each start leads them to the code that starts, before any queue can run a script.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import rq
from rq import config
from rq.config import files, trash
from rq.errors import BadConfig
from rq.layout import QueueDir, Root

BUNDLED = Path(rq.__file__).resolve().parent / "bundled"
_TAIL = BUNDLED.parts[-2:]  # of such a directory in any code of RQ


def note_of(root: Root) -> Path:
    """Return the file that says which of them were linked once."""
    return root.config_dir / "bundled.json"


def offered(root: Root) -> list[str]:
    """Return which of them were linked once: a link that was removed stays removed."""
    try:
        names = config.read_json(note_of(root)).get("offered", [])
    except BadConfig:
        return []
    return [str(name) for name in names] if isinstance(names, list) else []


def target(root: Root, path: Path, directory: Path) -> str:
    """Return the target of a link: relative within the root, which can then be moved."""
    if path.is_relative_to(root.path):
        return os.path.relpath(path, directory)
    return str(path)


def renew(root: Root) -> list[str]:
    """Lead links to the bundled queues of other code to those here; return the names of
    the queues. What an operator linked to another place stays as it is."""
    renewed = []
    for name in offered(root):
        ours = BUNDLED / name
        if _was_deleted(root, name):
            continue  # a link that is made again would bring it back
        for link, path in _links(root, ours):
            before = _elsewhere(link, path)
            if before is None or not path.exists():
                continue
            files.write_link(target(root, path, link.parent), link)
            if path == ours:
                _follow(root.queue(name), before, ours)
                renewed.append(name)
    return renewed


def _was_deleted(root: Root, name: str) -> bool:
    return not root.queue(name).path.exists() and trash.newest(root, name) is not None


def _links(root: Root, ours: Path) -> Iterator[tuple[Path, Path]]:
    """Give the links that a bundled queue may have, and what they shall lead to."""
    yield root.scandir / ours.name, ours
    yield root.timers / f"{ours.name}.json", ours / "timer.json"


def _elsewhere(link: Path, path: Path) -> Path | None:
    """Return where a link leads, if that is the same thing in other code of RQ."""
    try:
        before = Path(os.path.normpath(link.parent / os.readlink(link)))
    except OSError:
        return None
    tail = (*_TAIL, *path.relative_to(BUNDLED).parts)
    is_bundled = before.parts[-len(tail) :] == tail
    return before if is_bundled and before != path else None


def _follow(queue: QueueDir, before: Path, ours: Path) -> None:
    """Let a queue run the script here at once: scandir is asked later than it starts."""
    settings = config.read_or_empty(queue.config)
    if settings.get("script") != str(before / "run"):
        return
    files.write_state(queue.config, {**settings, "script": str(ours / "run")})
    if queue.form.is_symlink() and (ours / "form.json").is_file():
        files.write_link(str(ours / "form.json"), queue.form)
