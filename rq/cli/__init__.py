"""The command line: finds the verb, runs it, turns every failure into one sentence.

Importing this module must stay cheap: `rq --help` reads the table below and no more.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rq import errors

if TYPE_CHECKING:
    from rq.layout import Root

OK = 0
FAILED = 1
USAGE = 2
NOT_FOUND = 3
REFUSED = 4
UNREACHABLE = 6
TIMEOUT = 7
ENDED_IN_ERR = 8
INTEGRITY = 9
INTERRUPTED = 130

NOT_YOURS = "permission denied: run this as the user whose RQ it is, or as root"

EXIT_OF: dict[type[errors.RQError], int] = {
    errors.BadInput: USAGE,
    errors.BadMessage: USAGE,
    errors.NoSuchQueue: NOT_FOUND,
    errors.NoSuchMessage: NOT_FOUND,
    errors.NoJava: NOT_FOUND,
    errors.WrongState: REFUSED,
    errors.Refused: REFUSED,
    errors.Unreachable: UNREACHABLE,
    errors.OutcomeUnknown: TIMEOUT,
    errors.Damaged: INTEGRITY,
}

# verb: (module:function, one line of help); a function takes (root, words) and returns
# the exit code.
VERBS: dict[str, tuple[str, str]] = {
    "up": ("up:up", "set up what is missing, start RQ, wait until it is ready"),
    "down": ("up:down", "stop RQ and wait until all its processes have ended"),
    "demo": (
        "samples:demo",
        "send three sample messages and show what becomes of them",
    ),
    "status": (
        "status:status",
        "what runs, waits, is wrong; exits with 1 unless all is well",
    ),
    "send": ("send:send", "send a message to a queue"),
    "ls": ("listing:ls", "list messages"),
    "show": ("show:show", "all about a message: what happened, why, what to do"),
    "logs": ("output:logs", "the output of a message's script; -f follows it"),
    "wait": ("waiting:wait", "wait until messages have ended"),
    "run": ("change:run", "run a waiting message now, before it is due"),
    "retry": ("change:retry", "send a failed message round again"),
    "cancel": ("change:cancel", "take a waiting message out, end a running one"),
    "delete": ("change:delete", "remove messages for good"),
    "ack": ("change:ack", "mark failed messages as seen"),
    "queue": ("queue:queue", "ls | new | pause | resume | down | up | restart"),
    "timer": ("timer:timer", "ls: the timers and when they fire"),
    "router": ("router:router", "try | import: routing rules, tried on one message"),
    "owed": ("owed:owed", "ls | resolve: copies and webhooks not yet delivered"),
    "restore": ("restore:restore", "ls | accept: queues that were copied or restored"),
    "relay": ("relay:relay", "ls | retry | resolve | allow | forbid: other hosts"),
    "txn": ("txn:txn", "ls | abort: messages prepared to be accepted together"),
    "spark": ("spark:spark", "doctor | try: the data pipeline"),
    "trash": ("trash:trash", "ls | empty | keep: the queues that were removed"),
    "check": ("check:check", "prove that journal, folders and counters agree"),
    "doctor": ("doctor:doctor", "measure the disk and say what RQ can promise on it"),
    "passwd": ("passwd:passwd", "make the hash of a password for basic_auth"),
    "open": ("open:open_", "print an address of the page that signs in, once"),
    "token": ("token:token", "create | ls | revoke: secrets for programs"),
    "config": ("config_show:config", "show: the configuration in force"),
    "version": (
        "version:version",
        "the version of this program and of the running one",
    ),
}
ANCESTOR: dict[str, tuple[str, str]] = {
    "sendmesg": ("ancestor:sendmesg", "--dest D [--param1 ..4 --due --src ...]"),
    "prepmesg": ("ancestor:prepmesg", "the same, without commit"),
    "single_que": ("ancestor:single_que", "the same, unless one waits already"),
    "attachmesg": ("ancestor:attachmesg", "--msg_id ID --pathname P [--name N]"),
    "commitmesg": ("ancestor:commitmesg", "--msg_id ID"),
    "statusmesg": ("ancestor:statusmesg", "--msg_id ID"),
    "state": ("ancestor:state", "--msg_id ID"),
    "statuscountmesg": ("ancestor:statuscountmesg", "--msg_id ID"),
    "attachstatusmesg": ("ancestor:attachstatusmesg", "--msg_id ID"),
    "clone": ("ancestor:clone", "--msg_id ID"),
    "verify_rules": ("router:verify_rules", "[--path F] [--verbose]"),
}
# Verbs whose words name files, as a function of the words tells.
NAMED = {
    "send": "send:named",
    "attachmesg": "ancestor:named",
    "router": "router:named",
    "verify_rules": "router:named_rules",
}
# These find or make a clean state themselves.
_UNWARNED = frozenset({"up", "down", "check", "version"})


def main(argv: list[str] | None = None) -> int:
    """Run `rq VERB …` and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    return guarded(lambda: _run(words))


def guarded(act: Callable[[], int], *, ancestor: bool = False) -> int:
    """Return the exit code of `act`, whatever it raises or prints."""
    from rq.cli import terminal

    _stand_in()
    with terminal.shown():
        return _caught(act, ancestor=ancestor)


def _caught(act: Callable[[], int], *, ancestor: bool) -> int:
    """The one catch of each tool."""
    try:
        code = act()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else FAILED
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        _silence()
        code = OK
    except errors.RQError as error:
        complain(str(error))
        code = FAILED if ancestor else EXIT_OF.get(type(error), FAILED)
    except Exception as error:  # noqa: BLE001 - main is one of the four places
        complain(_unforeseen(error))
        code = FAILED
    return _flushed(code)


def complain(text: str) -> None:
    """Say what went wrong, on stderr."""
    print(f"rq: {text}", file=sys.stderr)


def _run(words: list[str]) -> int:
    root, words = take_root(words)
    if not words:
        print(usage(), file=sys.stderr)
        return USAGE
    verb, rest = words[0], words[1:]
    if verb in ("-h", "--help", "help"):
        return _help(rest)
    if verb == "--version":
        verb, rest = "version", ["--short"]
    row = VERBS.get(verb) or ANCESTOR.get(verb)
    if row is None:
        raise errors.BadInput(_unknown(verb))
    return _dispatch(verb, row[0], root, rest)


def _dispatch(verb: str, target: str, root: str | None, rest: list[str]) -> int:
    from rq import config

    found = config.find_root(root)
    act: Callable[..., int] = _function(target)
    if {"-h", "--help"} & set(rest[: rest.index("--")] if "--" in rest else rest):
        _drop(found)
        return act(found, rest)
    if verb in ANCESTOR:
        return guarded(lambda: _act(verb, act, found, rest), ancestor=True)
    return _act(verb, act, found, rest)


def _drop(root: Root) -> None:
    """Be the user whose RQ it is, if that can be told: the word that asks for help may
    be a value instead."""
    from rq.access import owner

    with contextlib.suppress(errors.RQError):
        owner.act_as_owner(root)


def _function(target: str) -> Callable[..., Any]:
    name, _, function = target.partition(":")
    found: Callable[..., Any] = getattr(
        importlib.import_module(f"rq.cli.{name}"), function
    )
    return found


def _act(verb: str, act: Callable[..., int], root: Root, rest: list[str]) -> int:
    """Run a verb as the user whose RQ it is; what it names is opened as who asks."""
    from rq.access import owner
    from rq.cli import named, place

    paths: list[str] = []
    if verb in NAMED and owner.foreign_owner(root):
        paths = _function(NAMED[verb])(rest)
    files = named.hold(paths)
    owner.act_as_owner(root)
    if verb not in _UNWARNED:
        place.warn_of_unclean_end(root)
    return act(root, rest, files) if verb in NAMED else act(root, rest)


def take_root(words: list[str]) -> tuple[str | None, list[str]]:
    """Return the directory of `--root DIR` and the other words."""
    kept: list[str] = []
    found: str | None = None
    waiting = iter(words)
    for word in waiting:
        if word == "--":
            kept += [word, *waiting]
        elif word == "--root":
            found = next(waiting, "")
        elif word.startswith("--root="):
            found = word.removeprefix("--root=")
        else:
            kept.append(word)
    if found == "":
        raise errors.BadInput("--root needs a directory")
    return found, kept


def _help(rest: list[str]) -> int:
    if rest:
        return _run([rest[0], "--help"])
    print(usage())
    return OK


def usage() -> str:
    """Return the help of `rq` itself, from the table."""
    lines = ["usage: rq [--root DIR] VERB [options]     `rq VERB --help` says more", ""]
    lines += [f"  {verb:<18}{text}" for verb, (_, text) in VERBS.items()]
    lines += ["", "The ancestor's verbs, with its output and exit codes 0 and 1:", ""]
    lines += [f"  {verb:<18}{text}" for verb, (_, text) in ANCESTOR.items()]
    lines += [
        "",
        "ID is a short id or its beginning, QUEUE/ID, or a URL. --json is for programs.",
        "Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 refused, 6 RQ not running,",
        "            7 timed out, 8 the message ended in err, 9 check found problems.",
    ]
    return "\n".join(lines)


def _unknown(verb: str) -> str:
    import difflib

    close = difflib.get_close_matches(verb, [*VERBS, *ANCESTOR], 1)
    hint = f"did you mean {close[0]!r}?" if close else "`rq --help` lists the verbs"
    return f"there is no verb {verb!r}; {hint}"


def _stand_in() -> None:
    """Open what the caller has closed: Python has None there, and a file opened later
    would be stdout."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _flushed(code: int) -> int:
    """Return `code`, or FAILED when what was printed cannot be written."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _silence()
    except OSError as error:
        complain(f"the output could not be written: {error.strerror}")
        _silence()
        return code or FAILED
    return code


def _silence() -> None:
    """Let the interpreter's last flush go nowhere: the reader has left."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def _unforeseen(error: Exception) -> str:
    if os.environ.get("RQ_DEBUG"):
        import traceback

        traceback.print_exc()
    if isinstance(error, PermissionError) and error.filename:
        return f"{error.filename}: {NOT_YOURS}"
    text = str(error) or type(error).__name__
    if isinstance(error, OSError):
        return text
    return f"{type(error).__name__}: {text} (RQ_DEBUG=1 shows where)"
