"""`check_rq`: a Nagios check of a running RQ, over HTTP."""

from __future__ import annotations

import argparse
import http.client
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from rq.cli import guarded
from rq.errors import BadInput

_TIMEOUT = 10.0  # seconds for each answer
_ANSWER_LIMIT = 1024 * 1024  # bytes


class Level(IntEnum):
    """How bad it is: the exit code, and the first word printed."""

    OK = 0
    WARNING = 1
    CRITICAL = 2


@dataclass(frozen=True, slots=True)
class Limits:
    """`-t W:C:DW:DC`: of live messages, and of finished ones."""

    warning: int
    critical: int
    done_warning: int
    done_critical: int


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong with a queue."""

    level: Level
    text: str


def main(argv: list[str] | None = None) -> int:
    """Run `check_rq`: 0 OK, 1 WARNING, 2 CRITICAL."""
    words = list(sys.argv[1:] if argv is None else argv)
    return guarded(lambda: _check(words))


def _check(words: list[str]) -> int:
    args = _parser().parse_args(words)
    limits = parse_limits(args.t)
    base = f"http://{args.s}:{args.p}/"
    try:
        answers = list(_answers(base))
    except (OSError, ValueError) as error:
        print(f"CRITICAL: {base} {error}")
        return Level.CRITICAL
    if args.d:
        for name, values in answers:
            shown = " ".join(f"{key}={value}" for key, value in values.items())
            print(f"{name}: {shown}")
    findings = [one for name, values in answers for one in judge(name, values, limits)]
    level = max((one.level for one in findings), default=Level.OK)
    text = ", ".join(one.text for one in sorted(findings, key=lambda one: -one.level))
    print(f"{level.name}: {text or f'{len(answers)} queues'}")
    return level


def judge(name: str, values: dict[str, str], limits: Limits) -> Iterator[Finding]:
    """Say what is wrong with a queue; the worst of all findings counts, not the last."""
    status = values.get("status", "unknown")
    if status != "UP":
        yield Finding(Level.CRITICAL, f"{name} is {status}")
    live = sum(_number(values, key) for key in ("prep", "que", "run"))
    yield from _over(name, "messages", live, limits.warning, limits.critical)
    if _number(values, "err"):
        yield Finding(Level.CRITICAL, f"{name} has {_number(values, 'err')} in err")
    for key in ("done", "relayed"):
        count = _number(values, key)
        yield from _over(name, key, count, limits.done_warning, limits.done_critical)


def _over(
    name: str, what: str, count: int, warning: int, critical: int
) -> Iterator[Finding]:
    text = f"{name} has {count} {what}"
    if count >= critical:
        yield Finding(Level.CRITICAL, text)
    elif count >= warning:
        yield Finding(Level.WARNING, text)


def _number(values: dict[str, str], key: str) -> int:
    text = values.get(key, "0")
    return int(text) if text.isdecimal() else 0


def parse_limits(text: str) -> Limits:
    """Return the four numbers of `W:C:DW:DC`."""
    parts = text.split(":")
    if len(parts) != 4 or not all(part.isdecimal() for part in parts):
        raise BadInput(f"-t {text}: say W:C:DW:DC, four numbers")
    return Limits(*(int(part) for part in parts))


def _answers(base: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each queue that /q.txt lists, with the `key: value` lines of its file."""
    for line in _get(f"{base}q.txt").splitlines():
        path = line.strip()
        if path:
            name = path.removeprefix("q/").removesuffix(".txt")
            yield name, _values(_get(base + path))


def _values(text: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in text.splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, _, value in pairs}


def _get(url: str) -> str:
    # No proxy: what is checked is this very host, and it may be without a network.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=_TIMEOUT) as reply:
            data: bytes = reply.read(_ANSWER_LIMIT)
            status: int = reply.status
    except urllib.error.HTTPError as error:
        with error:
            raise OSError(f"answered {error.code}") from None
    except urllib.error.URLError as error:
        raise OSError(f"cannot be reached: {error.reason}") from None
    except http.client.HTTPException as error:
        raise OSError(f"answered what is no HTTP: {error!r}") from None
    if status != 200:
        raise OSError(f"answered {status}")
    return data.decode("utf-8", "replace")


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="check_rq", description="A Nagios check: exit 0 OK, 1 WARNING, 2 CRITICAL."
    )
    made.add_argument("-s", default="localhost", metavar="SERVER", help="(localhost)")
    made.add_argument(
        "-p",
        default=os.environ.get("RQ_PORT", "3333"),
        metavar="PORT",
        help="($RQ_PORT or 3333)",
    )
    made.add_argument(
        "-t",
        default="25:40:3000:3500",
        metavar="W:C:DW:DC",
        help="limits of live, and of done and relayed messages (25:40:3000:3500)",
    )
    made.add_argument("-d", action="store_true", help="print all numbers too")
    return made


if __name__ == "__main__":
    raise SystemExit(main())
