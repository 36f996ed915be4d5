"""What waits to be sent over one link, bounded. Pure."""

from __future__ import annotations

from collections import deque

from rq.broker.bus.frames import PIECE
from rq.resp import BULK_LIMIT

MOST_BYTES = 2 * BULK_LIMIT  # that wait; one message may be half of it
MOST_MESSAGES = 100_000
_MOST_URGENT = 1000
WHOLE, MORE, LAST = b"\0", b"\1", b"\2"  # what a payload is of its message
_ROOM = PIECE - 1


class Outbox:
    """Messages in their order, in pieces, between which urgent ones may go."""

    def __init__(self) -> None:
        self.lost = 0  # messages for which there was no room
        self.bytes = 0
        self._urgent: deque[bytes] = deque()
        self._messages: deque[bytes] = deque()
        self._sent = 0  # bytes of the first message

    def put(self, data: bytes, *, urgent: bool = False) -> None:
        """Take a message, if there is room; an urgent one is short."""
        lane = self._urgent if urgent else self._messages
        most = _MOST_URGENT if urgent else MOST_MESSAGES
        if len(lane) >= most or self.bytes + len(data) > MOST_BYTES:
            self.lost += 1
            return
        self.bytes += len(data)
        lane.append(data)

    def __len__(self) -> int:
        return len(self._urgent) + len(self._messages)

    def next(self) -> bytes | None:
        """Return the next payload; None: nothing waits."""
        if self._urgent:
            data = self._urgent.popleft()
            self.bytes -= len(data)
            return WHOLE + data
        if not self._messages:
            return None
        data = self._messages[0]
        piece = data[self._sent : self._sent + _ROOM]
        is_first, self._sent = self._sent == 0, self._sent + len(piece)
        if self._sent < len(data):
            return MORE + piece
        self._messages.popleft()
        self.bytes -= len(data)
        self._sent = 0
        return (WHOLE if is_first else LAST) + piece
