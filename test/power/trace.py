"""What a program did to the disk: its system calls, recorded by strace, as values.

strace sees what the kernel was asked, whoever asked it: a write that goes past
`rq.files.durable` is in the recording like any other, and so are threads, children and the
programs that they start.
"""

from __future__ import annotations

import codecs
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

# All that changes a file system, what tells when an answer left, and which threads share
# their descriptors.
CALLS = (
    "open,openat,?openat2,creat,write,pwrite64,writev,pwritev,?pwritev2,sendfile,"
    "copy_file_range,splice,truncate,ftruncate,fallocate,rename,renameat,renameat2,"
    "link,linkat,unlink,unlinkat,mkdir,mkdirat,rmdir,symlink,symlinkat,mknod,mknodat,"
    "chmod,fchmod,fchmodat,?fchmodat2,fsync,fdatasync,syncfs,sync,sync_file_range,"
    "msync,ioctl,sendto,sendmsg,recvmsg,clone,?clone3,?fork,?vfork"
)
MARKS = 900  # the descriptor that a story writes its marks to
LIMIT = 600.0  # seconds for a story


@dataclass(frozen=True, slots=True)
class Word:
    """An argument: a bare word, or bytes, or a descriptor with what it is open on."""

    text: str
    data: bytes | None = None
    path: str | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """A system call that has returned; `began` and `ended` order it among all."""

    pid: int
    name: str
    words: tuple[Word, ...]
    result: int
    began: int
    ended: int
    opened: str | None = None  # the path of the descriptor that it returned
    injected: bool = False


@dataclass(slots=True)
class Recorded:
    """A program that has ended: what it did, and how it ended."""

    calls: list[Call]
    status: int
    output: str = field(repr=False)


def record(
    program: Path, *words: object, scratch: Path, inject: tuple[str, ...] = ()
) -> Recorded:
    """Run a Python program under strace; `inject` are faults in strace's own words."""
    if shutil.which("strace") is None:
        pytest.skip("power cuts need strace -> apt-get install strace")
    log = scratch / "strace"
    tracer = ["strace", "-f", "-qq", "-y", "--seccomp-bpf", "-s", "4194304"]
    tracer += ["-o", str(log), "-e", f"trace={CALLS}"]
    for one in inject:
        tracer += ["-e", f"inject={one}"]
    here = os.pathsep.join(str(one) for one in Path(__file__).resolve().parents[1:3])
    known = {name: text for name, text in os.environ.items() if name[:3] != "RQ_"}
    ran = subprocess.run(
        [*tracer, sys.executable, program, *map(str, words)],
        env=known | {"PYTHONPATH": here, "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    if "PTRACE" in ran.stdout and "not permitted" in ran.stdout:
        pytest.skip("strace may not trace here -> sudo ./test/run_tests.sh power")
    with log.open("rb") as lines:
        return Recorded(list(calls(lines)), ran.returncode, ran.stdout)


def calls(lines: Iterator[bytes]) -> Iterator[Call]:
    """Read strace's lines; a call is given when it has returned."""
    waiting: dict[int, tuple[bytes, int]] = {}
    for number, line in enumerate(lines):
        pid_text, _, text = line.rstrip(b"\n").partition(b" ")
        pid, text, began = int(pid_text), text.lstrip(), number
        if text.startswith((b"---", b"+++")):
            continue
        if text.endswith(b"<unfinished ...>"):
            waiting[pid] = (text[: -len(b"<unfinished ...>")], number)
            continue
        if text.startswith(b"<... "):
            before, began = waiting.pop(pid)
            text = before + text.partition(b"resumed>")[2]
        if (found := _call(pid, text, began, number)) is not None:
            yield found


_RESULT = re.compile(rb'\)\s+= (-?\d+|\?)([^"]*)$')
_WORDS = re.compile(
    rb'"(?P<data>(?:[^"\\]|\\.)*)"(?P<cut>\.\.\.)?'
    rb"|(?P<fd>AT_FDCWD|-?\d+)<(?P<path>[^>]*)>(?P<deleted>\(deleted\))?"
    rb"|(?P<bare>[^\s,()\[\]{}\"<>]+)",
    re.DOTALL,
)


def _call(pid: int, text: bytes, began: int, ended: int) -> Call | None:
    result = _RESULT.search(text)
    if result is None or result[1] == b"?":  # it never returned
        return None
    name, _, inside = text[: result.start()].partition(b"(")
    opened = re.search(rb"<([^>]*)>", result[2])
    return Call(
        pid,
        name.decode(),
        tuple(_word(one) for one in _WORDS.finditer(inside)),
        int(result[1]),
        began,
        ended,
        None if opened is None else _path(opened[1]),
        b"(INJECTED)" in result[2],
    )


def _word(found: re.Match[bytes]) -> Word:
    if found["data"] is not None:
        assert found["cut"] is None, "strace has cut what was written"
        data, _ = codecs.escape_decode(found["data"])
        return Word("", data=data)
    if found["fd"] is not None:
        path = _path(found["path"])
        gone = found["deleted"] is not None
        return Word(found["fd"].decode(), path=f"{path} (deleted)" if gone else path)
    return Word(found["bare"].decode())


def _path(text: bytes) -> str:
    return os.fsdecode(codecs.escape_decode(text)[0])
