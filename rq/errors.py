"""What can go wrong, as types; the text of each says what to do.

RQError
├── BadInput            the asker's fault: a name, a type, a size
│   └── BadMessage      a field of a message
├── BadConfig           a config file that cannot be used
│   └── CannotRead      it cannot be read just now
├── NoSuchQueue
├── NoSuchMessage
├── WrongState          the message is not where the request needs it
├── Refused             a rule of the moment: DOWN, no space, too many
├── TooOften            somebody asks more often than they may
├── NotKnown            nobody can tell who asks: a login is needed
├── NotPermitted        who asks is known, and may not
├── WrongHost           the request was sent to a name that is not ours
├── OutcomeUnknown      it may or may not have been done
├── Unreachable         nobody answers on a socket
├── Damaged             the journal cannot be believed
├── DiskFailed          a write or a sync failed
├── NotPlain            no plain file, where there should be one (an OSError, too)
└── NoJava              Spark is wanted, and no Java that it can use is here
"""

import errno

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


class RQError(Exception):
    """Base of all errors that RQ raises on purpose."""


class BadInput(RQError):
    """The request itself is wrong."""


class BadMessage(BadInput):
    """A field of a message is wrong or missing."""


class Unread(BadMessage):
    """A message cannot be read for now: of descriptors or memory there are too few."""


class BadConfig(RQError):
    """A config file is missing, unreadable or wrong."""


class CannotRead(BadConfig):
    """A file could not be read just now, which says nothing of what it holds."""


class NoSuchQueue(RQError):
    """There is no queue of that name."""


class NoSuchMessage(RQError):
    """There is no message of that id in the queue."""


class WrongState(RQError):
    """The message is in a state that does not allow the event."""


class Refused(RQError):
    """Right in itself, but not allowed now."""


class TooOften(RQError):
    """Somebody asks more often than they may, and may again after `wait` seconds."""

    def __init__(self, text: str, wait: float) -> None:
        super().__init__(text)
        self.wait = wait


class NotKnown(RQError):
    """Nobody can tell who asks: a login or a token is needed."""


class NotPermitted(RQError):
    """Who asks is known, and has no right to this."""


class WrongHost(RQError):
    """The request was sent to a name that is not ours."""


class OutcomeUnknown(RQError):
    """The answer was lost: it may or may not have been done."""


class Unreachable(RQError):
    """The process that should answer does not."""


class Damaged(RQError):
    """The journal holds a bad line with good ones behind it."""


class DiskFailed(RQError):
    """A write or a sync failed: what was being written is not promised."""


class NotPlain(RQError, OSError):
    """What a script's user can write is a link, a fifo, too large: RQ does not use it.

    It is an OSError as well: whoever expects that a file cannot be opened expects this.
    """

    def __str__(self) -> str:
        text = self.strerror or "it cannot be used"
        return f"{self.filename}: {text}" if self.filename else text


class NoJava(RQError):
    """There is no Java that Spark can use."""


def is_busy(error: OSError) -> bool:
    """Whether a call failed for lack of descriptors or memory: nothing is wrong with the
    disk nor with the message, and the same may succeed a moment later."""
    return error.errno in _LACKS


def not_done(error: OSError) -> str:
    """Return the sentence for whoever asked for what a call has refused."""
    why = error.strerror or error
    if is_busy(error):
        return f"not done, RQ lacks descriptors or memory ({why}); ask again"
    if is_of_disk(error):
        return f"not done, the disk refused it: {why}"
    return f"not done, a file of RQ cannot be used ({why}); the log names it"


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
