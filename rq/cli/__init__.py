"""The command line: finds the verb, runs it, turns every failure into one sentence.

Importing this module must stay cheap: `rq --help` reads the tables of verbs and of actions
and no more.
"""

# ruff: noqa: E402 - a signal may come while the rest is imported

from __future__ import annotations

import _signal  # type: ignore[import-not-found] # C: no stubs
import sys

# Ctrl-C while modules are imported ends the program as it ends any other: Python's own
# handler would print which line it was at. That is set when a verb begins. Some modules
# in C even crash when it comes while they begin. (`_signal` is in the interpreter;
# `signal` takes longer to import than much below.)
_IS_PROGRAM = (
    sys.argv[0] == "-m"  # it is being found as `python -m rq.cli`
    and _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler
)
if _IS_PROGRAM:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

import contextlib
import functools
import importlib
import os
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from rq import errors
from rq.cli.verbs import ANCESTOR, NAMED, ROOTLESS, UNWARNED, VERBS, usage
from rq.kinds import Kind
from rq.words import visible

if TYPE_CHECKING:
    from types import FrameType

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


EXIT_OF: dict[Kind, int] = {
    Kind.BAD_INPUT: USAGE,
    Kind.KEY_REUSED: USAGE,
    Kind.TOO_LARGE: USAGE,
    Kind.NO_SUCH_QUEUE: NOT_FOUND,
    Kind.NO_SUCH_MESSAGE: NOT_FOUND,
    Kind.WRONG_STATE: REFUSED,
    Kind.NOT_UNIQUE: REFUSED,
    Kind.CHANGED: REFUSED,
    Kind.ALREADY_COMMITTED: REFUSED,
    Kind.LEASE_OVER: REFUSED,
    Kind.LEASE_FORGOTTEN: REFUSED,
    Kind.WRONG_OFFSET: REFUSED,
    Kind.NOT_WHOLE: REFUSED,
    Kind.UNREADABLE: REFUSED,
    Kind.REFUSED: REFUSED,
    Kind.BUSY: REFUSED,
    Kind.DOWN: REFUSED,
    Kind.CLOSED: REFUSED,
    Kind.NO_ROOM: REFUSED,
    Kind.DISK_FAILED: REFUSED,
    Kind.CANNOT_READ: FAILED,
    Kind.TOO_OFTEN: REFUSED,
    Kind.LOGIN_NEEDED: REFUSED,
    Kind.NOT_ALLOWED: REFUSED,
    Kind.OTHER_QUEUE: REFUSED,
    Kind.WRONG_HOST: REFUSED,
    Kind.UNREACHABLE: UNREACHABLE,
    Kind.OUTCOME_UNKNOWN: TIMEOUT,
    Kind.BAD_CONFIG: FAILED,
    Kind.DAMAGED: INTEGRITY,
    Kind.NO_JAVA: NOT_FOUND,
    Kind.INTERNAL: FAILED,
}


def main(argv: list[str] | None = None) -> int:
    """Run `rq VERB …` and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    return guarded(lambda: _run(words))


def guarded(act: Callable[[], int], *, ancestor: bool = False) -> int:
    """Return the exit code of `act`, whatever it raises or prints."""
    from rq.cli import terminal

    _stand_in()
    with terminal.screened():
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
        code = FAILED if ancestor else EXIT_OF[error.kind]
    except Exception as error:  # noqa: BLE001 - main is one of the four places
        complain(_unforeseen(error))
        code = FAILED
    _handle(signal.SIG_DFL)
    return _flushed(code)


def _handle(
    action: Callable[[int, FrameType | None], object] | signal.Handlers,
) -> None:
    if _IS_PROGRAM:
        signal.signal(signal.SIGINT, action)


def complain(text: str) -> None:
    """Say what went wrong, on stderr."""
    print(f"rq: {visible.text(text)}", file=sys.stderr)


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

    act = cast(Callable[..., int], function_of(target))
    _handle(signal.default_int_handler)  # all that is large is imported
    if verb in ROOTLESS:
        return act(root, rest)
    directory = config.find_root(root)
    if {"-h", "--help"} & set(rest[: rest.index("--")] if "--" in rest else rest):
        _drop(directory)
        return act(directory, rest)
    if verb in ANCESTOR:
        return guarded(lambda: _act(verb, act, directory, rest), ancestor=True)
    return _act(verb, act, directory, rest)


def _drop(root: Root) -> None:
    """Become the user whose RQ it is, if that is known: `--help` may be a value, and then
    the verb runs."""
    from rq.access import owner

    with contextlib.suppress(errors.RQError):
        owner.act_as_owner(root)


def function_of(target: str) -> object:
    place, _, word = target.partition(" ")
    module, _, name = place.partition(":")
    function = getattr(importlib.import_module(f"rq.cli.{module}"), name)
    return functools.partial(function, word) if word else function


def _act(verb: str, act: Callable[..., int], root: Root, rest: list[str]) -> int:
    """Run a verb as the user whose RQ it is; what it names is opened as who asks."""
    from rq.access import owner
    from rq.cli import named_files, place

    if verb == "send" and _has_only_a_token(root):
        return cast(Callable[..., int], function_of("send:send_by_token"))(rest)
    paths: list[str] = []
    if verb in NAMED and owner.foreign_owner(root):
        name_files = cast(Callable[[list[str]], list[str]], function_of(NAMED[verb]))
        paths = name_files(rest)
    files = named_files.hold(paths)
    owner.act_as_owner(root)
    if verb not in UNWARNED:
        place.warn_of_unclean_end(root)
    return act(root, rest, files) if verb in NAMED else act(root, rest)


def _has_only_a_token(root: Root) -> bool:
    """Whether a script of RQ asks that runs as another user, to whom RQ is closed."""
    from rq.access.attempt_tokens import VARIABLE

    return VARIABLE in os.environ and not os.access(root.queues, os.R_OK)


def take_root(words: list[str]) -> tuple[str | None, list[str]]:
    """Return the directory of `--root DIR` and the other words."""
    others: list[str] = []
    root: str | None = None
    rest = iter(words)
    for word in rest:
        if word == "--":
            others += [word, *rest]
        elif word == "--root":
            root = next(rest, "")
        elif word.startswith("--root="):
            root = word.removeprefix("--root=")
        else:
            others.append(word)
    if root == "":
        raise errors.BadInput("--root needs a directory")
    return root, others


def _help(rest: list[str]) -> int:
    if rest:
        return _run([rest[0], "--help"])
    print(usage())
    return OK


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
    text = str(error) or type(error).__name__
    if isinstance(error, OSError):
        return _of_system(error, text)
    return f"{type(error).__name__}: {text} (RQ_DEBUG=1 shows where)"


def _of_system(error: OSError, text: str) -> str:
    """Return a sentence for what a call of the system has refused."""
    if isinstance(error, PermissionError) and error.filename:
        return f"{error.filename}: {errors.NOT_YOURS}"
    is_named = error.filename is not None
    is_here = not is_named and isinstance(error, FileNotFoundError)
    if is_here and os.stat(".").st_nlink == 0:
        return "the directory that you are in was removed: change into another one"
    if errors.is_no_room(error):
        place = f"{error.filename}: " if is_named else ""
        return (
            f"{place}{error.strerror}: it was not done; free some space and try again"
        )
    return text
