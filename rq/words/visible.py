"""Makes characters visible that a reader cannot see, or that move what they see.

A control character moves the cursor, a bidirectional mark turns the order of letters
round, a tag or a filler takes no room: a name or a value with one of them looks like
another. Each becomes its number, `<U+202E>`, wherever a person reads.
"""

from __future__ import annotations

import functools
import json
import re
import unicodedata

# The controls, the line and paragraph separators, lone surrogates (bytes of a file name
# that are no UTF-8), interlinear annotation, and what Unicode calls Default_Ignorable;
# but not the variation selectors FE00-FE0F, which stand behind half of all emoji.
# static/js/visible.js has the same list, and a test compares the two.
_INVISIBLE = (
    "\\x7f-\\x9f\\u00ad\\u034f\\u061c\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f"
    "\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u3164\\ud800-\\udfff\\ufeff"
    "\\uffa0\\ufff0-\\ufffb\\U0001bca0-\\U0001bca3\\U0001d173-\\U0001d17a"
    "\\U000e0000-\\U000e0fff"
)
# Between letters of Arabic, Syriac, N'Ko, Mandaic, of India and its neighbours ZWNJ and
# ZWJ are spelling, and between pictures ZWJ makes one of both. Elsewhere they are as
# invisible as all else.
_LETTERS = (
    "\\u0620-\\u0669\\u066e-\\u06ff\\u0710-\\u07fa\\u0840-\\u109f\\u1780-\\u17d3"
    "\\ufb50-\\ufefc"
)
_PICTURES = "\\u2190-\\u21ff\\u2600-\\u27bf\\u2b00-\\u2bff\\U0001f000-\\U0001faff"
_JOINER = (
    f"[\\u200c\\u200d](?:(?<![{_LETTERS}].)|(?![{_LETTERS}]))"
    f"(?:(?<![{_PICTURES}\\ufe0f]\\u200d)|(?![{_PICTURES}]))"
)
# In runs: a field may hold a million of them, and each match costs a step of Python.
_IN_TEXT = re.compile(
    f"[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f{_INVISIBLE}]+|\\r(?!\\n)|(?:{_JOINER})+"
)
_IN_LINE = re.compile(f"[\\x00-\\x1f{_INVISIBLE}]+|(?:{_JOINER})+")
JOINERS = "\u200c\u200d"

# A control sequence (colours, cursor), a string (title, link, DCS) up to its end or that
# of its line, a choice of character set, any other pair.
SEQUENCE = re.compile(
    r"\x1b(?:\[[0-?]{0,256}[ -/]{0,16}[@-~]|[\]PX^_][^\x07\x1b\n]{0,4096}(?:\x07|\x1b\\)?"
    r"|[ -/]{1,16}[0-~]|[0-OQ-WYZ\\`-~])"
)
COLOUR = re.compile(r"\x1b\[[0-9;:]{0,256}m")


def text(value: str, before: str = "") -> str:
    """Return a text whose characters can all be seen; lines and tabs stay. `before` is the
    character that it follows, if it is a piece of a longer one.

    >>> text("exe.\\u202egpj")
    'exe.<U+202E>gpj'
    >>> text("\u0645\u06cc\u200c\u062e"), text("a\u200cb")
    ('\u0645\u06cc\u200c\u062e', 'a<U+200C>b')
    >>> text("a\\u202e\\u202e\\u200d\\u200db")
    'a<U+202E><U+202E><U+200D><U+200D>b'
    >>> text("one\\r\\n\\ttwo\\x1b[2J")
    'one\\r\\n\\ttwo<U+001B>[2J'
    """
    whole = _IN_TEXT.sub(_number, before + value)
    return whole[len(_IN_TEXT.sub(_number, before)) :] if before else whole


def thinned(value: str) -> str:
    """Return a text in which no letter has more marks than `_CROWD`: to lay out thousands
    of them takes a browser minutes. Those beyond become their numbers.

    >>> thinned("a" + 32 * "\u0301")[-18:]
    '\u0301\u0301<U+0301><U+0301>'
    """
    return _FOREIGN.sub(_thinned, value)


# Text that may hold such a crowd. static/js/visible.js has the same rule.
_CROWD = 30  # which no language needs; Unicode's stream-safe text has no more
_FOREIGN = re.compile(f"[\u0300-\U0010ffff]{{{_CROWD + 1},}}")


def _thinned(match: re.Match[str]) -> str:
    marks, whole = 0, []
    for character in match[0]:
        is_mark = unicodedata.category(character).startswith("M")
        marks = marks + 1 if is_mark else 0
        whole.append(character if marks <= _CROWD else _number_of(character))
    return "".join(whole)


def line(value: str) -> str:
    """Return a text that is one line, whatever is in it.

    >>> line("one\\ntwo")
    'one<U+000A>two'
    """
    return _IN_LINE.sub(_number, value)


def json_text(dumped: str) -> str:
    """Return JSON with the same values, whose characters can all be seen.

    >>> json_text('"exe.\u202egpj"')
    '"exe.\\\\u202egpj"'
    """
    return _IN_TEXT.sub(lambda match: json.dumps(match[0])[1:-1], dumped)


def uncoloured(written: str) -> str:
    """Return what a program wrote for a terminal, as text: no sequences, and of a line
    what stands there once it has been written over.

    >>> uncoloured("\\x1b[31m10 %\\r20 %\\x1b[0m\\r\\nnext")
    '20 %\\nnext'
    >>> uncoloured("12345\\rab\\nloading\\r\\x1b[Kdone")
    'ab345\\ndone'
    """
    return text("\n".join(map(_written_over, written.split("\n"))))


_OVER = re.compile(f"(\r|\x1b\\[[02]?K)|{SEQUENCE.pattern}")


def _written_over(line: str) -> str:
    """Return what stands on a line at its end, of what returns and erasures leave."""
    if "\r" not in line:
        return SEQUENCE.sub("", line)
    screen, at, begin = "", 0, 0
    for token in _OVER.finditer(line):
        piece, begin = line[begin : token.start()], token.end()
        screen, at = screen[:at] + piece + screen[at + len(piece) :], at + len(piece)
        if token[0] == "\r":
            at = 0
        elif token[1] is not None:
            screen = screen[:at] if "2" not in token[0] else " " * at
    piece = line[begin:]
    return screen[:at] + piece + screen[at + len(piece) :]


def last_line(written: str, length: int) -> str:
    """Return so many characters of the last line in which a program wrote something,
    without what cannot be seen.

    >>> last_line("one\\r\\n10 %\\r\\x1b[31mno\\troom\\u202e\\x1b[0m\\n \\n", 200)
    'no room'
    """
    lines = re.split("[\r\n]", SEQUENCE.sub("", written).replace("\t", " "))
    seen = (_IN_LINE.sub("", line).strip() for line in reversed(lines))
    return next((line for line in seen if line), "")[:length]


def _number(match: re.Match[str]) -> str:
    return "".join(map(_number_of, match[0]))


@functools.lru_cache(maxsize=8192)
def _number_of(character: str) -> str:
    return f"<U+{ord(character):04X}>"
