"""The framing of the control sockets: `rq1 LENGTH PAYLOAD`, both ends.

A frame is a four-byte magic, eight decimal digits, a blank and that many bytes.
A request is `COMMAND ARG`; a reply is JSON. `rq2` differs in the magic only.
"""

from __future__ import annotations

from rq.errors import BadInput

MAGIC = b"rq1 "
MAGIC2 = b"rq2 "
HEAD = 13  # bytes of magic, length and blank
FRAME_LIMIT = 8 * 1024 * 1024  # bytes of payload
REPLY_LIMIT = 64 * 1024 * 1024  # bytes of a reply, which RQ's own clients take


def frame(payload: bytes, magic: bytes = MAGIC) -> bytes:
    """Return `payload` framed."""
    return b"%b%08d %b" % (magic, len(payload), payload)


def request(command: str, arg: bytes = b"") -> bytes:
    """Return the frame that asks `command`; `arg` is JSON or raw text."""
    return frame(command.encode() + b" " + arg)


def split_request(payload: bytes) -> tuple[str, bytes]:
    """Return (command, argument) of a request's payload."""
    word, _, arg = payload.partition(b" ")
    return word.decode("ascii", "replace"), arg


class Frames:
    """Cuts a stream into payloads, however it is chunked."""

    def __init__(self, magic: bytes = MAGIC, limit: int = FRAME_LIMIT) -> None:
        self._magic = magic
        self._limit = limit
        self._buffer = bytearray()
        self._needed = 0  # bytes of the frame that has begun, when its head is there

    @property
    def partial(self) -> bool:
        """Whether the start of a frame waits for its rest."""
        return bool(self._buffer)

    def feed(self, data: bytes) -> list[bytes]:
        """Return the payloads that `data` completes; BadInput on a bad frame."""
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._needed:
                return []  # a large frame in small pieces is not copied for each
            data = bytes(self._buffer)
        payloads: list[bytes] = []
        at = self._needed = 0
        while len(data) - at >= HEAD:
            end = at + HEAD + self._length(data[at : at + HEAD])
            if end > len(data):
                self._needed = end - at
                break
            payloads.append(data[at + HEAD : end])
            at = end
        rest = data[at:]
        self._buffer = bytearray(rest)
        if len(rest) < HEAD and not self._magic.startswith(rest[:4]):
            raise BadInput(f"a frame starts with {self._magic.decode()!r}")
        return payloads

    def _length(self, head: bytes) -> int:
        digits = head[4:12]
        if head[:4] != self._magic or head[12:13] != b" " or not digits.isdigit():
            magic = self._magic.decode().strip()
            raise BadInput(
                f"a frame is `{magic} 00000004 ping`, eight digits of length"
            )
        length = int(digits)
        if length > self._limit:
            raise BadInput(f"a frame holds at most {self._limit} bytes, not {length}")
        return length
