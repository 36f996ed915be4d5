"""`rq up`, `rq down`: from a fresh checkout to a first message, and back.

Before it starts on queues that a Ruby RQ has filled, it says what will be removed and asks.
A full disk is said to be full, whatever fails first because of it.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from rq import config
from rq.access import kernel
from rq.cli import (
    FAILED,
    OK,
    install,
    mgr,
    owner,
    place,
    ports,
    readiness,
    samples,
    spark,
    spark_demo,
    term,
)
from rq.cli import open as signing
from rq.cli.readiness import WEB
from rq.config import adopted, files
from rq.config.admin import Admin, admin_status
from rq.config.settings import QueueConfig, RootConfig
from rq.config.values import is_loopback
from rq.errors import BadConfig, Refused, RQError
from rq.files import disk
from rq.layout import QueueDir, Root
from rq.spool import PREP_SECONDS, restored
from rq.spool import adoption as spool_adoption
from rq.words.states import Child, State

ACCEPT = "rq restore accept"
_ROOM = re.compile(r"[\d.,]+( \w+)? free\b")
_DAY = 86400.0
_AGEING = {
    State.PREP: "prepared",
    State.DONE: "done",
    State.RELAYED: "relayed",
    State.DISMISSED: "acknowledged",
}


def up(root: Root, words: list[str]) -> int:
    parser = term.parser(
        "up", "Set up what is missing, start RQ, wait until it is ready."
    )
    term.flag(parser, "--no-samples", "do not send sample messages on the first run")
    term.flag(parser, "--spark", "add the data pipeline (about 1.4 GB)")
    term.flag(parser, "--duckdb", "add what jobs without Spark need (about 400 MB)")
    parser.add_argument(
        "--demo",
        nargs="?",
        type=int,
        const=spark_demo.MESSAGES,
        metavar="N",
        help=f"send {spark_demo.MESSAGES} sample messages, show what Spark counts",
    )
    term.flag(parser, "--adopt", "take over a root of the Ruby RQ without asking")
    args = parser.parse_args(words)
    if not _agreed(root, adopt=args.adopt):
        print("nothing was started")
        return FAILED
    first = not root.config.exists()
    with _disk_explained(root):
        _set_up(root, first=first)
        started = _start_or_renew(root)
    ready = readiness.await_ready(root)
    if started:
        _warn_of_disk(root)
    ready = _all_take_messages(root) and ready
    if first and ready and not args.no_samples:
        samples.send(root)
    if args.duckdb:
        spark.install_duckdb()
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
        "down",
        "Stop RQ and wait until all its processes have ended. Scripts at work get\n"
        "TERM, and KILL after `grace` seconds; their messages run again at the next start.",
    ).parse_args(words)
    place.check_leave(root)
    begun = time.monotonic()
    if mgr.stop(root, term.note):
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
        settings = place.root_config(root)  # before one that runs is stopped
        if not place.is_running(root):
            _warn_of_port(root, settings)
    files.make_root(root)
    _link(root)


def _link(root: Root) -> None:
    linked = install.link_bundled(root)
    if linked:
        print(f"linked the bundled queues into scandir/: {', '.join(linked)}")


def _warn_of_port(root: Root, settings: RootConfig) -> None:
    holder = ports.holder(settings.addr, settings.port)
    if holder is not None and ports.is_needed(settings.addr, settings.port):
        term.note(
            f"warning: port {settings.port} is taken by {holder}, so the web cannot "
            f"start: free it, or set another `port` in {root.config}"
        )


def _start_or_renew(root: Root) -> bool:
    """Start the supervisor; a running one of older code is restarted gracefully."""
    if mgr.start(root, term.note):
        print(f"started the supervisor (pid {mgr.pid_of(root)})", flush=True)
        return True
    running = place.supervisor_status(root)
    if running.get("fingerprint") in (None, _fingerprint()):
        print(f"RQ is running (pid {running.get('pid')})", flush=True)
        return False
    print("RQ runs with older code than is installed here: restarting it", flush=True)
    mgr.stop(root, term.note)
    mgr.start(root, term.note)
    print(f"restarted the supervisor (pid {mgr.pid_of(root)})", flush=True)
    return True


def _fingerprint() -> str:
    from rq.supervisor import fingerprint

    return fingerprint.of_source()


def _warn_of_disk(root: Root) -> None:
    for line in disk.describe(root.path).warnings:
        term.note(f"warning: {line}")


def _where_next(root: Root, *, first: bool) -> None:
    rq = _own_name(root)
    page = _page(root)
    if not first:
        print(f"`{rq} status` shows how it is, `{rq} demo` sends sample messages")
        for command, text in _offers(rq):
            print(f"`{command}` {text}")
        print(*page, sep="\n", end="\n" if page else "")
        return
    folders = _shortest(root, f"queue/{samples.DEMO}")
    print("\nwhere to look next:")
    rows = [
        (f"{rq} status", "what runs and waits"),
        (f"{rq} ls {samples.DEMO}", "its messages"),
        (f"{rq} show ID", "what happened to one, why, what to do"),
        (f"{rq} send {samples.DEMO} -p1 hello --follow", "send one and watch it"),
        (f"ls {folders}/done", "a message is a folder"),
        *_offers(rq),
        (f"{rq} down", "stop RQ"),
    ]
    width = max(len(command) for command, _ in rows)
    for command, text in rows:
        print(f"  {command:<{width}}  {text}")
    print(*page, sep="\n", end="\n" if page else "")


def _offers(rq: str) -> list[tuple[str, str]]:
    """Return the command that adds what is not installed with RQ."""
    is_there = importlib.util.find_spec("pyspark") is not None
    if is_there or not spark.can_bootstrap():
        return []
    return [(f"{rq} up --spark", "adds the data pipeline (about 1.4 GB)")]


def _page(root: Root) -> list[str]:
    """Return the line that tells where the web is; none when it does not serve."""
    children = place.supervisor_status(root).get("children", [])
    states = {child["name"]: child["state"] for child in children}
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
    is_known = is_loopback(settings.addr) and not kernel.in_container()
    return not is_known and not settings.open_without_auth


def _own_name(root: Root) -> str:
    """Return the command as the person can type it again, from where they are."""
    name = _of_checkout() or _of_package()
    return name if _is_default(root) else f"{name} --root {shlex.quote(str(root.path))}"


def _of_checkout() -> str:
    launcher = place.CHECKOUT / "bin" / "rq"
    if not launcher.exists():
        return ""
    below = os.path.relpath(launcher)
    return shlex.quote(str(launcher) if below.startswith("..") else f"./{below}")


def _of_package() -> str:
    """Return the command beside this Python, by its name alone where the shell finds it."""
    launcher = Path(sys.executable).parent / "rq"
    by_name = shutil.which("rq")
    is_it = by_name is not None and os.path.realpath(by_name) == str(launcher.resolve())
    return "rq" if is_it or not launcher.exists() else shlex.quote(str(launcher))


def _is_default(root: Root) -> bool:
    try:
        return config.find_root(None) == root
    except BadConfig:
        return False


def _shortest(root: Root, inner: str) -> str:
    path = str(root.path / inner)
    return min(os.path.relpath(path), path, key=len)


# ---- a full disk: said whatever fails first


@contextlib.contextmanager
def _disk_explained(root: Root) -> Iterator[None]:
    """Say that the disk is full when that is why a start fails."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise Refused(disk.lack(root.path) or f"{root.path}: {error}") from None


def _all_take_messages(root: Root) -> bool:
    """Return whether the queues that answer take messages; say why not."""
    closed: dict[str, str] = {}
    with owner.Reader(root) as reader:
        for name in place.queue_names(root):
            if admin_status(root, name) is Admin.DOWN:
                continue
            if place.answers(root.queue(name)):
                detail = reader.detail(name)
                closed[name] = (detail and detail["closed_reason"]) or ""
    full = {name: why for name, why in closed.items() if why}
    for names, why in by_reason(full):
        verb = "takes" if len(names) == 1 else "take"
        term.note(f"warning: {', '.join(names)} {verb} no messages: {why}")
    return not full


def by_reason(closed: Mapping[str, str]) -> list[tuple[list[str], str]]:
    """Return which queues take no messages for the same reason, and the reason.

    Queues on one disk see different numbers of free bytes, and copied queues name
    themselves in the command that accepts them; without both the reasons are equal.
    """
    groups: dict[str, tuple[list[str], str]] = {}
    for name, why in closed.items():
        for_all = why.replace(f"{ACCEPT} {name}`", f"{ACCEPT}`")
        names, _ = groups.setdefault(_ROOM.sub("", for_all), ([], for_all))
        names.append(name)
    return list(groups.values())


# ---- queues that a Ruby RQ has filled


def _agreed(root: Root, *, adopt: bool) -> bool:
    """Say what RQ will do with queues that another RQ has filled: which messages it will
    remove, and when, and what waits; ask whether to start, unless told to `adopt`.

    Without a terminal no operator can be asked: a root of the Ruby RQ is not taken over. A
    queue in a root of ours is, for nothing is removed at once.
    """
    is_ruby = not root.adopted.exists() and spool_adoption.is_ancestors(root)
    lines = list(_ageing(root, time.time()))
    if not lines and not is_ruby:
        return True
    _tell_of_ageing(root, lines)
    if adopt:
        return True
    if sys.stdin.isatty() and sys.stderr.isatty():
        return term.confirm("Start RQ?", yes=False)
    if is_ruby:
        term.note(
            f"{root.path} is a root of the Ruby RQ, and there is no terminal to ask on: "
            "`rq up --adopt` takes it over"
        )
    return not is_ruby


def _tell_of_ageing(root: Root, lines: list[str]) -> None:
    if lines:
        term.note("Another RQ has filled these queues. RQ will remove old messages:")
        for line in lines:
            term.note(f"  {line}")
        term.note(
            'To keep them longer, or for ever (null), set "retention" in the config.json '
            "beside the script of the queue, or in queue/NAME/"
        )
    if waits := list(_waits(root)):
        term.note(
            "These wait until you say `rq restore accept`: "
            + term.plain(", ".join(waits))
        )


def _waits(root: Root) -> Iterator[str]:
    """Give what will not act before the operator says so."""
    for name in place.queue_names(root):
        if restored.why_not_taken_over(root.queue(name)) is not None:
            yield f"queue {name}, with its script of the Ruby RQ"
    if not root.adopted.exists():
        for name in adopted.timers_in(root):
            yield f"timer {name}"


def _ageing(root: Root, now: float) -> Iterator[str]:
    for name in place.queue_names(root):
        queue = root.queue(name)
        if not queue.config.exists() or not spool_adoption.is_foreign(queue):
            continue
        kept = _retention(queue)
        for state, number in spool_adoption.count_ageing(queue).items():
            if (seconds := kept.get(state)) is not None:
                when = term.moment(now + seconds)
                yield f"{name}: {number} {_AGEING[state]} after {when}"


def _retention(queue: QueueDir) -> dict[State, float]:
    """Return how long, in seconds, the states of a queue are kept."""
    try:
        settings = config.read_queue(queue)
    except RQError:
        settings = QueueConfig()
    ends = {
        state: settings.retention.get(str(state), {}) for state in spool_adoption.AGEING
    }
    days = {s: kept["days"] * _DAY for s, kept in ends.items() if "days" in kept}
    return {**days, State.PREP: PREP_SECONDS}
