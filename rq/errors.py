"""What can go wrong, as types; the text of each says what to do.

RQError
├── BadInput            the asker's fault: a name, a type, a size
│   └── BadMessage      a field of a message
├── BadConfig           a config file that cannot be used
├── NoSuchQueue
├── NoSuchMessage
├── WrongState          the message is not where the request needs it
├── Refused             a rule of the moment: DOWN, no space, too many
├── OutcomeUnknown      it may or may not have been done
├── Unreachable         nobody answers on a socket
├── Damaged             the journal cannot be believed
├── DiskFailed          a write or a sync failed
└── NoJava              Spark is wanted, and no Java that it can use is here
"""


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


class NoSuchQueue(RQError):
    """There is no queue of that name."""


class NoSuchMessage(RQError):
    """There is no message of that id in the queue."""


class WrongState(RQError):
    """The message is in a state that does not allow the event."""


class Refused(RQError):
    """Right in itself, but not allowed now."""


class OutcomeUnknown(RQError):
    """The answer was lost: it may or may not have been done."""


class Unreachable(RQError):
    """The process that should answer does not."""


class Damaged(RQError):
    """The journal holds a bad line with good ones behind it."""


class DiskFailed(RQError):
    """A write or a sync failed: what was being written is not promised."""


class NoJava(RQError):
    """There is no Java that Spark can use."""
