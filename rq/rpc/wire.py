"""The framing of the control sockets: `rq1 LENGTH PAYLOAD`, both ends.

A frame is a four-byte magic, eight decimal digits, a blank and that many bytes.
A request is `COMMAND ARG`; a reply is JSON. `rq2` differs in the magic only.
A failure is `["fail", TEXT]`; behind the request `kinds`, for the rest of its
connection, `["fail", TEXT, KIND]`, of not_unique with the id of the message that stands.
"""

from __future__ import annotations

from rq import errors
from rq.errors import BadInput, RQError, TooLarge
from rq.kinds import Kind, kind_of
from rq.words import sentences

MAGIC = b"rq1 "
MAGIC2 = b"rq2 "
HEAD = 13  # bytes of magic, length and blank
FRAME_LIMIT = 8 * 1024 * 1024  # bytes of payload
REPLY_LIMIT = 64 * 1024 * 1024  # bytes of a reply, which RQ's own clients take
KINDS = "kinds"  # the command that asks for the kinds of failures
_FAIL = "fail"
FAILED = b'["fail",'  # how the reply of an owner begins that has done nothing

_TYPES: tuple[type[RQError], ...] = (
    RQError,
    BadInput,
    errors.KeyReused,
    TooLarge,
    errors.NoSuchQueue,
    errors.NoSuchMessage,
    errors.WrongState,
    errors.LeaseOver,
    errors.LeaseForgotten,
    errors.WrongOffset,
    errors.NotUnique,
    errors.Changed,
    errors.AlreadyCommitted,
    errors.NotWhole,
    errors.Torn,
    errors.Refused,
    errors.Busy,
    errors.Down,
    errors.Closed,
    errors.NoRoom,
    errors.DiskFailed,
    errors.Unread,
    errors.TooOften,
    errors.NotKnown,
    errors.NotPermitted,
    errors.OtherQueue,
    errors.WrongHost,
    errors.Unreachable,
    errors.OutcomeUnknown,
    errors.BadConfig,
    errors.Damaged,
    errors.NoJava,
)
_TYPE_OF: dict[Kind, type[RQError]] = {error.kind: error for error in _TYPES}


def frame(payload: bytes, magic: bytes = MAGIC) -> bytes:
    """Return `payload` framed."""
    return b"%b%08d %b" % (magic, len(payload), payload)


def request(command: str, arg: bytes = b"") -> bytes:
    """Return the frame that asks `command`; `arg` is JSON or raw text."""
    return frame(command.encode() + b" " + arg)


def failure(error: RQError, with_kind: bool) -> list[str]:
    """Return the reply to a request that failed."""
    kind = [str(error.kind)] if with_kind else []
    if with_kind and isinstance(error, errors.NotUnique) and error.msg_id:
        kind.append(error.msg_id)
    return [_FAIL, str(error), *kind]


def is_failure(reply: object) -> bool:
    """Return whether a reply says that nothing was done."""
    return isinstance(reply, list) and len(reply) > 1 and reply[0] == _FAIL


def failure_in(reply: object, about: str = "") -> RQError | None:
    """Return the failure that a reply tells of; None when it tells of none. `about`
    goes before its text."""
    if not isinstance(reply, list) or not is_failure(reply):
        return None
    text, *kinds = reply[1:]
    kind = kind_of(kinds[0]) if kinds else sentences.kind_of(str(text))
    if kind is Kind.NOT_UNIQUE and len(kinds) > 1:
        return errors.NotUnique(f"{about}{text}", str(kinds[1]))
    return error_of(kind or Kind.REFUSED, f"{about}{text}")


def error_of(kind: Kind, text: str) -> RQError:
    """Return a failure that somebody else has told of."""
    return _TYPE_OF[kind](text)


def asks_kinds(payload: bytes) -> bool:
    """Return whether a request of the supervisor's or the timers' socket is `kinds`."""
    return payload.replace(b" ", b"") in (b"kinds", b'["kinds",null]')


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
            raise TooLarge(f"a frame holds at most {self._limit} bytes, not {length}")
        return length
