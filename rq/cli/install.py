"""`rq-install`: a first config with safe values, and the bundled queues linked."""

from __future__ import annotations

import argparse
import importlib.util
import os
import tempfile
from collections.abc import Mapping

from rq import config
from rq.access import owner
from rq.cli import FAILED, OK, guarded, ports, take_root, term
from rq.config import bundled, files, settings
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
    args = parser().parse_args(words)
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
    offered = [] if again else bundled.offered(root)
    here = sorted(
        directory.name
        for directory in bundled.BUNDLED.iterdir()
        if (directory / "run").is_file() and _can_run(directory.name)
    )
    linked = []
    for name in here:
        link = root.scandir / name
        if name not in offered and not os.path.lexists(link):
            path = bundled.BUNDLED / name
            files.write_link(bundled.target(root, path, root.scandir), link)
            linked.append(name)
    if set(here) - set(offered):
        note = {"offered": sorted({*offered, *here})}
        files.write_state(bundled.note_of(root), note)
    return linked


def link_timers(root: Root) -> None:
    """Let the queues that need Spark be woken by the timers they come with."""
    for name in sorted(_ON_SPARK):
        timer = bundled.BUNDLED / name / "timer.json"
        link = root.timers / f"{name}.json"
        if timer.exists() and not os.path.lexists(link):
            files.write_link(bundled.target(root, timer, link.parent), link)


def _can_run(name: str) -> bool:
    """Whether what the script of a bundled queue needs is installed."""
    if name not in _ON_SPARK:
        return True
    importlib.invalidate_caches()
    return importlib.util.find_spec("pyspark") is not None


def _defaults() -> dict[str, Json]:
    return {k: v for k, v in vars(parser().parse_args([])).items() if k != "force"}


def parser() -> argparse.ArgumentParser:
    """Return the parser of its words."""
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
