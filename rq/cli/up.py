"""`rq up`, `rq down`: from a fresh checkout to a first message, and back."""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Mapping
from typing import Any

from rq import config, disk, names
from rq.access import gate, kernel
from rq.cli import (
    FAILED,
    OK,
    adopting,
    install,
    mgr,
    place,
    ports,
    room,
    samples,
    spark,
    spark_demo,
    term,
)
from rq.cli import open as signing
from rq.cli.patience import Patience, shortened
from rq.config import files
from rq.config.settings import RootConfig
from rq.errors import BadConfig
from rq.layout import Root
from rq.states import Child

WEB = "web"  # queues do without it: what keeps it from starting is said and left
READY_PATIENCE = 30.0  # seconds for one more queue to be up
LACK_PATIENCE = 3.0  # the same on a full disk
_TELL_EVERY = 3.0


def up(root: Root, words: list[str]) -> int:
    made = term.parser(
        "up", "Set up what is missing, start RQ, wait until it is ready."
    )
    made.add_argument(
        "--no-samples", action="store_true", help="send none on the first run"
    )
    made.add_argument(
        "--spark", action="store_true", help="add the data pipeline (about 1.1 GB)"
    )
    made.add_argument(
        "--demo",
        nargs="?",
        type=int,
        const=spark_demo.MESSAGES,
        metavar="N",
        help=f"send {spark_demo.MESSAGES} sample messages, show what Spark counts",
    )
    args = made.parse_args(words)
    if not adopting.agreed(root):
        print("nothing was started")
        return FAILED
    first = not root.config.exists()
    with room.told_of(root):
        _set_up(root, first=first)
        started = _start_or_renew(root)
    ready = _await_ready(root)
    if started:
        _warn_of_disk(root)
    ready = room.all_take_messages(root) and ready
    if first and ready and not args.no_samples:
        samples.send(root)
    if args.spark:
        spark.install()
        _link(root)
    _where_next(root, first=first)
    if args.demo is not None and ready:
        spark_demo.show(root, args.demo)
    if args.spark:
        install.link_timers(root)
    return OK if ready else FAILED


def down(root: Root, words: list[str]) -> int:
    term.parser(
        "down", "Stop RQ and wait until all its processes have ended."
    ).parse_args(words)
    place.check_leave(root)
    begun = time.monotonic()
    if mgr.stop(root, place.note):
        print(f"RQ has stopped ({time.monotonic() - begun:.1f} s)")
    else:
        print(f"RQ is not running in {root.path}")
    return OK


# ---- setting up


def _set_up(root: Root, *, first: bool) -> None:
    if first:
        for line in install.first_config(root):
            print(line)
    else:
        found = place.root_config(root)  # before one that runs is stopped
        if not place.is_running(root):
            _warn_of_port(root, found)
    files.make_root(root)
    _link(root)


def _link(root: Root) -> None:
    linked = install.link_bundled(root)
    if linked:
        print(f"linked the bundled queues into scandir/: {', '.join(linked)}")


def _warn_of_port(root: Root, found: RootConfig) -> None:
    holder = ports.holder(found.addr, found.port)
    if holder is not None:
        place.note(
            f"warning: port {found.port} is taken by {holder}: the web needs it free, "
            f"or another in {root.config}"
        )


def _start_or_renew(root: Root) -> bool:
    """Start the supervisor; a running one of older code is restarted gracefully."""
    if mgr.start(root, place.note):
        print(f"started the supervisor (pid {mgr.pid_of(root)})", flush=True)
        return True
    facts = _facts(root)
    if facts.get("fingerprint") in (None, _fingerprint()):
        print(f"RQ is running (pid {facts.get('pid')})", flush=True)
        return False
    print("the running version is older than this checkout: restarting", flush=True)
    mgr.stop(root, place.note)
    mgr.start(root, place.note)
    print(f"restarted the supervisor (pid {mgr.pid_of(root)})", flush=True)
    return True


def _fingerprint() -> str:
    from rq.supervisor import fingerprint

    return fingerprint.of_source()


def _facts(root: Root) -> Mapping[str, Any]:
    facts = place.ask_supervisor(root, "status")
    return facts if isinstance(facts, dict) else {}


def _await_ready(root: Root) -> bool:
    """Wait until every queue is up; say which is not, and why."""
    begun = told = time.monotonic()
    patience = Patience(begun)
    while True:
        facts = _facts(root)
        missing = _not_yet(root, facts)
        if not missing:
            break
        now = time.monotonic()
        lack = disk.lack(root.path)
        limit = READY_PATIENCE if lack is None else LACK_PATIENCE
        if patience.ends(len(missing), now, limit):
            place.note(f"not ready after {now - begun:.0f} s: {shortened(missing)}")
            for line in [lack] if lack else _not_up(facts):
                place.note(line)
            return False
        if now - told > _TELL_EVERY:
            told = now
            place.note(f"waiting for {shortened(missing)} ({now - begun:.0f} s)")
        time.sleep(0.05)
    late = {str(one["name"]) for one in _late(facts)}
    queues = [name for name in place.queue_names(root) if name not in late]
    print(f"{len(queues)} queues are ready: {', '.join(queues)}", flush=True)
    for line in _not_up(facts):
        place.note(line)
    return True


def _not_yet(root: Root, facts: Mapping[str, Any]) -> list[str]:
    """Name what is still starting, and the definitions that are no queue yet."""
    children = {str(one["name"]): one for one in facts.get("children", [])}
    starting = {
        name
        for name, one in children.items()
        if one.get("state") == Child.STARTING
        or (one.get("state") == Child.BACKOFF and one.get("kind") != WEB)
        or (one.get("state") == Child.DOWN and one.get("wanted") == "UP")
    }
    broken = _scandir_errors(facts)
    declared = _declared(root) - children.keys() - broken.keys()
    return sorted(starting | declared)


def _declared(root: Root) -> set[str]:
    """Name the definitions that scandir will make queues of."""
    try:
        links = [one for one in root.scandir.iterdir() if one.is_symlink()]
    except FileNotFoundError:
        return set()
    return {
        one.name
        for one in links
        if names.is_queue_name(one.name) and os.access(one / "run", os.X_OK)
    }


def _scandir_errors(facts: Mapping[str, Any]) -> Mapping[str, str]:
    found = (facts.get("scandir") or {}).get("errors")
    return found if isinstance(found, dict) else {}


def _not_up(facts: Mapping[str, Any]) -> list[str]:
    children = [
        f"{one['name']} is {one['state']}: {one.get('reason') or 'see log/'}"
        for one in _late(facts)
    ]
    broken = _scandir_errors(facts).items()
    return children + [f"scandir/{name}: {text}" for name, text in broken]


def _late(facts: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the children that should be up and are not."""
    return [
        one
        for one in facts.get("children", [])
        if one.get("state") != Child.UP and one.get("wanted") == "UP"
    ]


def _warn_of_disk(root: Root) -> None:
    for line in disk.describe(root.path).warnings:
        place.note(f"warning: {line}")


def _where_next(root: Root, *, first: bool) -> None:
    rq = _own_name(root)
    page = _page(root)
    if not first:
        print(f"`{rq} status` shows it, `{rq} demo` sends samples")
        for command, text in _offers(rq):
            print(f"`{command}` {text}")
        print(*page, sep="\n", end="\n" if page else "")
        return
    folders = _shown(root, f"queue/{samples.DEMO}")
    print("\nwhere to look next:")
    rows = [
        (f"{rq} status", "what runs and waits"),
        (f"{rq} ls {samples.DEMO}", "its messages"),
        (f"{rq} show ID", "what happened to one, why, what to do"),
        (f"{rq} send {samples.DEMO} -p1 hello --follow", "send one and watch it"),
        (f"ls {folders}/done", "a message is a folder"),
        *_offers(rq),
        (f"{rq} down", "stop all"),
    ]
    width = max(len(command) for command, _ in rows)
    for command, text in rows:
        print(f"  {command:<{width}}  {text}")
    print(*page, sep="\n", end="\n" if page else "")


def _offers(rq: str) -> list[tuple[str, str]]:
    """Return the command that adds what is not installed with RQ."""
    if importlib.util.find_spec("pyspark") is not None:
        return []
    return [(f"{rq} up --spark", "adds the data pipeline (about 1.1 GB)")]


def _page(root: Root) -> list[str]:
    """Return the line that tells where the web is; none when it does not serve."""
    states = {one["name"]: one["state"] for one in _facts(root).get("children", [])}
    if states.get(WEB) != Child.UP:
        return []
    settings = place.root_config(root)
    if not needs_login(settings):
        return [f"the page: {settings.page_url}"]
    address = signing.signing_address(root)
    return [f"the page, signing in once, within a minute: {address}"]


def needs_login(settings: RootConfig) -> bool:
    """Return whether a browser of RQ's own user must sign in."""
    if settings.basic_auth:
        return True
    is_known = gate.is_loopback(settings.addr) and not kernel.in_container()
    return not is_known and not settings.open_without_auth


def _own_name(root: Root) -> str:
    """Return the command as the person can type it again."""
    launcher = place.CHECKOUT / "bin" / "rq"
    name = f"./{os.path.relpath(launcher)}" if launcher.exists() else "rq"
    if len(name) > len(str(launcher)):
        name = str(launcher)
    return name if _is_default(root) else f"{name} --root {root.path}"


def _is_default(root: Root) -> bool:
    try:
        return config.find_root(None) == root
    except BadConfig:
        return False


def _shown(root: Root, inner: str) -> str:
    shown = os.path.relpath(root.path / inner)
    return min(shown, str(root.path / inner), key=len)
