"""What can go wrong, as types; the text of each says what to do.

Each type has a `kind`, which goes over sockets and HTTP, and decides the status, the
exit code and whether to ask again. Only `sentences` looks at texts.

RQError                 internal: RQ itself failed
├── BadInput            the asker's fault: a name, a type
│   └── BadMessage      a field of a message
│       ├── TooLarge    it is larger than RQ accepts
│       ├── Torn        the file `msg` is no message
│       └── Unread      the file cannot be read now
│   └── KeyReused       its key came with another request before
├── BadConfig           a config file that cannot be used
│   └── CannotRead      it cannot be read now
├── NoSuchQueue
├── NoSuchMessage
├── WrongState          the message is not where the request needs it
│   ├── AlreadyCommitted
│   ├── TooLate         the deadline of the message has passed
│   ├── NotUnique       an equal message stands in the way of one
│   ├── Changed         the message is no longer as whoever asks has seen it
│   ├── NotWhole        an attachment is not what was sent
│   ├── LeaseOver       a token is no longer the attempt on its message
│   │   └── LeaseForgotten  too long ago to tell what became of it
│   └── WrongOffset     the log of a lease ends elsewhere
├── Refused             a rule forbids it, until somebody changes something
│   ├── Busy            somebody else works on it, or too many ask
│   ├── Down            a person took the queue down
│   ├── Closed          the queue accepts nothing now
│   └── NoRoom          the disk is full
├── TooOften            somebody asks more often than they may
├── NotKnown            nobody can tell who asks: a login is needed
├── NotPermitted        who asks is known, and may not
│   └── OtherQueue      they may, but with other queues
├── WrongHost           the request was sent to a name that is not ours
├── OutcomeUnknown      it may or may not have been done
├── Unreachable         nobody answers on a socket
├── Damaged             the journal cannot be believed
├── DiskFailed          a write or a sync failed
│   └── Displaced       the journal's path leads elsewhere now
├── NotPlain            no plain file, where there should be one (an OSError, too)
└── NoJava              Spark is wanted, and no Java that it can use is here
"""

import errno
from typing import ClassVar

from rq.kinds import Kind

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_OF_DISK = _NO_ROOM | {
    errno.EIO,
    errno.EROFS,
    errno.EUCLEAN,
    errno.EBADMSG,
    errno.ENXIO,
    errno.ENODEV,
    errno.ENOMEDIUM,
    errno.EREMOTEIO,
    errno.ESTALE,
}
_LACKS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})

# What a person has to do whom the system refuses a file or a socket of RQ.
NOT_YOURS = "permission denied: run this as the user whose RQ it is, or as root"


class RQError(Exception):
    """Base of all errors that RQ raises on purpose; itself a failure of RQ."""

    kind: ClassVar[Kind] = Kind.INTERNAL


class BadInput(RQError):
    """The request itself is wrong."""

    kind = Kind.BAD_INPUT


class BadMessage(BadInput):
    """A field of a message is wrong or missing."""


class TooLarge(BadMessage):
    """What was sent is larger than RQ accepts."""

    kind = Kind.TOO_LARGE


class Torn(BadMessage):
    """The file `msg` exists, but cannot be used as a message, for `reason`."""

    kind = Kind.UNREADABLE

    def __init__(self, text: str, reason: str = "") -> None:
        super().__init__(text)
        self.reason = reason or text


class Unread(BadMessage):
    """A message cannot be read now: RQ lacks descriptors or memory."""

    kind = Kind.CANNOT_READ


class KeyReused(BadInput):
    """The key of a request came with another one before."""

    kind = Kind.KEY_REUSED


class BadConfig(RQError):
    """A config file is missing, unreadable or wrong."""

    kind = Kind.BAD_CONFIG


class CannotRead(BadConfig):
    """A file cannot be read now, so nobody knows what it says."""

    kind = Kind.CANNOT_READ


class NoSuchQueue(RQError):
    """There is no queue of that name."""

    kind = Kind.NO_SUCH_QUEUE


class NoSuchMessage(RQError):
    """There is no message of that id in the queue."""

    kind = Kind.NO_SUCH_MESSAGE


class WrongState(RQError):
    """The message is in a state that does not allow the event."""

    kind = Kind.WRONG_STATE


class TooLate(WrongState):
    """The deadline of a message has passed: it is not started any more."""


class NotUnique(WrongState):
    """An equal message stands in the way of one."""

    kind = Kind.NOT_UNIQUE

    def __init__(self, text: str, msg_id: str = "") -> None:
        super().__init__(text)
        self.msg_id = msg_id  # of the one that stands; "": the text tells it


class Changed(WrongState):
    """The message is no longer as whoever asks has seen it."""

    kind = Kind.CHANGED


class AlreadyCommitted(WrongState):
    """The message was committed before: nothing can be attached any more."""

    kind = Kind.ALREADY_COMMITTED


class NotWhole(WrongState):
    """An attachment is not what was sent, or is not on disk: it has to be sent again."""

    kind = Kind.NOT_WHOLE


class LeaseOver(WrongState):
    """A token is no longer the attempt on its message."""

    kind = Kind.LEASE_OVER


class LeaseForgotten(LeaseOver):
    """As above, and nobody remembers what became of it."""

    kind = Kind.LEASE_FORGOTTEN


class WrongOffset(WrongState):
    """The log of a lease ends elsewhere than whoever sends the next bytes believes."""

    kind = Kind.WRONG_OFFSET

    def __init__(self, text: str, have: int = 0) -> None:
        super().__init__(text)
        self.have = have  # bytes that are there


class Refused(RQError):
    """Right in itself, but not allowed now."""

    kind = Kind.REFUSED


class Busy(Refused):
    """Somebody else works on it, or too many ask: ask again later."""

    kind = Kind.BUSY


class Down(Refused):
    """A person took the queue down."""

    kind = Kind.DOWN


class Closed(Refused):
    """The queue accepts nothing now: it stops, is paused, or waits for a decision."""

    kind = Kind.CLOSED


class NoRoom(Refused):
    """The disk is full, or all that may be used of it."""

    kind = Kind.NO_ROOM


class TooOften(RQError):
    """Somebody asks more often than they may, and may again after `wait` seconds."""

    kind = Kind.TOO_OFTEN

    def __init__(self, text: str, wait: float = 1.0) -> None:
        super().__init__(text)
        self.wait = wait


class NotKnown(RQError):
    """Nobody can tell who asks: a login or a token is needed."""

    kind = Kind.LOGIN_NEEDED


class NotPermitted(RQError):
    """Who asks is known, and has no right to this."""

    kind = Kind.NOT_ALLOWED


class OtherQueue(NotPermitted):
    """Who asks may do this, but with other queues than the one it is about."""

    kind = Kind.OTHER_QUEUE


class WrongHost(RQError):
    """The request was sent to a name that is not ours."""

    kind = Kind.WRONG_HOST


class OutcomeUnknown(RQError):
    """The answer was lost: it may or may not have been done."""

    kind = Kind.OUTCOME_UNKNOWN


class Unreachable(RQError):
    """The process that should answer does not."""

    kind = Kind.UNREACHABLE


class Damaged(RQError):
    """The journal holds a bad line with good ones behind it."""

    kind = Kind.DAMAGED


class DiskFailed(RQError):
    """A write or a sync failed: what was being written is not promised."""

    kind = Kind.DISK_FAILED


class Displaced(DiskFailed):
    """The path of a journal no longer leads to the files that its writer has open."""

    kind = Kind.BUSY


class NotPlain(RQError, OSError):
    """A file that a script can write is a link, a fifo, too large: RQ does not use it.

    It is an OSError, too: code that handles files which cannot be opened handles it.
    """

    kind = Kind.UNREADABLE

    def __str__(self) -> str:
        text = self.strerror or "it cannot be used"
        return f"{self.filename}: {text}" if self.filename else text


class NoJava(RQError):
    """There is no Java that Spark can use."""

    kind = Kind.NO_JAVA


def is_busy(error: OSError) -> bool:
    """Whether a call failed for lack of descriptors or memory: nothing is wrong with the
    disk nor with the message, and the same may succeed a moment later."""
    return error.errno in _LACKS


def not_done(error: OSError) -> RQError:
    """Return the failure for whoever asked for what a call has refused."""
    why = error.strerror or error
    failure = of_call(error)
    if failure is Busy:
        return Busy(f"not done, RQ lacks descriptors or memory ({why}); ask again")
    if is_of_disk(error):
        return failure(f"not done, the disk refused it: {why}")
    return failure(f"not done, a file of RQ cannot be used ({why}); the log names it")


def of_call(error: OSError) -> type[RQError]:
    """Return the type of failure that a call means which was refused."""
    if is_busy(error):
        return Busy
    if is_no_room(error):
        return NoRoom
    return DiskFailed if is_of_disk(error) else RQError


def is_of_disk(error: OSError) -> bool:
    """Whether a call failed because of the disk or its file system, and not because of
    whose a file is, or of what lies in its place."""
    return error.errno in _OF_DISK


def is_no_room(error: OSError) -> bool:
    return error.errno in _NO_ROOM


def cause_of(error: OSError) -> str:
    """Return what is wrong, and with which file."""
    why = str(error.strerror or error)
    return f"{why}: {error.filename}" if error.filename else why
