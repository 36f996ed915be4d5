"""The kinds of failures: programs go by the kind, whatever the sentence says.

A status of HTTP, an exit code, and whether to ask again follow from the kind alone:
`web.statuses.STATUS_OF`, `cli.EXIT_OF`, `relay.answers.HEARD_OF`, `PASSING` here.
"""

from enum import StrEnum


class Kind(StrEnum):
    """What kind of failure it is; other programs know these words."""

    BAD_INPUT = "bad_input"  # the request is wrong, whenever it is sent
    KEY_REUSED = "key_reused"  # its key came with another request before
    TOO_LARGE = "too_large"  # what was sent is larger than RQ accepts
    NO_SUCH_QUEUE = "no_such_queue"  # there is no queue of that name
    NO_SUCH_MESSAGE = (
        "no_such_message"  # no message, transaction, debt or timer so called
    )
    WRONG_STATE = "wrong_state"  # it is not in the state that the request needs
    NOT_UNIQUE = "not_unique"  # an equal message stands in its way
    CHANGED = "changed"  # it is no longer as whoever asks has seen it
    ALREADY_COMMITTED = "already_committed"  # so nothing can be attached any more
    LEASE_OVER = "lease_over"  # the token is no longer the attempt on its message
    LEASE_FORGOTTEN = "lease_forgotten"  # it is too long ago to tell what became of it
    WRONG_OFFSET = "wrong_offset"  # of a log: go on from where it ends
    NOT_WHOLE = "not_whole"  # an attachment is not what was sent: send it again
    UNREADABLE = "unreadable"  # a file exists and cannot be used: damaged, a link
    REFUSED = "refused"  # a rule forbids it, until somebody changes something
    BUSY = "busy"  # somebody else works on it, or too many ask at once
    DOWN = "down"  # a person took the queue down
    CLOSED = "closed"  # the queue accepts nothing now; the text says why
    NO_ROOM = "no_room"  # the disk is full
    DISK_FAILED = "disk_failed"  # a write or a sync failed, and nothing was done
    CANNOT_READ = "cannot_read"  # a file cannot be read now
    TOO_OFTEN = "too_often"  # the client asks too often, and may ask again later
    LOGIN_NEEDED = "login_needed"  # nobody can tell who asks
    NOT_ALLOWED = "not_allowed"  # who asks is known, and has no right to this
    OTHER_QUEUE = "other_queue"  # who asks may do this, but with other queues
    WRONG_HOST = "wrong_host"  # the request was sent to a name that is not ours
    UNREACHABLE = "unreachable"  # nobody answers: nothing was asked
    OUTCOME_UNKNOWN = "outcome_unknown"  # the answer was lost: it may have been done
    BAD_CONFIG = "bad_config"  # a config file is missing or wrong
    DAMAGED = "damaged"  # a journal or a history cannot be believed
    NO_JAVA = "no_java"  # Spark is wanted, and there is no Java for it
    INTERNAL = "internal"  # RQ itself failed; its log says more


# The same request may succeed later, without being changed.
PASSING = frozenset(
    {
        Kind.BUSY,
        Kind.DOWN,
        Kind.CLOSED,
        Kind.NO_ROOM,
        Kind.DISK_FAILED,
        Kind.CANNOT_READ,
        Kind.TOO_OFTEN,
        Kind.UNREACHABLE,
        Kind.OUTCOME_UNKNOWN,
        Kind.INTERNAL,
    }
)

# How HTTP tells the kind of a failure: in a header, and as a problem's type (RFC 9457).
HEADER = "X-RQ-Kind"
URN = "urn:rq:"

_WORDS = frozenset(Kind)


def kind_of(word: object) -> Kind | None:
    """Return the kind that a word means; None for one of a newer RQ, or for none.

    >>> kind_of("busy"), kind_of("no such word"), kind_of(None)
    (<Kind.BUSY: 'busy'>, None, None)
    """
    return Kind(word) if isinstance(word, str) and word in _WORDS else None
