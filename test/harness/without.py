"""A kernel that refuses some calls, to one program and all that it starts.

`refusing(inotify="EMFILE")` is what goes before a command. It installs a filter of
seccomp and becomes the command: whatever library asks the kernel gets that error.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys

_OLD = {"x86_64": (253, 294)}  # inotify_init and inotify_init1
_NUMBERS = {
    "inotify": _OLD.get(os.uname().machine, (26,)),
    "pidfd_open": (434,),
    "openat2": (437,),
}
_LOAD_NUMBER = (0x20, 0, 0, 0)  # the number of the call, at the start of its facts
_IS, _RETURN = 0x15, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NO_NEW_PRIVS, _SECCOMP, _FILTER = 38, 22, 2


def refusing(**calls: str) -> list[str]:
    """Return the words before a command that is to be refused these calls."""
    told = [f"{name}={code}" for name, code in calls.items()]
    return [sys.executable, __file__, *told, "--"]


class _Program(ctypes.Structure):
    _fields_ = (("count", ctypes.c_ushort), ("steps", ctypes.c_void_p))


def _install(refused: list[tuple[int, int]]) -> None:
    steps = [_LOAD_NUMBER]
    for number, code in refused:
        steps += [(_IS, 0, 1, number), (_RETURN, 0, 0, _ERRNO | code)]
    steps.append((_RETURN, 0, 0, _ALLOW))
    packed = ctypes.create_string_buffer(
        b"".join(struct.pack("=HBBI", *step) for step in steps)
    )
    program = _Program(len(steps), ctypes.addressof(packed))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    for call in (
        (_NO_NEW_PRIVS, 1, 0, 0, 0),
        (_SECCOMP, _FILTER, ctypes.byref(program), 0, 0),
    ):
        if prctl(*call):
            raise OSError(ctypes.get_errno(), "the filter cannot be installed")


def main(words: list[str]) -> None:
    at = words.index("--")
    told = [word.partition("=") for word in words[:at]]
    _install(
        [
            (number, getattr(errno, code))
            for name, _, code in told
            for number in _NUMBERS[name]
        ]
    )
    os.execvp(words[at + 1], words[at + 1 :])


if __name__ == "__main__":
    main(sys.argv[1:])
