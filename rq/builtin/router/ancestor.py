"""Reads the rule files of the Ruby RQ, line by line: nothing in them is run.

A line that begins with `rule` opens a rule, an empty line closes it. What this parser
does not know is an error with its line, never a guess.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from rq.builtin.router.rules import Rule, Rules, ordered, rule
from rq.errors import BadConfig
from rq.words.nesting import Json

# To Ruby a line ends at a newline alone, and these are blank.
_BLANKS = " \t\r\v\f"
_STATEMENT = re.compile(
    rf"(rule|src|dest|action|route|delay|log)\b[{_BLANKS}(]*(.*?)\)?[{_BLANKS}]*;?"
)
_PATTERN = re.compile(r"/((?:[^/\\]|\\.)*)/([a-z]*)")
_OTHER_PATTERN = re.compile(r"%r\{(.*)\}([a-z]*)")
_TOKEN = re.compile(
    r"""[ \t\r\v\f]*(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\#]|\\.|#(?![{$@]))*)"|:(\w+)|([\[\],]))[ \t\r\v\f]*"""
)
# What Ruby's patterns spell otherwise, or mean otherwise.
_SPELT = {
    r"\z": r"\Z",
    r"\Z": r"(?=\n?\Z)",
    r"\h": "[0-9a-fA-F]",
    r"\H": "[^0-9a-fA-F]",
    r"\/": "/",
}
_UNKNOWN = ("[[:", r"\p", r"\P", r"\R", r"\X", r"\K", r"\G", "(?~", r"\g<", r"\k<")
_FLAGS = {"i": "i", "m": "s", "x": "x"}


def parse(text: str) -> Rules:
    """Return the rules in a file of the Ruby RQ; BadConfig names the line."""
    return ordered([_rule(block, number) for number, block in _blocks(text)])


def _blocks(text: str) -> Iterator[tuple[int, list[tuple[int, str]]]]:
    """Give (number, lines with their numbers) of each rule."""
    block: list[tuple[int, str]] = []
    number = 0
    for at, raw in enumerate([*text.split("\n"), ""], 1):
        line = _without_comment(raw).strip(_BLANKS)
        opens = re.match(r"rule\b", line) is not None
        if block and (opens or not raw.strip(_BLANKS)):
            number += 1
            yield number, block
            block = []
        if line and not block and not opens:
            raise BadConfig(f"line {at}: {line!r:.80} is not within a rule")
        if line:
            block.append((at, line))


def _without_comment(line: str) -> str:
    """Return a line without its comment, which may not begin within a text."""
    inside, escaped = "", False
    for at, char in enumerate(line):
        if escaped:
            escaped = False
        elif inside:
            escaped = char == "\\"
            inside = "" if char == inside else inside
        elif char in "'\"/":
            inside = char
        elif char == "#":
            return line[:at]
    return line


def _rule(lines: list[tuple[int, str]], number: int) -> Rule:
    data: dict[str, Json] = {}
    for at, line in lines:
        try:
            word, value = _statement(line)
        except ValueError as error:
            raise BadConfig(f"line {at}: {error}") from None
        data["name" if word == "rule" else word] = value
    try:
        return rule(data, number)
    except BadConfig as error:
        raise BadConfig(f"line {lines[0][0]}: {error}") from None


def _statement(line: str) -> tuple[str, Json]:
    statement = _STATEMENT.fullmatch(line)
    if statement is None:
        raise ValueError(f"{line!r:.80} is not a statement of a rule")
    word, rest = statement[1], statement[2].strip(_BLANKS)
    if word in ("src", "dest"):
        return word, pattern(rest)
    if word == "delay":
        return word, _whole(rest)
    if word == "log":
        return word, _flag(rest)
    if word == "route":
        return word, _list(rest)
    texts = _list(rest)
    if len(texts) != 1 or not isinstance(texts[0], str):
        raise ValueError(f"{word} has one text or symbol")
    return word, texts[0]


def pattern(text: str) -> str:
    """Return a Ruby pattern as a Python one.

    >>> pattern(r"/^http:\\/\\/h(?<n>\\h+)$/i")
    '(?mi)^http://h(?P<n>[0-9a-fA-F]+)$'
    """
    parts = _PATTERN.fullmatch(text) or _OTHER_PATTERN.fullmatch(text)
    if parts is None:
        raise ValueError(f"{text!r:.80} is not a pattern between slashes")
    body, flags = parts[1], parts[2]
    for unknown in _UNKNOWN:
        if unknown in body:
            raise ValueError(
                f"{unknown} in {text!r:.80} has no counterpart; rewrite it"
            )
    if "#{" in body or set(flags) - set(_FLAGS):
        raise ValueError(f"{text!r:.80} cannot be converted; rewrite it")
    body = re.sub(r"\\.", lambda escape: _SPELT.get(escape[0], escape[0]), body)
    body = re.sub(r"\(\?<(?=[A-Za-z_])", "(?P<", body)
    # In Ruby ^ and $ are the ends of lines always.
    return f"(?m{''.join(_FLAGS[flag] for flag in flags)}){body}"


def _whole(text: str) -> int:
    if re.fullmatch(r"\d{1,9}", text):
        return int(text)
    raise ValueError(f"{text!r:.40} is not a whole number of seconds")


def _flag(text: str) -> bool:
    if text in ("true", "false"):
        return text == "true"
    raise ValueError(f"{text!r:.40} is not true or false")


def _list(text: str) -> list[Json]:
    """Return texts, symbols and lists of them, separated by commas."""
    parts: list[str] = []
    at = 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise ValueError(f"{text[at:]!r:.40} is neither a text nor a list")
        texts = [text for text in token.groups()[:3] if text is not None]
        parts.append(json.dumps(_plain(texts[0])) if texts else token[4])
        at = token.end()
    try:
        values: list[Json] = json.loads(f"[{' '.join(parts)}]")
    except ValueError:
        raise ValueError(f"{text!r:.80} is not a list of texts") from None
    return values


def _plain(text: str) -> str:
    if re.search(r"\\[^\\'\"]", text):
        raise ValueError(f"{text!r:.80}: write it without escapes")
    return re.sub(r"\\(.)", r"\1", text)
