"""`rq-install`: a first config with safe values, and the bundled queues linked."""

from __future__ import annotations

import argparse
import importlib.util
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from rq import config
from rq.access import owner
from rq.cli import FAILED, OK, guarded, place, ports, take_root, term
from rq.config import files, settings
from rq.errors import BadConfig, BadInput
from rq.layout import Root
from rq.words.nesting import Json

_PORTS_TRIED = 50
_ON_SPARK = frozenset({"spark-history", "spark-work"})


def main(argv: list[str] | None = None) -> int:
    """Run `rq-install`."""
    import sys

    words = list(sys.argv[1:] if argv is None else argv)
    return guarded(lambda: _install(words))


def _install(words: list[str]) -> int:
    given, words = take_root(words)
    args = _parser().parse_args(words)
    root = config.find_root(given)
    owner.act_as_owner(root)
    if root.config.exists() and not args.force:
        print("Already installed")
        term.note(f"{root.config} is there: --force writes it anew")
        return FAILED
    write_config(root, {k: v for k, v in vars(args).items() if k != "force"})
    for name in link_bundled(root, again=args.force):
        print(f"Installed queue {name}")
    return OK


def write_config(root: Root, values: Mapping[str, Json]) -> None:
    """Write config/config.json; values that cannot be used are refused before."""
    data = {
        **values,
        # Of the user that RQ is now, which root may have become since it was asked.
        "tmpdir": values["tmpdir"] or tempfile.gettempdir(),
        "relative_root": "/",
        "worker_env": settings.default_worker_env(),
    }
    try:
        config.root_config(data, root.config)
    except BadConfig as error:
        raise BadInput(str(error)) from None
    files.make_root(root)
    files.write_state(root.config, data)


def first_config(root: Root) -> list[str]:
    """Write a config with safe values and a free port; return what to say of it."""
    notes = []
    port = settings.DEFAULT_PORT
    holder = ports.holder("127.0.0.1", port)
    if holder is not None:
        free = ports.first_free("127.0.0.1", port + 1, _PORTS_TRIED)
        notes.append(f"port {port} is taken by {holder}: RQ will use {free}")
        port = free
    write_config(root, {**_defaults(), "port": port})
    notes.append(f"wrote {root.config} (127.0.0.1, port {port})")
    return notes


def link_bundled(root: Root, *, again: bool = False) -> list[str]:
    """Link the queues that come with RQ; return the names linked now.

    Each is offered once: a link that the operator removed stays removed.
    """
    offered = [] if again else _offered(root)
    bundled = sorted(
        directory.name
        for directory in place.BUNDLED.iterdir()
        if (directory / "run").is_file() and _can_run(directory.name)
    )
    linked = []
    for name in bundled:
        link = root.scandir / name
        if name not in offered and not os.path.lexists(link):
            files.write_link(_target(root, place.BUNDLED / name, root.scandir), link)
            linked.append(name)
    if set(bundled) - set(offered):
        files.write_state(_offer(root), {"offered": sorted({*offered, *bundled})})
    return linked


def link_timers(root: Root) -> None:
    """Let the queues that need Spark be woken by the timers they come with."""
    for name in sorted(_ON_SPARK):
        timer, link = place.BUNDLED / name / "timer.json", root.timers / f"{name}.json"
        if timer.exists() and not os.path.lexists(link):
            files.write_link(_target(root, timer, link.parent), link)


def _can_run(name: str) -> bool:
    """Whether what the script of a bundled queue needs is installed."""
    if name not in _ON_SPARK:
        return True
    importlib.invalidate_caches()
    return importlib.util.find_spec("pyspark") is not None


def _target(root: Root, path: Path, directory: Path) -> str:
    """Return the target of a link: relative within the root, which can then be moved."""
    if path.is_relative_to(root.path):
        return os.path.relpath(path, directory)
    return str(path)


def _offer(root: Root) -> Path:
    return root.config_dir / "bundled.json"


def _offered(root: Root) -> list[str]:
    try:
        offered = config.read_json(_offer(root)).get("offered", [])
    except BadConfig:
        return []
    return [str(name) for name in offered]


def _defaults() -> dict[str, Json]:
    return {k: v for k, v in vars(_parser().parse_args([])).items() if k != "force"}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rq-install",
        description="Write config/config.json and link the bundled queues.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--env", default="development", help="what scripts find in RQ_ENV (development)"
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="the name of this host in message ids (127.0.0.1)",
    )
    parser.add_argument(
        "--port",
        default=settings.DEFAULT_PORT,
        type=int,
        help="the port of the web (3333)",
    )
    parser.add_argument(
        "--addr", default="127.0.0.1", help="the address the web listens on (127.0.0.1)"
    )
    parser.add_argument(
        "--tmpdir", help=f"directory for uploads ({tempfile.gettempdir()})"
    )
    parser.add_argument(
        "--allow-new-queue",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="let queues be made over HTTP (no)",
    )
    parser.add_argument(
        "--force", action="store_true", help="replace a config that is there"
    )
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
