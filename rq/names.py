"""What an id, a queue name, an attachment name and a URL may be; nothing passes unchecked.

Everything that later becomes part of a path goes through here first.
"""

from __future__ import annotations

import functools
import ipaddress
import re
from datetime import UTC, datetime

from rq.errors import BadInput

QUEUE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,127}")
RULE = "letters, digits, _ and -, at most 128, not starting with -"  # of queue names
MSG_ID = re.compile(r"\d{8}\.\d{4}\.\d{2}\.\d{3}\.\d{1,20}", re.ASCII)
# A slash leads out of its directory, and so does a backslash where browsers, or a system
# to which the file is saved, take it for one; a control character or a break of the line
# forges what lists it, a bidirectional one turns it round; half a surrogate pair is no
# UTF-8. A dot begins what is RQ's own (`.up-1`), a dash an option. All else is a name
# that some system gives: blanks, brackets, quotes, decomposed letters, emoji.
ATTACHMENT = re.compile(
    "(?![.-])[^/\\\\\\x00-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e"
    "\\u2066-\\u2069\\ud800-\\udfff]+"
)
# Of the 255 that a file system takes; `.NAME.tmp` may lie beside a file that is replaced.
ATTACHMENT_BYTES = 255 - len("..tmp")
# What the ancestor may be sent: it gives names to a shell.
_ANCESTORS_ATTACHMENT = re.compile(r"\w[\w .+=,@()-]*")
_ANCESTORS_BYTES = 200
REMOTE = re.compile(r"https?://[^/\s]+", re.ASCII)
PARTS = re.compile("[/?#]")  # what parts a dest
_AUTHORITY = re.compile(
    r"(?:\[(?P<six>[0-9a-f:.]+)(?:%[\w.~%-]+)?\]|(?P<name>[^\s\[\]:/?#@\\]+))"
    r"(?::(?P<port>[0-9]{0,5}))?",
    re.ASCII | re.IGNORECASE,
)
URL_LIMIT = 8192  # characters
IDS_PER_MILLISECOND = 1000
_ID_DIGITS = 13  # of the last part of an id that RQ gave, until 2286
_FIRST_OF_RQ = "1600000000000"  # given in 2020, when there was no RQ yet


def queue_name(text: object) -> str:
    """Return `text` if a queue may be called that."""
    if isinstance(text, str) and QUEUE_NAME.fullmatch(text):
        return text
    raise BadInput(f"queue name has invalid characters: {_shortened(text)}; use {RULE}")


def is_queue_name(text: str) -> bool:
    return QUEUE_NAME.fullmatch(text) is not None


def msg_id(text: object) -> str:
    """Return the short id in `text`, without the dot of an acknowledged error."""
    if isinstance(text, str):
        bare = text.removeprefix(".")
        if MSG_ID.fullmatch(bare):
            return bare
    raise BadInput(
        f"not a message id: {_shortened(text)}; it looks like 20260102.0304.05.006.7"
    )


def is_msg_id(text: str) -> bool:
    return MSG_ID.fullmatch(text) is not None


def is_ancestors(short: str) -> bool:
    """Return whether an id was given by the ancestor: its last part is the number of an
    inode, where that of RQ is a START, in epoch seconds of its making, and three digits.
    Inode numbers have up to 20 digits; none in use comes near the 13 of RQ.

    >>> is_ancestors("20250301.1000.00.001.1099511627776")
    True
    >>> is_ancestors("20250301.1000.00.001.1740823200000")
    False
    """
    number = short.rpartition(".")[2]
    return len(number) != _ID_DIGITS or number < _FIRST_OF_RQ


def created(short: str) -> float:
    """Return when an id was given, in epoch seconds.

    >>> created("19700102.0304.05.006.7")
    97445.006
    """
    moment, millis, _ = short.rsplit(".", 2)
    second = _second(moment)
    return 0.0 if second is None else second + int(millis) / 1000


@functools.lru_cache(maxsize=64)
def _second(text: str) -> float | None:
    """Return the second in an id; None: a foreign id that is no date. Those that come one
    after the other are of few."""
    day, clock, second = text.split(".")
    date = int(day[:4]), int(day[4:6]), int(day[6:])
    try:
        when = datetime(*date, int(clock[:2]), int(clock[2:]), int(second), tzinfo=UTC)
    except ValueError:
        return None
    return when.timestamp()


def attachment(text: object) -> str:
    """Return `text` if an attachment may be called that."""
    if isinstance(text, str) and is_attachment(text):
        return text
    raise BadInput(
        f"attachment name has invalid characters: {_shortened(text)}; no slash or "
        "backslash, no control or bidirectional character, no dot or dash at its "
        f"beginning, at most {ATTACHMENT_BYTES} bytes of UTF-8"
    )


def is_attachment(text: str) -> bool:
    return (
        ATTACHMENT.fullmatch(text) is not None
        and len(text.encode()) <= ATTACHMENT_BYTES
    )


def is_ancestors_attachment(text: str) -> bool:
    """Return whether a file of this name may be sent to the ancestor.

    >>> [is_ancestors_attachment(name) for name in ("a (1).txt", "a;b", "`a`", "[a]")]
    [True, False, False, False]
    """
    short = len(text.encode()) <= _ANCESTORS_BYTES
    return short and _ANCESTORS_ATTACHMENT.fullmatch(text) is not None


def is_text(name: str) -> bool:
    """Return whether a name of a file is UTF-8, all bytes of it: else it can stand in no
    JSON."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_remote(dest: str) -> bool:
    """Return whether `dest` names a queue on some host, by URL."""
    return REMOTE.match(dest) is not None


def is_url(value: object) -> bool:
    """Return whether `value` is an address that can be a param of a message."""
    if not isinstance(value, str) or not is_remote(value):
        return False
    return len(value) <= URL_LIMIT and value.isprintable() and " " not in value


def check_dest(dest: str) -> None:
    """BadInput when `dest` is to be the URL of a queue and no host can be reached by it.

    >>> check_dest("mail"), check_dest("https://queues.example.org/q/mail")
    (None, None)
    """
    if dest.startswith(("http://", "https://")) and not is_url(dest):
        raise BadInput(
            f"{_shortened(dest)} is not the URL of a queue: say "
            f"http(s)://HOST[:PORT]/q/NAME, without blanks, at most {URL_LIMIT} characters"
        )


def split_url(text: str) -> tuple[str, str | None]:
    """Return (queue, short id or None) of a message or queue URL or `queue/id`.

    The host part is not looked at: `http://h:1/any/q/NAME/ID` and `q/NAME/ID` are
    the same message of this machine.
    """
    path = text
    if text.startswith("q/"):
        inner = text.removeprefix("q/")
        own = is_msg_id(inner.partition("/")[0].removeprefix("."))  # a queue called q
        path = text if own else inner
    elif "/q/" in text:
        path = text.split("/q/", 1)[1]
    name, _, rest = path.partition("/")
    short = rest.partition("/")[0]
    return queue_name(name), (msg_id(short) if short else None)


def host_port(host: str, port: int | str | None) -> str:
    """Return HOST:PORT as it stands in a URL, and as people write it; without a port that
    of the scheme is meant.

    >>> host_port("10.0.0.2", 7711), host_port("fe80::1", 80), host_port("[::1]", None)
    ('10.0.0.2:7711', '[fe80::1]:80', '[::1]')
    """
    literal = f"[{host}]" if ":" in host and not host.startswith("[") else host
    return literal if port is None else f"{literal}:{port}"


def authority(text: str) -> tuple[str, int | None]:
    """Return host and port of `HOST[:PORT]`, as Host, Origin and URLs have it; the host in
    small letters, without brackets. ValueError: it is something else, as a name that
    only begins with an address in brackets.

    >>> authority("RQ.example:80"), authority("[::1]:80"), authority("[::1]")
    (('rq.example', 80), ('::1', 80), ('::1', None))
    """
    match = _AUTHORITY.fullmatch(text)
    port = int((match and match["port"]) or 0)
    if match is None or port > 65535:
        raise ValueError(f"{text!r:.80} is not HOST or HOST:PORT")
    if match["six"]:
        ipaddress.IPv6Address(match["six"])
    host = text[1:].partition("]")[0] if match["six"] else match["name"]
    return host.lower(), port or None


def _shortened(text: object) -> str:
    whole = repr(text)
    return whole if len(whole) <= 80 else whole[:77] + "..."


class IdSource:
    """Gives ids `YYYYMMDD.HHMM.SS.mmm.N`, never one twice.

    N = START * 1000 + a counter of three digits. START is given to one process only
    (it is durable in the journal before the first id leaves), and within a process
    the time part never goes back: it is pushed on by a millisecond whenever the
    counter comes round. So neither a clock that jumps nor a crash re-issues an id.
    """

    def __init__(self, start: int) -> None:
        self._base = start * IDS_PER_MILLISECOND
        self._counter = -1
        self._millis = 0
        self._left = 0
        self._prefix = ""

    def next(self, now: float) -> str:
        """Return a new id; `now` is epoch seconds."""
        millis = int(now * 1000)
        self._left -= 1
        if millis > self._millis:
            self._set(millis)
        elif self._left < 0:
            self._set(self._millis + 1)
        self._counter = (self._counter + 1) % IDS_PER_MILLISECOND
        return f"{self._prefix}{self._base + self._counter}"

    def _set(self, millis: int) -> None:
        self._millis = millis
        self._left = IDS_PER_MILLISECOND - 1
        when = datetime.fromtimestamp(millis // 1000, UTC)
        self._prefix = f"{when:%Y%m%d.%H%M.%S}.{millis % 1000:03d}."
