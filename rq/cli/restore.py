"""`rq restore`: a person decides about queues that were copied or restored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

from rq.cli import EXIT_OF, OK, complain, owner, place, term, timer
from rq.config import adopted
from rq.errors import RQError
from rq.layout import Root
from rq.replies import Restored

LS, ACCEPT = "ls", "accept"
_ABOUT = """Queues whose directory was copied or restored from a backup: they start
nothing until a person says what the directory is. So do queues and timers of the Ruby RQ
that RQ replaces. `ls` shows what each would run and deliver again. `accept` lets queues
go on: those that are named, or all that wait, and then the timers, too.
Pause a queue first (`rq queue pause QUEUE`) if its messages shall not start at once."""


_NONE = "nothing waits for an answer: no directory was copied or restored"


class Waiting(Restored):
    """A queue that waits for a person's decision."""

    queue: str


def restore(root: Root, words: list[str]) -> int:
    parser = term.parser("restore", _ABOUT)
    parser.add_argument(
        "words", nargs="*", metavar="ls|accept QUEUE", help="(ls of all queues)"
    )
    term.flag(
        parser,
        "--copy",
        "accept as a copy, or as a backup that is older than what has run since: the "
        "journal gets a new id. Without it: the same queue in its last state, moved here",
    )
    term.json_option(parser)
    args = parser.parse_intermixed_args(words)  # accept --copy QUEUE
    what, queues = _requested(args.words, copy=args.copy)
    for name in queues:  # a mistyped name must not leave the work half done
        place.queue_dir(root, name)
    place.demand_running(root)
    if what == ACCEPT:
        return _accept(root, queues, "copy" if args.copy else "same")
    return _ls(root, queues, as_json=args.json)


def _requested(words: list[str], *, copy: bool) -> tuple[str, list[str]]:
    """Return what is to be done, with which queues.

    >>> _requested([], copy=False), _requested(["accept", "q"], copy=False)
    (('ls', []), ('accept', ['q']))
    >>> _requested([], copy=True)
    ('accept', [])
    """
    if words and words[0] in (LS, ACCEPT):
        what, *words = words
    else:
        what = LS
    return ACCEPT if copy else what, words


def _ls(root: Root, queues: list[str], *, as_json: bool) -> int:
    waiting, code = _waiting(root, queues)
    timers = [] if queues else adopted.timers(root)
    if as_json:
        term.print_json([*waiting, *({"timer": name} for name in timers)])
    elif waiting or timers:
        for queue in waiting:
            _print(queue)
        for name in timers:
            print(
                term.plain(f"timer {name}: the Ruby RQ left it, and it does not fire")
            )
        if len(waiting) + len(timers) > 1:
            term.note("`rq restore accept`, with no queue named, accepts all of them")
    elif code == OK:
        term.note(_NONE)
    return code


def _waiting(root: Root, queues: list[str]) -> tuple[list[Waiting], int]:
    """Return the queues that wait for a word, and the exit code if one does not answer."""
    waiting: list[Waiting] = []
    code = OK
    for name in queues or place.queue_names(root):
        try:
            restored = cast(Restored, owner.demand(root, name, "restored"))
        except RQError as error:
            complain(str(error))
            code = EXIT_OF[error.kind]
            continue
        if restored["why"]:
            waiting.append({"queue": name, **restored})
    return waiting, code


def _print(queue: Waiting) -> None:
    print(term.plain(f"{queue['queue']}: {queue['why']}"))
    number = queue["messages"]
    print(f"  would run {number} messages{_some(queue['ids'], number)}")
    print(f"  would deliver {queue['owed']} copies and webhooks")
    for owed in queue["deliveries"]:
        print(term.plain(f"    of {owed['msg_id']} to {owed['target']}, {owed['key']}"))


def _some(ids: Sequence[str], number: int) -> str:
    """Return the first ids, and whether there are more.

    >>> _some(["a", "b"], 3), _some([], 0)
    (': a, b, …', '')
    """
    more = [*ids, "…"] if number > len(ids) else ids
    return f": {', '.join(more)}" if ids else ""


def _accept(root: Root, queues: list[str], how: str) -> int:
    code, timers = OK, []
    if not queues:
        waiting, code = _waiting(root, [])
        queues, timers = [queue["queue"] for queue in waiting], adopted.names(root)
        if not queues and not timers and code == OK:
            term.note(_NONE)
    for name in queues:
        code = _tried(partial(_restore, root, name, how)) or code
    for name in timers:
        code = _tried(partial(timer.accept, root, name)) or code
    return code


def _restore(root: Root, name: str, how: str) -> None:
    print(f"{name}: {owner.demand(root, name, 'restore', {'as': how})}")


def _tried(act: Callable[[], None]) -> int:
    """Do one of several things; return the exit code if it fails, and say why."""
    try:
        act()
    except RQError as error:
        complain(str(error))
        return EXIT_OF[error.kind]
    return OK
