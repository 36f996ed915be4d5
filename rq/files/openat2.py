"""The system call openat2, for which Python has no function."""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import sys

NO_MOUNTS = 0x01  # RESOLVE_NO_XDEV: lead into no other file system
NO_MAGIC_LINKS = 0x02  # follow none of the links of /proc
INSIDE = NO_MAGIC_LINKS | 0x04 | 0x08  # follow no link, stay below the directory
HERE = -100  # AT_FDCWD
_NUMBER = 437  # of the call, the same on every machine
_TRIES = 16  # of a call that was interrupted
# As `os.fsencode`, which asks first what it was given.
_ENCODING, _ERRORS = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()


class How(ctypes.Structure):
    """How the file is opened: the flags of open, and which links may be followed."""

    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


_HOW_BYTES = ctypes.sizeof(How)

_libc = ctypes.CDLL(None, use_errno=True)
_syscall = getattr(_libc, "syscall", None)
if _syscall is not None:
    _syscall.restype = ctypes.c_long
    _syscall.argtypes = (
        ctypes.c_long,
        ctypes.c_int,
        ctypes.c_char_p,
        ctypes.POINTER(How),
        ctypes.c_size_t,
    )


@functools.lru_cache
def how(flags: int, mode: int, resolve: int = INSIDE) -> How:
    """Return the struct for a call, which only reads it."""
    return How(flags, mode, resolve)


def call(path: str, how: How, dir_fd: int) -> int:
    """Return a descriptor; tries again when the call was interrupted."""
    assert _syscall is not None
    name, code = path.encode(_ENCODING, _ERRORS), errno.EAGAIN
    for _ in range(_TRIES):
        fd = _syscall(_NUMBER, dir_fd, name, how, _HOW_BYTES)
        if fd >= 0:
            return int(fd)
        code = ctypes.get_errno()
        if code not in (errno.EINTR, errno.EAGAIN):
            break
    raise OSError(code, os.strerror(code), path)


def is_known() -> bool:
    """Whether this kernel knows the call, and no filter of a container refuses it."""
    if _syscall is None or os.uname().sysname != "Linux":
        return False
    directory = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
    fd = os.open("/", directory)
    try:
        os.close(call(".", how(os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, 0), fd))
    except OSError:
        return False
    finally:
        os.close(fd)
    return True
