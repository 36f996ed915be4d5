"""The log of an attempt on its way to the queue: bytes at offsets, as the file grows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from rq.work.holding import Result

Send = Callable[[int, bytes], Awaitable[Result]]  # sends bytes at an offset
Read = Callable[[int], bytes]  # returns the next bytes of the file from an offset on
TRIES = 5  # answers in a row that take nothing


class LogSender:
    """Sends what a script prints."""

    def __init__(self, send: Send, read: Read, begin: int = 0, sent: int = 0) -> None:
        """`begin`: where the output begins in the file; `sent`: bytes that have
        arrived."""
        self._send = send
        self._read = read
        self.begin_at = begin
        self.end_at: int | None = None
        self.sent = sent
        self._busy = asyncio.Lock()
        self._failures = 0

    def begin(self, at: int) -> None:
        """The output begins at a place of the file."""
        self.begin_at = at

    def end(self, at: int) -> None:
        """The output ends at a place of the file, whatever is written behind it."""
        self.end_at = at

    async def flush(self) -> None:
        """Send what is there; RQError when its queue will never take it."""
        async with self._busy:
            while self._failures < TRIES and self._left != 0:
                data = self._read(self.begin_at + self.sent)
                if self._left is not None:
                    data = data[: self._left]
                if not data:
                    return
                await self._send_piece(data)

    @property
    def _left(self) -> int | None:
        """How many bytes are not sent yet; None while more may come."""
        if self.end_at is None:
            return None
        return max(0, self.end_at - self.begin_at - self.sent)

    async def _send_piece(self, data: bytes) -> None:
        result = await self._send(self.sent, data)
        have = result.have if result.have is not None else self.sent + len(data)
        if not result.ok and result.have is None:
            self._failures = TRIES  # the token is no longer the attempt
        elif have == self.sent:
            self._failures += 1
        else:
            self._failures = 0
            self.sent = have
