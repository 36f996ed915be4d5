"""Completion in real shells, and man pages that real programs read without a warning."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
from pathlib import Path

import pytest
from harness.packages import build
from harness.waiting import wait_until

from rq.cli import verbs

# What is typed, and a word that completes it; of an empty list no shell knows better.
TYPED = (
    ("rq stat", "status"),
    ("rq queue pau", "pause"),
    ("rq send --prio", "--priority"),
    ("rq timer ack", "ack"),
    ("rq spark doc", "doctor"),
    ("rq ls mail", "mailing"),
)


@pytest.fixture(scope="module")
def share(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("manual")
    build("manual", place)
    return place / "share"


@pytest.fixture(scope="module")
def env(tmp_path_factory) -> dict[str, str]:
    """An environment that names a root with a queue."""
    root = tmp_path_factory.mktemp("root")
    (root / "queue/mailing").mkdir(parents=True)
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(root),
        "RQ_ROOT": str(root),
        "TERM": "dumb",
        "LANG": "C.UTF-8",
    }


@pytest.mark.parametrize(("typed", "word"), TYPED)
def test_bash_completes(share, env, typed, word):
    script = share / "bash-completion/completions/rq"
    ask = """
    . "$1"; shift
    COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
    set -- $(complete -p rq)
    while [ "$1" != -F ]; do shift; done
    "$2"
    printf '%s\\n' "${COMPREPLY[@]}"
    """
    asked = subprocess.run(
        ["bash", "--norc", "-c", ask, "bash", script, *typed.split()],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert word in asked.stdout.split()
    assert asked.stderr == ""


@pytest.mark.parametrize(("typed", "word"), TYPED)
def test_fish_completes(share, env, typed, word):
    script = share / "fish/vendor_completions.d/rq.fish"
    asked = subprocess.run(
        ["fish", "--no-config", "-c", f"source '{script}'; complete -C '{typed}'"],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert word in [line.split("\t")[0] for line in asked.stdout.splitlines()]


@pytest.mark.parametrize(("typed", "word"), TYPED)
def test_zsh_completes(share, env, typed, word):
    """In a terminal, as zsh completes nowhere else: the word is typed to its end."""
    line, _, last = typed.rpartition(" ")
    start = [f"fpath=({share}/zsh/site-functions $fpath)", "autoload -U compinit"]
    start += ["compinit -u -D", "PS1='ready> '", ""]
    Path(env["HOME"], ".zshrc").write_text("\n".join(start))
    with terminal(["zsh", "-d", "-i"], env) as (ask, seen):
        wait_until(lambda: "ready> " in seen())
        ask(f"{line} {last}\t")
        wait_until(lambda: f"{line} {word}" in seen(), 10)


@contextlib.contextmanager
def terminal(command, env):
    """Run a program in a terminal; give what types into it, and what shows all it wrote."""
    pid, fd = pty.fork()
    if pid == 0:
        os.execvpe(command[0], command, env)
    os.set_blocking(fd, False)
    written = bytearray()

    def seen() -> str:
        with contextlib.suppress(BlockingIOError):
            written.extend(os.read(fd, 65536))
        return written.decode(errors="replace")

    try:
        yield lambda text: os.write(fd, text.encode()), seen
    finally:
        os.close(fd)
        os.waitpid(pid, 0)


def test_each_verb_has_a_page(share):
    pages = {path.name for path in (share / "man/man1").iterdir()}
    assert {f"rq-{verb}.1" for verb in verbs.VERBS} < pages
    main = (share / "man/man1/rq.1").read_text()
    for verb, (_, text) in verbs.VERBS.items():
        assert verb in main
        assert text.split()[0] in main


def test_man_reads_each_page(share):
    for page in (share / "man/man1").iterdir():
        lint = ["mandoc", "-T", "lint", "-W", "error", page]
        assert subprocess.run(lint, capture_output=True, check=False).stdout == b""
