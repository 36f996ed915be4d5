"""Playing the guide: its blocks are run in one shell per page, on an RQ of their own.

`PYTHONPATH=.:test .venv/bin/python -m harness.guide docs/guide/start.md` writes into the page
what its commands print today; without a page, into all of them.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.checkout import CHECKOUT
from harness.cli import running
from harness.documents import GUIDE, examples
from harness.ports import free_port
from harness.waiting import wait_until
from rq.layout import Root
from rq.rpc import client
from rq.supervisor.children import Kind
from rq.words.states import Child

ROOT_SHOWN = "/opt/rq"
PORT_SHOWN = "3333"
BROKER_SHOWN = "7711"
_MARK = "\x01end\x01"
_UNIT = r"(?:µs|ms|s|m|min|h|d|B|KiB|MiB|GiB|KiB/s|MiB/s|%)"
# What differs from run to run, and what it becomes before two outputs are compared.
_VARYING = (
    (re.compile(r"\d{8}\.\d{4}\.\d\d\.\d{3}\.\d+"), "ID"),
    (
        re.compile(
            r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?: ?\+0000|Z| UTC)?"
        ),
        "TIME",
    ),
    (re.compile(r"\b\d\d:\d\d(?::\d\d)?\b"), "TIME"),
    (re.compile(r"\b\d{10}\.\d+\b"), "SECONDS"),
    (re.compile(r"\b[0-9a-f]{32,}\b"), "DIGEST"),
    (re.compile(rf"\b\d+(?:[.,]\d+)* ?{_UNIT}(?!\w)"), "AMOUNT"),
    (re.compile(r"AMOUNT(?: AMOUNT)+"), "AMOUNT"),
    (re.compile(r'(?<="uptime":)\d+'), "N"),
    (re.compile(r"\bpid \d+|^\d+ - (?=TIME)", re.MULTILINE), "PID"),
    (re.compile(r"\((?:now|AMOUNT ago|in AMOUNT)\)"), "(WHEN)"),
    (re.compile(r"\b\d{8}/\d\d/\d\d\b"), "DATE"),
    (re.compile(r"(queue\.trash/[\w-]+)\.\d+"), r"\1.INODE"),
    (re.compile(r"^ *by +\S+$", re.MULTILINE), "by USER"),
    (re.compile(r"[ \t]+"), " "),
)

_LOOKING = re.compile(
    r"(rq (ls|show|status|logs|(queue|timer|trash|relay|owed) ls)|ls|find|cat|curl -sS \S+json$)\b"
)
PAGES = [CHECKOUT / "README.md", *sorted(GUIDE.glob("*.md"))]
_PLAYED = {("console", ""), ("sh", "run")}
_PATIENCE = 30.0  # seconds until what was done is seen
_SEEN = 2.0  # the same, where nobody knows what to wait for


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A command of a page, and what the page says that it prints (None: does not say)."""

    command: str
    shown: str | None
    fails: bool


def steps(language: str, text: str) -> list[Step]:
    """Return the commands of a block."""
    if language == "sh":
        return [Step(command=text, shown=None, fails=False)]
    parts: list[tuple[list[str], list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            parts.append(([line[2:]], []))
        elif line.startswith("> ") and not parts[-1][1]:
            parts[-1][0].append(line[2:])
        else:
            parts[-1][1].append(line)
    nexts = [part[0][0] for part in parts[1:]] + [""]
    return [
        Step(
            command="\n".join(command),
            shown="\n".join(output),
            fails=following.startswith("echo $?"),
        )
        for (command, output), following in zip(parts, nexts, strict=True)
    ]


def launcher(place: Path) -> Path:
    """Make `rq` of this checkout in a directory, for the PATH; return the directory."""
    place.mkdir(parents=True, exist_ok=True)
    file = place / "rq"
    start = f'PYTHONPATH={CHECKOUT} exec {sys.executable} -m rq.cli "$@"'
    file.write_text(f"#!/bin/sh\n{start}\n")
    file.chmod(0o755)
    return place


class Shell:
    """A bash in which one command follows the other, and RQ is on the PATH."""

    def __init__(self, root: Path, home: Path) -> None:
        self.root = Root(root)
        self.port = str(json.loads(self.root.config.read_text())["port"])
        self.broker_port = BROKER_SHOWN
        path = f"{launcher(home / 'bin')}:{os.environ['PATH']}"
        env = {"PATH": path, "HOME": str(home), "RQ_ROOT": str(root), "LANG": "C.UTF-8"}
        self.process = subprocess.Popen(
            ["bash", "--norc"],
            cwd=root,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, command: str) -> tuple[str, int]:
        """Run a command as a page shows it; return what it printed, and its exit status."""
        self.settle()
        if BROKER_SHOWN in command or "rq broker" in command:
            self._choose_broker_port()
        command = command.replace(PORT_SHOWN, self.port)
        command = command.replace(BROKER_SHOWN, self.broker_port)
        command = command.replace(ROOT_SHOWN, str(self.root.path))
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(
            f"{{ {command}\n}} </dev/null\n__status=$?\n"
            f'printf "\\n{_MARK}%d\\n" $__status; (exit $__status)\n'
        )
        self.process.stdin.flush()
        printed = ""
        for line in self.process.stdout:
            if line.startswith(_MARK):
                return self.as_shown(printed), int(line[len(_MARK) :])
            printed += line
        raise AssertionError(f"the shell ended: {printed}")

    def _choose_broker_port(self) -> None:
        """Let the broker serve a port of its own: other tests have one, too."""
        if not self.root.broker_config.exists():
            self.broker_port = str(free_port())
            config = {"port": int(self.broker_port)}
            self.root.broker_config.write_text(json.dumps(config))

    def settle(self) -> None:
        """Wait, as a reader does who types, until the links in scandir are queues."""

        def is_settled() -> bool:
            children = client.ask(self.root.supervisor_socket, "status")["children"]
            queues = {
                child["name"]: child["state"]
                for child in children
                if child["kind"] == Kind.QUEUE
            }
            return queues == dict.fromkeys(os.listdir(self.root.scandir), Child.UP)

        if self.root.supervisor_socket.exists():
            wait_until(is_settled, 60)

    def as_shown(self, printed: str) -> str:
        printed = printed.replace(str(self.root.path), ROOT_SHOWN)
        printed = re.sub(rf"\b{self.broker_port}\b", BROKER_SHOWN, printed)
        return re.sub(rf"\b{self.port}\b", PORT_SHOWN, printed).strip("\n")

    def close(self) -> None:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()


def is_as_shown(shown: str, printed: str) -> bool:
    """Whether a command printed what its page shows; `…` stands for any text, and alone
    on a line for any lines."""
    wanted = "".join(_pattern(line) for line in plain(shown).splitlines())
    return re.fullmatch(wanted, plain(printed) + "\n" if printed else "") is not None


def _pattern(line: str) -> str:
    if line == "…":
        return r"(?:.*\n)*"
    return re.escape(line).replace("…", ".*") + "\n"


def plain(text: str) -> str:
    """Return a text without what differs from run to run."""
    for pattern, word in _VARYING:
        text = pattern.sub(word, text)
    return "\n".join(line.strip() for line in text.strip().splitlines())


def is_looking(command: str) -> bool:
    """Whether a command only looks, so that it may be run again until it shows all."""
    return _LOOKING.match(command) is not None


def played(page: Path) -> list[tuple[str, str]]:
    """Return the blocks of a page that are run: language and text."""
    return [
        (example.language, example.text)
        for example in examples(page)
        if (example.language, example.use) in _PLAYED
    ]


@contextlib.contextmanager
def shell(place: Path) -> Iterator[Shell]:
    """Give a shell in the root of an RQ that runs, as it is where Spark is not installed:
    pages show that."""
    with running(place / "root", without=("spark-history", "spark-work")) as root:
        made = Shell(root, place / "home")
        try:
            yield made
        finally:
            made.close()


def renew(page: Path) -> None:
    """Write what the commands of a page print into the page."""
    text = page.read_text()
    with tempfile.TemporaryDirectory() as place, shell(Path(place)) as bash:
        for language, block in played(page):
            new = "".join(renewed(bash, step) for step in steps(language, block))
            if language == "console":
                text = text.replace(
                    f"```console\n{block}```", f"```console\n{new}```", 1
                )
    page.write_text(text)


def play(bash: Shell, step: Step) -> tuple[str, int]:
    """Run a command; one that looks is run again until it prints what its page shows."""
    end = time.monotonic() + _PATIENCE
    while True:
        printed, status = bash.run(step.command)
        seen = step.shown is None or is_as_shown(step.shown, printed)
        if seen or not is_looking(step.command) or time.monotonic() > end:
            return printed, status
        time.sleep(0.1)


def renewed(bash: Shell, step: Step) -> str:
    if is_looking(step.command):
        time.sleep(_SEEN)
    printed, status = bash.run(step.command)
    if status and not step.fails:
        sys.stderr.write(f"exit status {status}: {step.command}\n{printed}\n")
    shown = "$ " + step.command.replace("\n", "\n> ") + "\n"
    if step.shown and is_as_shown(step.shown, printed):
        printed = step.shown
    return shown + (printed + "\n" if printed else "")


if __name__ == "__main__":
    for page in map(Path, sys.argv[1:]) if sys.argv[1:] else filter(played, PAGES):
        renew(page)
