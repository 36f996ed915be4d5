"""`rq restore`: queues whose directories were copied or restored, and a person's word."""

from __future__ import annotations

from typing import Any

from rq.cli import EXIT_OF, FAILED, OK, complain, owner, place, term
from rq.errors import RQError
from rq.layout import Root

LS, ACCEPT = "ls", "accept"
_ABOUT = """Queues whose directories were copied or restored start nothing: `ls` shows
what each would run and deliver again, `accept` lets them go on, all that wait or those
that are named. `rq queue pause QUEUE` before it keeps its messages from starting."""


def restore(root: Root, words: list[str]) -> int:
    made = term.parser("restore", _ABOUT)
    made.add_argument(
        "words", nargs="*", metavar="ls|accept QUEUE", help="ls, of all queues"
    )
    made.add_argument(
        "--copy",
        action="store_true",
        help="accept as a copy, or as older than what has run since: the journal gets a "
        "new id. Without it: the same queue, moved here as it was last",
    )
    term.json_option(made)
    args = made.parse_intermixed_args(words)  # accept --copy QUEUE
    what, queues = _asked(args.words, copy=args.copy)
    for name in queues:  # a mistyped name must not leave the work half done
        place.queue_dir(root, name)
    place.demand_running(root)
    if what == ACCEPT:
        return _accept(root, queues, "copy" if args.copy else "same")
    return _ls(root, queues, as_json=args.json)


def _asked(words: list[str], *, copy: bool) -> tuple[str, list[str]]:
    """Return what is to be done, with which queues.

    >>> _asked([], copy=False), _asked(["accept", "q"], copy=False), _asked([], copy=True)
    (('ls', []), ('accept', ['q']), ('accept', []))
    """
    if words and words[0] in (LS, ACCEPT):
        what, *words = words
    else:
        what = LS
    return ACCEPT if copy else what, words


def _ls(root: Root, queues: list[str], *, as_json: bool) -> int:
    found, code = _waiting(root, queues)
    if as_json:
        term.print_json(found)
    elif found:
        for one in found:
            _print(one)
        if len(found) > 1:
            place.note("`rq restore accept` and `--copy` without a name speak for all")
    elif code == OK:
        place.note("no queue waits: none was copied or restored")
    return code


def _waiting(root: Root, queues: list[str]) -> tuple[list[dict[str, Any]], int]:
    """Return the queues that wait for a word, and the exit code if one does not answer."""
    found, code = [], OK
    for name in queues or place.queue_names(root):
        try:
            told = owner.demand(root, name, "restored")
        except RQError as error:
            complain(str(error))
            code = EXIT_OF.get(type(error), FAILED)
            continue
        if told["why"]:
            found.append({"queue": name, **told})
    return found, code


def _print(one: dict[str, Any]) -> None:
    print(term.plain(f"{one['queue']}: {one['why']}"))
    print(f"  would run {one['messages']} messages{_some(one['ids'], one['messages'])}")
    print(f"  would deliver {one['owed']} copies and webhooks")
    for owed in one["deliveries"]:
        print(term.plain(f"    of {owed['msg_id']} to {owed['target']}, {owed['key']}"))


def _some(ids: list[str], number: int) -> str:
    """Return the first ids, and whether there are more.

    >>> _some(["a", "b"], 3), _some([], 0)
    (': a, b, …', '')
    """
    more = [*ids, "…"] if number > len(ids) else ids
    return f": {', '.join(more)}" if ids else ""


def _accept(root: Root, queues: list[str], how: str) -> int:
    code = OK
    if not queues:
        found, code = _waiting(root, [])
        queues = [one["queue"] for one in found]
        if not queues and code == OK:
            place.note("no queue waits: none was copied or restored")
    for name in queues:
        try:
            print(f"{name}: {owner.demand(root, name, 'restore', {'as': how})}")
        except RQError as error:
            complain(str(error))
            code = EXIT_OF.get(type(error), FAILED)
    return code
