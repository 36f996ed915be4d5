"""The word of a holder about the end of its lease: checked, and as an outcome."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import orjson

from rq import names
from rq.errors import BadInput, TooLarge
from rq.message import causes, limits
from rq.message.fields import JsonObject
from rq.message.limits import Over
from rq.queues import arguments
from rq.scripts.pipe import LINE_LIMIT, NAME_LIMIT, Said, Verb
from rq.words.nesting import Json

_WORDS = (Verb.DONE, Verb.ERR, Verb.RESEND, Verb.LATER, Verb.FORWARD)
_ARGUMENTS = ("word", "delay", "dest", "waits_for", "dups", "files", "exit", "signal",
              "unreadable", "over")  # fmt: skip
MOST_SECONDS = 9_999_999_999.0  # of a delay, as in the pipe
MOST_DUPS = 100
MOST_RESULT = LINE_LIMIT - len("result ")  # bytes
_PRINTED = 200  # characters
_MOST_NUMBER = 2**53
MOST_WHY = 1000  # characters
MOST_DATA = 1024 * 1024  # bytes of a log at a time
RELEASE = "release"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The end of an attempt as its holder tells it."""

    said: Said
    digest: str  # of all but the text and what was measured
    exit: int | None
    signal: str | None
    run_us: int | None
    cpu_us: int | None
    max_rss: int | None
    dups: tuple[Dup, ...]
    files: Mapping[str, str]  # name: sha256
    printed: str  # the last line, of a script that says nothing


@dataclass(frozen=True, slots=True)
class Dup:
    """A copy of the message that is owed to another queue."""

    dest: str
    delay: float


def finish(request: JsonObject) -> Finish:
    """Return what `request` says; BadInput when it makes no sense."""
    said = _said(request)
    signal = _optional_text(request, "signal")
    status = arguments.whole(request, "exit", None, 255)
    if said.word is None and status is None and signal is None:
        raise BadInput(f"word is missing; say one of {', '.join(_WORDS)}")
    return Finish(
        said=said,
        digest=digest({name: request.get(name) for name in _ARGUMENTS}),
        exit=None if signal else status,
        signal=signal,
        run_us=arguments.whole(request, "run_us", None, _MOST_NUMBER),
        cpu_us=arguments.whole(request, "cpu_us", None, _MOST_NUMBER),
        max_rss=arguments.whole(request, "max_rss", None, _MOST_NUMBER),
        dups=_dups(request.get("dups")),
        files=_files(request.get("files")),
        printed=text_of(request.get("printed"))[:_PRINTED],
    )


def digest(said: Mapping[str, object]) -> str:
    """Return what tells two words apart.

    >>> digest({"word": "done"}) == digest({"word": "err"})
    False
    """
    whole = orjson.dumps(said, option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(whole).hexdigest()[:16]


def text_of(value: Json) -> str:
    """Return a text for people, on one line and no longer than one of the pipe."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadInput(f"text is {value!r:.60}, and not a text")
    line = " ".join(value.replace("\0", "\ufffd").splitlines()).strip()
    return line.encode(errors="replace")[:LINE_LIMIT].decode(errors="ignore")


def data_of(value: Json) -> bytes:
    """Return bytes that were sent as base64, at most a mebibyte of them."""
    try:
        data = (
            base64.b64decode(value, validate=True) if isinstance(value, str) else None
        )
    except ValueError:
        data = None
    if data is None:
        raise BadInput("data is not bytes as base64")
    if len(data) > MOST_DATA:
        raise TooLarge(f"data has {len(data)} bytes, at most {MOST_DATA} can be taken")
    return data


def share(request: JsonObject, name: str) -> float | None:
    """Return a number between 0 and 1, if there is one."""
    return (
        None
        if request.get(name) is None
        else arguments.seconds(request, name, 0.0, 0.0, 1.0)
    )


def _said(request: JsonObject) -> Said:
    word = request.get("word")
    if word == Verb.RELAYED:
        raise BadInput("relayed is a word of relays alone; say done or forward")
    if word not in (*_WORDS, None):
        raise BadInput(f"word is {word!r:.60}; say one of {', '.join(_WORDS)}")
    said = Said(text=text_of(request.get("text")))
    said.result = _result(request.get("result"))
    said.word = None if word is None else Verb(str(word))
    said.delay = arguments.seconds(request, "delay", 0.0, 0.0, MOST_SECONDS)
    said.unreadable = text_of(request.get("unreadable")) or None
    said.over = _over(request)
    if said.word is Verb.LATER:
        said.waits_for = _optional_text(request, "waits_for")
    if said.word is Verb.FORWARD:
        said.dest = _dest(request.get("dest"))
        said.text = f"forwarded to {said.dest}"
    return said


def _over(request: JsonObject) -> Over | None:
    """Return for which limit its holder has ended the script."""
    over = request.get("over")
    if over is None:
        return None
    cause = causes.of(over)
    if cause is None or not cause.row.is_limit:
        raise BadInput(f"over is {over!r:.60}; say one of {', '.join(limits.OVER)}")
    text = text_of(request.get("over_text"))
    return Over(cause, text or f"killed: over its {over}")


def _result(value: Json) -> str | None:
    """Return a value for programs, as the pipe would take it."""
    if value is None:
        return None
    if isinstance(value, str) and len(value.encode(errors="replace")) > MOST_RESULT:
        raise TooLarge(
            f"result has {len(value.encode(errors='replace'))} bytes, at most "
            f"{MOST_RESULT} can be taken; hand larger ones in as a file"
        )
    return text_of(value)


def _dest(value: Json) -> str:
    if isinstance(value, str) and value and not any(map(str.isspace, value)):
        return value
    raise BadInput(f"dest is {value!r:.60}; name a queue")


def _optional_text(request: JsonObject, name: str) -> str | None:
    value = request.get(name)
    if value is None:
        return None
    is_text = isinstance(value, str) and value.isprintable()
    if is_text and 0 < len(str(value).encode()) <= NAME_LIMIT:
        return str(value)
    raise BadInput(f"{name} is {value!r:.60}, and not a printable text")


def _dups(value: Json) -> tuple[Dup, ...]:
    if value is None:
        return ()
    if (
        not isinstance(value, Sequence)
        or isinstance(value, str)
        or len(value) > MOST_DUPS
    ):
        raise BadInput(f"dups is no list of at most {MOST_DUPS} copies")
    return tuple(_dup(copy) for copy in value)


def _dup(value: Json) -> Dup:
    if not isinstance(value, Mapping):
        raise BadInput('a copy in dups is an object: {"dest": QUEUE, "delay": SECONDS}')
    return Dup(
        _dest(value.get("dest")),
        arguments.seconds(value, "delay", 0.0, 0.0, MOST_SECONDS),
    )


def _files(value: Json) -> Mapping[str, str]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise BadInput("files is an object of names and their sha256")
    return {names.attachment(name): str(sha256) for name, sha256 in value.items()}
