"""`rq queue new NAME -- COMMAND [ARG …]`: a queue that runs an existing command."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import time

from rq import command, config, names
from rq.cli import OK, place, term
from rq.command import Command
from rq.config import files, settings
from rq.errors import BadConfig, BadInput, Refused
from rq.layout import Root
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
"""


def options(kinds: term.Verbs) -> None:
    """Add what `rq queue new` takes."""
    parser = kinds.add_parser(
        "new",
        help="make a queue that runs a command: new NAME -- COMMAND [ARG …]",
        description=_NEW,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="rq queue new NAME [--append] [--workers N] -- COMMAND [ARG …]",
    )
    parser.add_argument("name", metavar="NAME")
    parser.add_argument(
        "--append",
        action="store_true",
        help="put the message's parameters at the end, behind --",
    )
    parser.add_argument(
        "--workers",
        type=term.at_least(1),
        default=1,
        metavar="N",
        help="how many messages run at the same time (1)",
    )


def make(root: Root, parser: argparse.ArgumentParser, words: list[str]) -> int:
    """Make the queue that the words ask for, and wait until it serves."""
    at = words.index("--") if "--" in words else len(words)
    args, more = parser.parse_known_args(words[:at])
    if more and at == len(words):
        raise BadInput(f"put -- before the command: rq queue new {args.name} -- …")
    if more:
        parser.error(f"unrecognized arguments: {' '.join(more)}")
    name = names.queue_name(args.name)
    given = Command(tuple(words[at + 1 :]), args.append)
    command.check(given)
    resolved = _resolved(root, given)
    _check_free(root, name)
    _write(root, name, resolved, args.workers)
    print(f"queue {name} is made: it runs {shlex.join(resolved.words)}")
    _tell(root, name)
    return OK


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
            place.note(
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


def _check_free(root: Root, name: str) -> None:
    if name in place.queue_names(root):
        raise Refused(f"queue {name} exists already; choose another name")
    if (place.BUNDLED / name).is_dir():
        raise Refused(f"{name} is the name of a queue that comes with RQ")
    for there in (root.scandir / name, root.commands / name):
        if os.path.lexists(there):
            raise Refused(
                f"{there} exists already: link it into {root.scandir} or remove it"
            )


def _write(root: Root, name: str, resolved: Command, workers: int) -> None:
    """Write the definition, then the link that makes it a queue."""
    directory = root.commands / name
    data = {"num_workers": workers, "success": settings.EXIT}
    try:
        config.queue_config({"script": "run", **data}, directory / "config.json")
        files.write_definition(
            directory,
            {"config.json": _json(data), command.FILE: _json(resolved.to_json())},
            command.RUN.encode(),
        )
    except BadConfig as error:
        raise BadInput(str(error)) from None
    except FileExistsError:
        raise Refused(f"{directory} was made by somebody else just now") from None
    except OSError as error:
        raise Refused(f"{directory} cannot be written: {error.strerror}") from None
    target = os.path.relpath(directory, root.scandir)
    files.write_link(target, root.scandir / name)


def _json(data: object) -> bytes:
    return json.dumps(data, indent=1, ensure_ascii=False).encode() + b"\n"


def _tell(root: Root, name: str) -> None:
    """Say how to go on, once the queue serves."""
    if not place.is_running(root):
        place.note("RQ is not running: the queue starts with `rq up`")
        return
    until = time.monotonic() + _PATIENCE
    while not place.answers(root.queue(name)):
        if time.monotonic() > until:
            raise Refused(f"queue {name} is not up yet; `rq status` says why")
        time.sleep(_LOOK)
    print(f"send it a message: rq send {name} --follow")
