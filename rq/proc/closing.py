"""Descriptors that a loop watches until they are closed.

The kernel forgets a descriptor itself when the last one of its file is closed. A loop tells
it so before, once for each: half of what watching a script costs. `Loop` does not; only
`close` makes use of that, so nothing stays watched that no callback belongs to.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from selectors import SelectorKey
from typing import Any

from rq.proc.descriptors import close_all

_Base = getattr(selectors, "EpollSelector", selectors.DefaultSelector)


class _Selector(_Base):  # type: ignore[misc, valid-type]
    """As the one of the library; what is closed next is not taken back first."""

    closing = False

    def unregister(self, fileobj: Any) -> SelectorKey:
        if self.closing:
            return selectors._BaseSelectorImpl.unregister(self, fileobj)
        return super().unregister(fileobj)  # type: ignore[no-any-return]


class Loop(asyncio.SelectorEventLoop):
    """A loop to run a queue, or what else starts processes by the thousand."""

    def __init__(self) -> None:
        self._ends = _Selector()
        super().__init__(self._ends)

    def watch(self, fd: int, call: Callable[[], None]) -> None:
        """As `add_reader`, of a descriptor that is not looked at yet: the loop of the
        library looks for it first, and learns by an exception that it is not there."""
        handle = asyncio.Handle(call, (), self)
        self._ends.register(fd, selectors.EVENT_READ, (handle, None))

    def forget_readers(self, fds: tuple[int, ...]) -> None:
        """Look no more at descriptors that nobody else has and that are closed next."""
        self._ends.closing = hasattr(selectors, "EpollSelector")
        for fd in fds:
            self.remove_reader(fd)
        self._ends.closing = False


def watch(loop: asyncio.AbstractEventLoop, fd: int, call: Callable[[], None]) -> None:
    """Look at a descriptor that was just opened."""
    if isinstance(loop, Loop):
        loop.watch(fd, call)
    else:
        loop.add_reader(fd, call)


def close(loop: asyncio.AbstractEventLoop, *fds: int) -> None:
    """Close descriptors that a loop looks at and that no other process has."""
    if isinstance(loop, Loop):
        loop.forget_readers(fds)
    else:
        for fd in fds:
            loop.remove_reader(fd)
    close_all(fds)
