"""What reaches a terminal: text, and colours. Nothing else moves, hides or titles.

Who looks need not sit at this machine (`ssh HOST rq logs ID`), so it is the same whether
or not standard output is a terminal.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import re
import sys
from collections.abc import Callable, Iterator
from typing import TextIO

from rq.words import visible

# What `term.colour` makes; from a value they would do no harm either.
_OWN = re.compile(r"(\x1b\[(?:0|1|2|31|32|33|36)m)")
_RESET = "\x1b[0m"
_TOKEN = re.compile(f"{visible.SEQUENCE.pattern}|\r+\n?")
# The beginning of a sequence whose end may come in the next piece.
_OPEN = re.compile(
    r"\x1b(?:\[[0-?]{0,256}[ -/]{0,16}|[\]PX^_][^\x07\x1b\n]{0,4096}\x1b?|[ -/]{0,16})\Z"
)
_LONGEST = 4200  # characters that such a beginning can have
# A newline may follow, or a letter that decides whether a joiner is to be seen.
_UNDECIDED = re.compile(
    f"(?<!\r)\r+\\Z|(?<![{visible.JOINERS}])[{visible.JOINERS}]{{1,16}}\\Z"
)


class Screen(io.TextIOWrapper):
    """Standard output, or standard error, that only shows what can be seen."""

    def write(self, text: str) -> int:
        """Write `text`, whose only sequences are the colours of RQ itself."""
        parts = _OWN.split(text)
        parts[::2] = map(visible.text, parts[::2])
        super().write("".join(parts))
        return len(text)


@contextlib.contextmanager
def screened() -> Iterator[None]:
    """Print by way of screens: whatever prints here, `argparse` too, cannot forget."""
    before = sys.stdout, sys.stderr
    if isinstance(sys.stdout, Screen):
        yield
        return
    screens = [_screen(stream) for stream in before]
    sys.stdout, sys.stderr = screens
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for screen in screens:
            with contextlib.suppress(OSError):
                screen.detach()  # or the stream below would be closed with it


def _screen(stream: TextIO) -> Screen:
    stream.flush()
    return Screen(
        stream.buffer,
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=bool(stream.line_buffering),
        write_through=bool(getattr(stream, "write_through", False)),
    )


@contextlib.contextmanager
def output(*, raw: bool = False) -> Iterator[Callable[[bytes], None]]:
    """Give a function that prints what a script wrote; `raw` prints the bytes."""
    stream, script = sys.stdout, Script()
    stream.flush()

    def write(data: bytes) -> None:
        text = data if raw else _encoded(script.take(data))
        stream.buffer.write(text)
        stream.buffer.flush()

    try:
        yield write
    finally:
        if not raw:
            stream.buffer.write(_encoded(script.end()))
            stream.buffer.flush()


def _encoded(text: str) -> bytes:
    return text.encode(sys.stdout.encoding, "replace")


class Script:
    """The output of a script, as its bytes come in: colours stay, other sequences go.

    A sequence or a character may be cut between two pieces; its beginning waits for its
    end. What a carriage return would write over is a line of its own.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._before = ""  # the character that what comes next follows
        self._coloured = False

    def take(self, data: bytes) -> str:
        """Return what can be shown of `data` and of what waited for it."""
        text = self._rest + self._decoder.decode(data)
        bare = _UNDECIDED.sub("", text)
        begun = _OPEN.search(bare, max(0, len(bare) - _LONGEST))
        end = begun.start() if begun and bare == text else len(bare)
        self._rest = text[end:]
        return self._visible(text[:end])

    def end(self) -> str:
        """Return what still waits, and the end of a colour that was left on."""
        text = self._rest + self._decoder.decode(b"", final=True)
        self._rest = ""
        last = self._visible(text)
        return last + _RESET if self._coloured else last

    def _visible(self, text: str) -> str:
        parts: list[str] = []
        at = 0
        for token in _TOKEN.finditer(text):
            parts += self._text_of(text[at : token.start()]), self._kept(token[0])
            self._before = ""
            at = token.end()
        parts.append(self._text_of(text[at:]))
        return "".join(parts)

    def _text_of(self, text: str) -> str:
        visible_text = visible.text(text, self._before)
        self._before = text[-1:] or self._before
        return visible_text

    def _kept(self, token: str) -> str:
        if token[0] == "\r":
            return "\n"
        if not visible.COLOUR.fullmatch(token):
            return ""
        self._coloured = token not in (_RESET, "\x1b[m")
        return token
