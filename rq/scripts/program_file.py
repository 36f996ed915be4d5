"""The check whether the file of a program can be started, and if not, why and what to
do."""

from __future__ import annotations

import errno
import os
import stat

_LONGEST_FIRST = 256  # bytes of a first line that the kernel reads


def unfit(program: str) -> str:
    """Return why the file of a program cannot be started, and what to do; "" when it looks
    as if it could, and for what is looked for on the PATH."""
    if "/" not in program:
        return ""
    try:
        mode = os.stat(program).st_mode
    except PermissionError:
        return "a directory above it is closed to RQ's user"
    except OSError:
        return "there is no such file"
    if not stat.S_ISREG(mode):
        return "it is not a regular file"
    if not os.access(program, os.X_OK):
        if mode & 0o111:
            return f"RQ's user may not execute it: chmod a+rx {program}"
        return f"it is not executable: chmod +x {program}"
    return _unfit_interpreter(program)


def _unfit_interpreter(program: str) -> str:
    """Return what is wrong with the first line of a script."""
    try:
        # Its user may put a fifo into its place at any moment.
        fd = os.open(program, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(fd, "rb") as file:
            first = file.readline(_LONGEST_FIRST)
    except OSError:  # it may be started and not be read
        return ""
    if not first.startswith(b"#!"):
        return ""
    name = first[2:].replace(b"\t", b" ").strip(b" \n").partition(b" ")[0]
    if first.endswith(b"\r\n"):
        return f"its lines end as on Windows: sed -i 's/\\r$//' {program}"
    if name and os.path.exists(name):
        return ""
    return f"its first line names {os.fsdecode(name) or 'no interpreter'}, which is not there"


def why_not(program: str, error: OSError) -> str:
    """Return why a program was not started, for which the kernel gave `error`."""
    if why := unfit(program):
        return why
    said = str(error.strerror or error)
    if error.errno == errno.ENOEXEC:
        return (
            f"{said}, its first line names no interpreter: let it begin with #!/bin/sh"
        )
    return said
