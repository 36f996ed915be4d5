"""The packages that a job in one file asks for: in the file itself, or beside it.

In the file as PEP 723 has it, comments from `# /// script` to `# ///`; else what
`requirements.txt` beside it says.
"""

from __future__ import annotations

import hashlib
import operator
import re
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rq.errors import BadInput

FILE = "requirements.txt"
_BEGIN, _END = "# /// script", "# ///"
# A package by its name, with extras, versions, an address, a marker (PEP 508): no path,
# and no option of pip behind it.
_PACKAGE = re.compile(r"[A-Za-z0-9][\w.-]*\s*(?:[\[@(<>=!~;].*)?", re.ASCII)
_BEHIND = re.compile(r"\s-|\bfile:|\\|[^\S ]")
_HASH = re.compile(r"\s+--hash=\S+")
# What a requirements file may say beside packages: it names no other file.
_OPTIONS = frozenset(
    {"-i", "--index-url", "--extra-index-url", "--no-index", "-f", "--find-links"}
    | {"--no-binary", "--only-binary", "--prefer-binary", "--require-hashes", "--pre"}
    | {"--trusted-host"}
)
_COMMENT = re.compile(r"(?:^|\s)#.*")
_CLAUSE = re.compile(r"(~=|==|!=|<=|>=|<|>)\s*(\d+(?:\.\d+)*)(\.\*)?")
_COMPARE: dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}


@dataclass(frozen=True, slots=True)
class Requirements:
    """What pip is to install: the text of a requirements file, from a directory."""

    text: str
    place: Path

    @property
    def digest(self) -> str:
        """What tells them, and the Python that they are for, from others."""
        python = f"{sys.executable}\n{sys.version}\n"
        return hashlib.sha256(f"{python}{self.text}".encode()).hexdigest()[:32]

    @property
    def names(self) -> str:
        """The packages, for people."""
        lines = (line.partition("#")[0].split() for line in self.text.splitlines())
        return ", ".join(words[0] for words in lines if words and words[0][0] != "-")


def of_script(script: Path) -> Requirements | None:
    """Return what a script asks for; None: nothing. BadInput when that cannot be read, or
    is for another Python."""
    header = _header(script)
    if header is not None:
        python = header.get("requires-python", "")
        if not isinstance(python, str) or not fits(python, sys.version_info[:3]):
            version = ".".join(map(str, sys.version_info[:3]))
            raise BadInput(
                f"{script.name} asks for Python {python!r:.60}, and RQ runs on {version}"
            )
    if header is not None and "dependencies" in header:
        text = "".join(f"{line}\n" for line in _dependencies(script, header))
    else:
        text = _beside(script.parent / FILE)
    return Requirements(text, script.parent.absolute()) if text.strip() else None


def _header(script: Path) -> dict[str, Any] | None:
    """Return what a script says of itself; None: nothing."""
    # As Python has it; what else ends a line of text may stand within one of code.
    lines = script.read_text("utf-8", "replace").split("\n")
    begins = [number for number, line in enumerate(lines) if line == _BEGIN]
    if not begins:
        return None
    if len(begins) > 1:
        raise BadInput(f"{script.name} has `{_BEGIN}` twice: it may have it once")
    block: list[str] = []
    for line in lines[begins[0] + 1 :]:
        if line != "#" and not line.startswith("# "):
            break
        block.append(line)
    if _END not in block:
        raise BadInput(f"{script.name} has `{_BEGIN}` and no `{_END}` to end it")
    end = len(block) - 1 - block[::-1].index(_END)
    try:
        return tomllib.loads("\n".join(line[2:] for line in block[:end]))
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{script.name}, `{_BEGIN}`: {error}") from None


def _dependencies(script: Path, header: dict[str, Any]) -> list[str]:
    names = header["dependencies"]
    if not isinstance(names, list):
        raise BadInput(
            f'{script.name}: dependencies is no list such as ["matplotlib>=3.9"]'
        )
    for name in names:
        if not (isinstance(name, str) and _is_package(name)):
            raise BadInput(
                f"{script.name}: {name!r:.80} in dependencies is no package such as "
                "matplotlib>=3.9"
            )
    return names


def _is_package(text: str) -> bool:
    """Return whether a text asks for a package, and says nothing else to pip.

    >>> [_is_package(name) for name in ("a[b]>=1, <2; python_version < '4'", "a -e .")]
    [True, False]
    """
    is_plain = text.isprintable() and not _BEHIND.search(text)
    return is_plain and _PACKAGE.fullmatch(text) is not None


def _beside(path: Path) -> str:
    try:
        text = path.read_text("utf-8-sig")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeError) as error:
        raise BadInput(f"{path} cannot be read: {error}") from None
    for line in text.replace("\\\n", " ").splitlines():  # as pip parts and joins them
        said = " ".join(_COMMENT.sub("", line).split())
        if said and not (_is_option(said) or _is_package(_HASH.sub("", said))):
            raise BadInput(
                f"{path}: `{said:.80}` is no package, by its name, and no option that it "
                "may have: it must say all by itself"
            )
    return text


def _is_option(said: str) -> bool:
    return re.split(r"[=\s]", said, maxsplit=1)[0] in _OPTIONS


def fits(wanted: str, version: tuple[int, ...]) -> bool:
    """Return whether a version of Python is one of those that are wanted; BadInput.

    >>> [fits(text, (3, 11, 7)) for text in (">=3.11", "<3.11", "~=3.9", "==3.11.*", "")]
    [True, False, True, True, True]
    """
    return all(
        _clause(clause.strip(), version) for clause in wanted.split(",") if clause
    )


def _clause(clause: str, version: tuple[int, ...]) -> bool:
    parts = _CLAUSE.fullmatch(clause)
    if parts is None:
        raise BadInput(f"requires-python: {clause!r:.60} is not such as >=3.11")
    numbers = tuple(map(int, parts[2].split(".")))
    if parts[1] in ("==", "!="):
        size = len(numbers) if parts[3] else 3
        return (_cut(version, size) == _cut(numbers, size)) is (parts[1] == "==")
    if parts[1] == "~=":
        same = len(numbers) - 1
        return version >= numbers and version[:same] == numbers[:same]
    return _COMPARE[parts[1]](_cut(version, 3), _cut(numbers, 3))


def _cut(numbers: tuple[int, ...], size: int) -> tuple[int, ...]:
    return (*numbers, 0, 0, 0)[:size]
