"""`rq queue new NAME -- COMMAND [ARG …]`: a queue that runs an existing command, here or
with `--pull` at workers elsewhere."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from rq import config, names
from rq.builtin import command
from rq.builtin.command import Command
from rq.cli import OK, place, term
from rq.config import bundled, files, settings
from rq.config.checks import EXIT
from rq.config.settings import RootConfig
from rq.config.values import is_loopback
from rq.errors import BadConfig, BadInput, Refused
from rq.layout import Root
from rq.message import limits
from rq.replies import elsewhere
from rq.scripts import program_file

_PATIENCE = 60.0  # seconds until the queue serves
_LOOK = 0.05
_NEW = """\
Make a queue that runs a command, once for each message. The exit status of the
command says how the message ended: 0 it succeeded, anything else it failed.

  rq queue new backup -- /usr/local/bin/backup --to /mnt/backup
  rq queue new thumbs -- convert {param1} -resize 200x200 -- {param2}
  rq queue new fetch --append -- curl -sSfO

{param1} to {param4} become the message's parameters, each within its argument;
no shell reads them. --append puts all parameters of the message at the end,
behind --.

With --pull workers on other machines (`rq work`) take the messages. They run the
command there; without a command each runs a script of its own:

  rq queue new thumbs --pull -- convert {param1} -resize 200x200 -- {param2}
  rq queue new crawl --pull
"""
_USAGE = (
    "rq queue new NAME [--pull] [--append] [--workers N] [--limit NAME=VALUE …] "
    "[-- COMMAND [ARG …]]"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewQueue:
    """A queue that is to be made."""

    name: str
    runs: Command | None  # None: each worker brings a script of its own
    pull: bool  # workers elsewhere take its messages
    workers: int  # messages at the same time here
    env_vars: Mapping[str, str] = field(default_factory=dict)
    tells: Mapping[str, object] = field(default_factory=dict)  # settings of notices
    limits: Mapping[str, str] = field(default_factory=dict)

    def settings(self) -> dict[str, object]:
        """Return what its config.json says."""
        if self.runs is None:
            return {"pull": {}, **self.limits}
        shared = {"pull": {"share_script": True}} if self.pull else {}
        env = {"env_vars": dict(self.env_vars)} if self.env_vars else {}
        limits = {"num_workers": self.workers, "success": EXIT}
        return {**limits, **env, **shared, **self.tells, **self.limits}


def options(kinds: term.Verbs) -> None:
    """Add what `rq queue new` takes."""
    parser = kinds.add_parser(
        "new",
        help="make a queue that runs a command: new NAME -- COMMAND [ARG …]",
        description=_NEW,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage=_USAGE,
    )
    parser.add_argument("name", metavar="NAME")
    term.flag(parser, "--pull", "lease its messages to workers elsewhere")
    term.flag(parser, "--append", "put the message's parameters at the end, behind --")
    parser.add_argument(
        "--workers",
        type=term.at_least(1),
        metavar="N",
        help="how many messages run at the same time here (1; with --pull none)",
    )
    parser.add_argument(
        "--limit",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="of its scripts: timeout=10m, memory='512 MiB', heartbeat=60, log_bytes=…",
    )


def make(root: Root, parser: argparse.ArgumentParser, words: list[str]) -> int:
    """Make the queue that the words ask for, and wait until it serves."""
    at = words.index("--") if "--" in words else len(words)
    args, more = parser.parse_known_args(words[:at])
    if more and at == len(words):
        raise BadInput(f"put -- before the command: rq queue new {args.name} -- …")
    if more:
        parser.error(f"unrecognized arguments: {' '.join(more)}")
    wanted = _wanted(root, args, None if at == len(words) else words[at + 1 :])
    check_free(root, wanted.name)
    main = place.root_config(root)
    write(root, wanted)
    print(f"queue {wanted.name} is made: {_works(wanted)}")
    if wanted.pull:
        _tell_of_workers(main, wanted)
    _tell(root, wanted.name)
    return OK


def _wanted(root: Root, args: argparse.Namespace, words: list[str] | None) -> NewQueue:
    """Return the queue that is asked for; BadInput says why it cannot be meant."""
    name = names.queue_name(args.name)
    bounds = _limits(args.limit)
    if words is None and args.pull:
        if args.append or args.workers:
            raise BadInput(
                "--append and --workers are about a command, and there is none: put it "
                f"at the end, rq queue new {name} --pull -- COMMAND [ARG …]"
            )
        return NewQueue(name=name, runs=None, pull=True, workers=0, limits=bounds)
    given = Command(tuple(words or ()), args.append)
    command.check(given)
    workers = args.workers or (0 if args.pull else 1)
    if workers:
        given = _resolved(root, given)
    elif "/" in given.words[0] and not os.path.isabs(given.words[0]):
        raise BadInput(
            f"{given.words[0]} is a path from here, and the workers are elsewhere: say "
            "the program's name, or its full path on their machines"
        )
    return NewQueue(
        name=name, runs=given, pull=args.pull, workers=workers, limits=bounds
    )


def _limits(pairs: list[str]) -> dict[str, str]:
    try:
        return dict(limits.from_words(pair) for pair in pairs)
    except ValueError as error:
        raise BadInput(f"--limit {error}") from None


def _resolved(root: Root, given: Command) -> Command:
    """Return a command whose program scripts find, too: they work elsewhere, with the
    PATH of the config."""
    program, *rest = given.words
    path = _path(root)
    if "/" in program:
        program = os.path.abspath(program)
    if why := program_file.unfit(program):
        raise BadInput(f"{program} cannot be started: {why}{_apart(program)}")
    if shutil.which(program, path=path) is None:
        here = shutil.which(program)
        hint = f"say {here}" if here else "say its full path"
        raise BadInput(
            f"no program {program!r} on the PATH of scripts ({path}): {hint}, or add its "
            f"directory to worker_env{_apart(program)}"
        )
    for word in rest:
        if not word.startswith(("/", "-")) and os.path.isfile(word):
            term.note(
                f"{word!r} is a file here; the command runs in a directory of its "
                f"message: say {os.path.abspath(word)} if you mean it"
            )
    return Command((program, *rest), given.append)


def _apart(program: str) -> str:
    """Return a hint for a whole command that was given as one word."""
    apart = (
        "; give each word of the command by itself, without quotes around all of them"
    )
    return apart if " " in program else ""


def _path(root: Root) -> str:
    environment = place.root_config(root).worker_env or settings.default_worker_env()
    return environment.get("PATH", settings.WORKER_PATH)


def check_free(root: Root, name: str) -> None:
    """Refused when a queue may not be called that."""
    if name in place.queue_names(root):
        raise Refused(f"queue {name} exists already; choose another name")
    if (bundled.BUNDLED / name).is_dir():
        raise Refused(f"{name} is the name of a queue that comes with RQ")
    for there in (root.scandir / name, root.commands / name):
        if os.path.lexists(there):
            raise Refused(
                f"{there} exists already: link it into {root.scandir} or remove it"
            )


def write(root: Root, wanted: NewQueue) -> None:
    """Write the definition, then the link that makes it a queue."""
    directory = root.commands / wanted.name
    data = wanted.settings()
    content = {"config.json": _json(data)}
    if wanted.runs is not None:
        content[command.FILE] = _json(wanted.runs.to_json())
    try:
        script = "run" if wanted.runs else ""
        config.queue_config({"script": script, **data}, directory / "config.json")
        run = command.RUN.encode() if wanted.runs else None
        files.write_definition(directory, content, run)
    except BadConfig as error:
        raise BadInput(str(error)) from None
    except FileExistsError:
        raise Refused(f"{directory} was made by somebody else just now") from None
    except OSError as error:
        raise Refused(f"{directory} cannot be written: {error.strerror}") from None
    target = os.path.relpath(directory, root.scandir)
    files.write_link(target, root.scandir / wanted.name)


def _json(data: object) -> bytes:
    return json.dumps(data, indent=1, ensure_ascii=False).encode() + b"\n"


def _works(wanted: NewQueue) -> str:
    """Return what is done with its messages, and where."""
    if wanted.runs is None:
        return "workers elsewhere take its messages, each with a script of its own"
    runs = shlex.join(wanted.runs.words)
    if not wanted.pull:
        return f"it runs {runs}"
    return f"{'it and ' if wanted.workers else ''}workers elsewhere run {runs}"


def _tell_of_workers(main: RootConfig, wanted: NewQueue) -> None:
    """Say how workers of a queue are started."""
    name = wanted.name
    start = elsewhere.command(main.queue_url(name), {"share_script": wanted.runs})
    print(
        "make a token for its workers: "
        f"(umask 077; rq token create {name}-workers --role worker --queue {name} "
        "> token)\n"
        f"start them: {start} --token-file token"
    )
    if is_loopback(main.addr):
        term.note(
            "the web listens for this machine alone: workers on others reach it when "
            "`addr`, `host` and `tls` in config/config.json say so, and RQ was restarted"
        )


def _tell(root: Root, name: str) -> None:
    """Say how to go on, once the queue serves."""
    if not place.is_running(root):
        term.note("RQ is not running: the queue starts with `rq up`")
        return
    until = time.monotonic() + _PATIENCE
    while not place.answers(root.queue(name)):
        if time.monotonic() > until:
            raise Refused(f"queue {name} is not up yet; `rq status` says why")
        time.sleep(_LOOK)
    print(f"send it a message: rq send {name} --follow")
