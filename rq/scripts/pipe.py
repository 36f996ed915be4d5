"""The pipe between a script and its queue: lines in, reports out.

A script writes `WORD TEXT\\n` to descriptor 3; the only answer, to `dup`, comes on
descriptor 4. Both ends take the words from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from rq.errors import BadInput
from rq.message.limits import Over

LINE_LIMIT = 64 * 1024  # bytes; the rest of a longer line is dropped
NAME_LIMIT = 4096  # bytes of a NAME that messages wait for


class Verb(StrEnum):
    """What a script can say."""

    RUN = "run"
    DONE = "done"
    RELAYED = "relayed"
    ERR = "err"
    RESEND = "resend"
    LATER = "later"
    FORWARD = "forward"
    DUP = "dup"
    RESULT = "result"


SINGLE = b"msg"  # how a line about one message of a batch begins
ALIASES = {"fail": Verb.ERR, "fails": Verb.ERR}
_WORDS = {**{str(verb): verb for verb in Verb}, **ALIASES}
COMPLETIONS = frozenset(
    {Verb.DONE, Verb.RELAYED, Verb.ERR, Verb.RESEND, Verb.LATER, Verb.FORWARD}
)


@dataclass(frozen=True, slots=True)
class Report:
    """A line from a script; `verb` is None when its first word is not known."""

    verb: Verb | None
    text: str


@dataclass(frozen=True, slots=True)
class Resend:
    """`resend SECONDS-REASON`, or `later`, which does not count."""

    delay: float
    reason: str
    waits_for: str | None = None  # `later` alone: a name of it


@dataclass(frozen=True, slots=True)
class Dup:
    """`dup SECONDS-FLAG-DEST`."""

    delay: float
    dest: str


class Lines:
    """Cuts a stream into lines, however it is chunked."""

    def __init__(self) -> None:
        self._part = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that `data` completes, each cut at LINE_LIMIT."""
        *whole, rest = (self._part + data).split(b"\n")
        self._part = rest[:LINE_LIMIT]
        return [line[:LINE_LIMIT] for line in whole]

    def end(self) -> list[bytes]:
        """Return what is left at the end of the stream, if anything."""
        rest, self._part = self._part, b""
        return [rest] if rest else []


def parse(line: bytes) -> Report | None:
    """Return the report in `line`; None for an empty one."""
    text = line.decode("utf-8", "replace").replace("\0", "\ufffd").strip()
    word, _, rest = text.partition(" ")
    if not word:
        return None
    verb = _WORDS.get(word)
    return Report(verb, rest.strip() if verb else text)


def parse_single(line: bytes) -> tuple[str, bytes] | None:
    """Return (id, what is said of it) of a `msg ID LINE`; None for any other line."""
    word, _, rest = line.strip().partition(b" ")
    if word != SINGLE:
        return None
    msg_id, _, said = rest.strip().partition(b" ")
    return msg_id.decode("utf-8", "replace"), said


def parse_later(text: str) -> Resend:
    """Return what `SECONDS-REASON` or `SECONDS@NAME REASON` says."""
    seconds, at, rest = text.partition("@")
    name, _, reason = rest.partition(" ")
    if not at or "-" in seconds:
        return parse_resend(text, Verb.LATER)
    form = "later SECONDS@NAME REASON"
    if not name:
        raise BadInput(f"cannot read {text[:200]!r}; say: {form}")
    if len(name.encode()) > NAME_LIMIT:
        raise BadInput(
            f"the name in {text[:60]!r} … is {len(name.encode())} bytes, at most "
            f"{NAME_LIMIT} can be"
        )
    return Resend(_seconds(seconds, form, text), reason.strip(), name)


def parse_resend(text: str, verb: Verb = Verb.RESEND) -> Resend:
    """Return the delay and the reason of `SECONDS-REASON`."""
    seconds, _, reason = text.partition("-")
    return Resend(_seconds(seconds, f"{verb} SECONDS-REASON", text), reason)


def parse_dup(text: str) -> Dup:
    """Return the delay and the destination of `SECONDS-FLAG-DEST`."""
    parts = text.split("-", 2)
    if len(parts) < 3 or not parts[2]:
        raise BadInput(f"cannot read {text!r}; say: dup SECONDS-X-DEST")
    return Dup(_seconds(parts[0], "dup SECONDS-X-DEST", text), parts[2])


def parse_forward(text: str) -> str:
    """Return the destination of `forward DEST`."""
    dest = text.strip()
    if dest and not any(character.isspace() for character in dest):
        return dest
    raise BadInput(f"cannot read {text[:200]!r}; say: forward DEST")


def _seconds(text: str, form: str, whole: str) -> float:
    digits = text.strip()
    if digits.isascii() and digits.isdigit() and len(digits) <= 10:
        return float(digits)
    raise BadInput(f"cannot read {whole[:200]!r}; say: {form}")


def dup_reply(ok: bool, text: str) -> bytes:
    """Return the one line that answers a `dup`."""
    word = "ok" if ok else "fail"
    return f"{word} {' '.join(text.split())}\n".encode()


# ---- what a script has said in one run: the first completion word decides, the last text is
# shown


@dataclass(slots=True)
class Said:
    """What a script has said in one run; a new one for each run."""

    word: Verb | None = None
    text: str = ""
    delay: float = 0.0
    waits_for: str | None = None  # NAME of `later`: its messages wait for `delay`
    dest: str | None = None  # where a copy goes
    unreadable: str | None = None
    by: str | None = None  # who cancelled it
    result: str | None = None  # a value for programs; the last one counts
    over: Over | None = None  # the limit for which it was ended

    def hear(self, report: Report) -> None:
        """Take one report."""
        if report.verb is Verb.RESULT:
            self.result = report.text
            return
        self.text = report.text
        if report.verb not in COMPLETIONS or self.word is not None:
            return
        self.word = report.verb
        try:
            self._hear_more(report)
        except BadInput as error:
            self.word, self.unreadable = Verb.ERR, str(error)

    def _hear_more(self, report: Report) -> None:
        if report.verb is Verb.RESEND:
            self.delay = parse_resend(report.text).delay
        elif report.verb is Verb.LATER:
            later = parse_later(report.text)
            self.delay, self.waits_for = later.delay, later.waits_for
        elif report.verb is Verb.FORWARD:
            self.dest = parse_forward(report.text)
            self.text = f"forwarded to {self.dest}"
