"""What lies in scandir/: links to definitions of queues, and what is wrong with them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from rq import config, names
from rq.errors import BadConfig, RQError
from rq.layout import Root
from rq.scandir.cache import JsonCache, look
from rq.scripts import program_file


@dataclass(frozen=True, slots=True)
class Definition:
    """A queue that a link declares."""

    name: str
    directory: Path  # through the link's target, not what that leads to at last
    config: Mapping[str, object]  # as queue/NAME/config.json shall be
    link: str  # changes when the link is made anew
    form: str | None


# Of each link: how it and what it leads to looked when its definition was read.
Seen: TypeAlias = dict[str, tuple[object, Definition]]


@dataclass(frozen=True, slots=True)
class Links:
    """What lies in scandir/."""

    definitions: Mapping[str, Definition]
    errors: Mapping[str, str]  # name: sentence
    present: frozenset[str]  # all names, right or wrong
    directories: frozenset[Path]


def read_links(root: Root, cache: JsonCache, seen: Seen) -> Links:
    """Read every entry of scandir/ that does not look as it did; OSError when it cannot be
    listed."""
    definitions: dict[str, Definition] = {}
    errors: dict[str, str] = {}
    present, directories = set(), set()
    base = Path(os.path.realpath(root.scandir))
    for name in sorted(os.listdir(base)):
        if name.startswith("."):
            continue
        present.add(name)
        looks = _looks(f"{base}/{name}")
        try:
            if looks is not None and name in seen and seen[name][0] == looks:
                definition = seen[name][1]
            else:
                directory = _directory(base, name)
                directories.add(directory)
                definition = _definition(base / name, directory, cache)
                seen[name] = looks, definition
            directories.add(definition.directory)
            definitions[name] = definition
        except (RQError, OSError) as error:
            errors[name] = str(error)
    for name in seen.keys() - definitions.keys():
        del seen[name]
    return Links(definitions, errors, frozenset(present), frozenset(directories))


def _looks(link: str) -> object:
    """Return all that a definition is read from, as it looks now; None: it is none."""
    try:
        info, target = os.lstat(link), os.readlink(link)
    except OSError:
        return None
    files = [look(f"{link}/{name}") for name in ("run", "config.json", "form.json")]
    return info.st_ino, info.st_mtime_ns, target, files


def _directory(base: Path, name: str) -> Path:
    names.queue_name(name)
    link = base / name
    if not link.is_symlink():
        raise BadConfig(
            f"{link} is not a symlink: link to the directory that has `run`"
        )
    directory = Path(os.path.normpath(base / os.readlink(link)))
    if not directory.is_dir():
        raise BadConfig(f"{link} leads to {directory}, which is no directory")
    return directory


def _definition(link: Path, directory: Path, cache: JsonCache) -> Definition:
    run, settings = directory / "run", directory / "config.json"
    data = cache.read(settings) if settings.exists() else {}
    given = {key: value for key, value in data.items() if value is not None}
    merged = {"num_workers": 1, "exec_prefix": "", **given}
    merged |= {"name": link.name, "script": _script(run, has_pull="pull" in given)}
    info = link.lstat()
    form = directory / "form.json"
    return Definition(
        name=link.name,
        directory=directory,
        config=config.queue_config(merged, settings).to_json(),
        link=f"{directory} {info.st_ino} {info.st_mtime_ns}",
        form=str(form) if form.is_file() else None,
    )


def _script(run: Path, *, has_pull: bool) -> str:
    """Return the script of a definition; "" where only workers elsewhere need one."""
    if not run.is_file():
        if has_pull and not os.path.lexists(run):
            return ""
        raise BadConfig(
            f"{run} is missing: put the queue's program there, or say "
            '"pull": {} in config.json, so that workers elsewhere work on its messages'
        )
    if not os.access(run, os.X_OK):
        raise BadConfig(f"{run} cannot be started: {program_file.unfit(str(run))}")
    return str(run)
