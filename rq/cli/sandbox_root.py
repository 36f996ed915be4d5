"""The root of a sandbox: its config, its queues, its token and its webhook secret.

It is made before anything runs in it, so the queues are written as the supervisor finds
them at a start; no process has to look for definitions.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rq import config, names
from rq.access import tokens
from rq.access.roles import EVERY_QUEUE, Role
from rq.builtin.webhook import signing
from rq.config import bundled, files
from rq.errors import BadConfig, BadInput
from rq.layout import Root
from rq.scripts import program_file
from rq.words.nesting import Json

MARK = "RQ_SANDBOX"  # in the environment of all that a sandbox's command starts
BUNDLED = ("debug", "flow", "webhook")
_LOOPBACKS = ("127.0.0.1", "::1", "localhost")
_SECRET_BYTES = 24
_GRACE = 1.0  # seconds that a script has to end


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a sandbox shall be."""

    scandir: Path | None  # definitions of queues
    queues: Mapping[str, str]  # name: a script, a definition, or "" for a bundled one
    role: Role  # of its token …
    token_queues: tuple[str, ...] = EVERY_QUEUE  # … and the queues that this is for


def make(root: Root, port: int, wanted: Wanted) -> dict[str, str]:
    """Make a root; return the environment of the command. BadInput, BadConfig."""
    files.make_root(root)
    secret, signed = tokens.new_secret(), _webhook_secret()
    given = {
        "RQ_URL": f"http://127.0.0.1:{port}",
        "RQ_TOKEN": secret,
        "RQ_ROOT": str(root.path),
        "RQ_WEBHOOK_SECRET": signed,
        MARK: str(root.path),
    }
    environment = {**os.environ, **given}
    _write_config(root, port, environment)
    files.write_secret(root.webhook_secret, f"{signed}\n")
    files.write_state(root.webhooks, {"allow": _LOOPBACKS})
    _make_token(root, secret, wanted)
    _make_queues(root, wanted)
    return environment


def _webhook_secret() -> str:
    return signing.secret_of(secrets.token_bytes(_SECRET_BYTES))


def _write_config(root: Root, port: int, environment: Mapping[str, str]) -> None:
    """Write a config in which scripts have the environment of the command: in a test they
    need the same PATH and the same database."""
    data = {
        "env": "test",
        "host": "127.0.0.1",
        "port": port,
        "allow_new_queue": True,
        "grace": _GRACE,
        "worker_env": dict(environment),
    }
    config.root_config(data, root.config)
    files.write_secret_state(root.config, data)


def _make_token(root: Root, secret: str, wanted: Wanted) -> None:
    token = tokens.Token(
        name="sandbox",
        sha256=tokens.digest_of(secret),
        role=wanted.role,
        queues=wanted.token_queues,
        created=time.time(),
        created_by="rq sandbox",
    )
    tokens.create(root, token)


# ---- queues


def _make_queues(root: Root, wanted: Wanted) -> None:
    """Write the queues of a sandbox; a definition of its own replaces a bundled one."""
    links = {name: bundled.BUNDLED / name for name in BUNDLED}
    if wanted.scandir is not None:
        links |= _in_scandir(wanted.scandir)
    for name, said in wanted.queues.items():
        script = Path(said).absolute() if said else _bundled(name)
        if script.is_dir():
            links[name] = script
        else:
            links.pop(name, None)
            _make_queue(root, name, _settings(name, script))
    _define(root, links)


def _in_scandir(directory: Path) -> dict[str, Path]:
    """Return the definitions in a directory: links, as in a scandir/, or directories."""
    try:
        entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
    except OSError as error:
        raise BadInput(f"--scandir {directory}: {error.strerror}") from None
    return {
        entry.name: Path(os.path.realpath(entry.path))
        for entry in entries
        if not entry.name.startswith(".") and not entry.is_file()
    }


def _bundled(name: str) -> Path:
    directory = bundled.BUNDLED / name
    if not directory.is_dir():
        raise BadInput(
            f"--queue {name}: no queue of this name comes with RQ; say "
            f"{name}=SCRIPT for one of your own"
        )
    return directory


def _settings(name: str, script: Path) -> Mapping[str, Json]:
    if why := program_file.unfit(str(script)):
        raise BadInput(f"--queue {name}: {script} cannot be started: {why}")
    return {"name": name, "script": str(script), "num_workers": 1, "exec_prefix": ""}


def _define(root: Root, links: Mapping[str, Path]) -> None:
    """Write the queues of definitions, read as a scandir/ is."""
    from rq.scandir.cache import JsonCache
    from rq.scandir.links import read_links

    for name, directory in links.items():
        files.write_link(str(directory), root.scandir / names.queue_name(name))
    read = read_links(root, JsonCache(), {})
    for name, why in read.errors.items():
        raise BadConfig(f"queue {name}: {why}")
    for name, definition in read.definitions.items():
        _make_queue(root, name, definition.config)


def _make_queue(root: Root, name: str, settings: Mapping[str, object]) -> None:
    queue = root.queue(names.queue_name(name))
    checked = config.queue_config(settings, queue.config)
    files.make_queue(queue, checked.to_json(), {"owner": "api"})


def parse_queues(pairs: Iterable[str]) -> dict[str, str]:
    """Return the queues of `--queue NAME=SCRIPT`.

    >>> parse_queues(["mail=bin/mail", "relay"])
    {'mail': 'bin/mail', 'relay': ''}
    """
    parts = [pair.partition("=") for pair in pairs]
    for name, equals, script in parts:
        if equals and not script:
            raise BadInput(f"--queue {name}= names no script: say {name}=SCRIPT")
    return {names.queue_name(name): script for name, _, script in parts}
