"""Descriptors that a loop watches until they are closed.

The kernel forgets a descriptor itself when the last one of its file is closed. A loop tells
it so before, once for each, and looks for what it was, once more when it begins: most of
what watching a script costs. `Loop` does neither; only `watch` and `close` make use of
that, so nothing stays watched that no callback belongs to.
"""

from __future__ import annotations

import asyncio
import select
import selectors
from collections.abc import Callable
from selectors import SelectorKey
from typing import Any

from rq.proc.descriptors import close_all

_Base = getattr(selectors, "EpollSelector", selectors.DefaultSelector)
_READABLE: int = getattr(select, "EPOLLIN", 0)  # 0: there is no such kernel call here


class _Selector(_Base):  # type: ignore[misc, valid-type]
    """As the one of the library, with a short way for a number that the kernel has just
    given, and for one that is given back next."""

    _fd_to_key: dict[int, SelectorKey]
    _selector: Any  # of the kernel

    def watch(self, fd: int, handle: asyncio.Handle) -> None:
        """Call a handle whenever there is something to read."""
        assert fd not in self._fd_to_key, "it was closed, and is still looked at"
        self._selector.register(fd, _READABLE)
        self._fd_to_key[fd] = SelectorKey(fd, fd, selectors.EVENT_READ, (handle, None))

    def forget(self, fd: int) -> None:
        """Call nothing any more; the kernel hears of it when it is closed."""
        key = self._fd_to_key.pop(fd, None)
        for handle in () if key is None else key.data:
            if handle is not None:
                handle.cancel()


class Loop(asyncio.SelectorEventLoop):
    """A loop to run a queue, or what else starts processes by the thousand."""

    def __init__(self) -> None:
        self.ends = _Selector()
        super().__init__(self.ends)


def watch(loop: asyncio.AbstractEventLoop, fd: int, call: Callable[[], None]) -> None:
    """Look at a descriptor that was just opened."""
    if _READABLE and isinstance(loop, Loop):
        loop.ends.watch(fd, asyncio.Handle(call, (), loop))
    else:
        loop.add_reader(fd, call)


def close(loop: asyncio.AbstractEventLoop, *fds: int) -> None:
    """Close descriptors that a loop looks at and that no other process has."""
    if _READABLE and isinstance(loop, Loop):
        for fd in fds:
            loop.ends.forget(fd)
    else:
        for fd in fds:
            loop.remove_reader(fd)
    close_all(fds)
