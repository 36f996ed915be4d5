"""`check_rq`: a Nagios check of a running RQ, over HTTP."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import IntEnum

import orjson

from rq import config, names
from rq.cli import guarded, term
from rq.errors import BadConfig, BadInput, RQError
from rq.kinds import Kind
from rq.layout import Root
from rq.outbound import addresses, connection, peers
from rq.outbound.exchange import Reply, phrase
from rq.outbound.line import Line
from rq.outbound.peers import Peer, Target
from rq.words import sentences
from rq.words.nesting import Json

_PATH = "check_rq/new_message"  # nothing is sent: the message in it is missing
_FORM = {"Content-Type": "application/x-www-form-urlencoded"}


class Level(IntEnum):
    """How bad it is: the exit code, and the first word printed."""

    OK = 0
    WARNING = 1
    CRITICAL = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about a queue or a host."""

    level: Level
    text: str


_TIMEOUT = 10.0  # seconds for each answer
_ANSWER_LIMIT = 1024 * 1024  # bytes


@dataclass(frozen=True, slots=True)
class Limits:
    """`-t W:C:DW:DC`: of live messages, and of finished ones."""

    warning: int
    critical: int
    done_warning: int
    done_critical: int


def main(argv: list[str] | None = None) -> int:
    """Run `check_rq`: 0 OK, 1 WARNING, 2 CRITICAL."""
    words = list(sys.argv[1:] if argv is None else argv)
    return guarded(lambda: _check(words))


def _check(words: list[str]) -> int:
    args = _parser().parse_args(words)
    limits = parse_limits(args.t)
    if args.peers:
        return _check_peers(args)
    base = _base(args.s, args.p)
    try:
        answers = list(_answers(_line(base, args)))
    except (OSError, ValueError, RQError) as error:
        print(f"CRITICAL: {base}/ {error}")
        return Level.CRITICAL
    if args.d:
        for name, values in answers:
            pairs = " ".join(f"{key}={value}" for key, value in values.items())
            print(f"{name}: {pairs}")
    findings = [
        finding for name, values in answers for finding in judge(name, values, limits)
    ]
    findings.sort(key=lambda finding: -finding.level)
    level = max((finding.level for finding in findings), default=Level.OK)
    text = ", ".join(finding.text for finding in findings)
    print(f"{level.name}: {text or f'{len(answers)} queues'}")
    return level


def _base(server: str, port: str) -> str:
    """Return the address of an RQ.

    >>> _base("h", "3333"), _base("::1", "80"), _base("https://h", "443")
    ('http://h:3333', 'http://[::1]:80', 'https://h:443')
    """
    scheme, _, name = server.rpartition("://")
    return f"{scheme or 'http'}://{names.host_port(name, port)}"


def _check_peers(args: argparse.Namespace) -> int:
    """Print a line for each host of config/peers.json, the worst first."""
    root = config.find_root(args.root)
    findings = list(of_peers(root, insecure=args.insecure))
    for finding in sorted(findings, key=lambda finding: -finding.level):
        print(f"{finding.level.name}: {term.plain(finding.text)}")
    if not findings:
        print(f"OK: no host has settings in {root.peers}")
    return max((finding.level for finding in findings), default=Level.OK)


def _line(base: str, args: argparse.Namespace) -> Line:
    """Return a connection to an RQ, with what peers.json here says of it, if it does."""
    to = peers.origin(base)
    table = peers.Table()
    with contextlib.suppress(BadConfig):
        table = peers.read_all(config.find_root(args.root))
    peer = table.peers.get(to.peer, table.common)
    allowed = dataclasses.replace(
        peer,
        allow=addresses.allowed([to.place]),  # the operator names it
        insecure=peer.insecure or args.insecure,
    )
    return Line(to, allowed, _ANSWER_LIMIT)


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


def _answers(line: Line) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each queue that /q.txt lists, with the `key: value` lines of its file."""
    with contextlib.closing(line):
        for text in _get(line, "q.txt").split("\n"):
            path = text.strip()
            if path:
                name = path.removeprefix("q/").removesuffix(".txt")
                yield name, _values(_get(line, path))


def _values(text: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in text.split("\n") if ":" in line)
    return {key.strip(): value.strip() for key, _, value in pairs}


def _get(line: Line, path: str) -> str:
    with line.within(_TIMEOUT):
        reply = line.request("GET", f"/{path}", None, {})
    if reply.status != 200:
        raise OSError(f"answered {reply.status}")
    return reply.body.decode("utf-8", "replace")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="check_rq", description="A Nagios check: exit 0 OK, 1 WARNING, 2 CRITICAL."
    )
    parser.add_argument(
        "-s",
        default="127.0.0.1",
        metavar="SERVER",
        help="the host of RQ, or https://HOST (127.0.0.1)",
    )
    parser.add_argument(
        "-p",
        default=os.environ.get("RQ_PORT", "3333"),
        metavar="PORT",
        help="the port of its web ($RQ_PORT or 3333)",
    )
    parser.add_argument(
        "-t",
        default="25:40:3000:3500",
        metavar="W:C:DW:DC",
        help="warn and be critical from so many live messages, and from so many done or "
        "relayed (25:40:3000:3500)",
    )
    parser.add_argument("-d", action="store_true", help="print all numbers too")
    parser.add_argument(
        "--peers", action="store_true", help="check each host of config/peers.json"
    )
    parser.add_argument(
        "--root",
        metavar="DIR",
        help="the directory of RQ whose peers.json is used; else $RQ_ROOT",
    )
    parser.add_argument(
        "--insecure", action="store_true", help="send passwords over plain HTTP too"
    )
    return parser


# ---- --peers: whether each host of config/peers.json can be sent to


def of_peers(root: Root, *, insecure: bool) -> Iterator[Finding]:
    """Say of each host whether it answers, knows who asks, and lets them send."""
    table = peers.read_all(root)
    for url in table.urls:
        to = peers.origin(url)
        peer = table.peers[to.peer]
        yield _finding(to, replace(peer, insecure=insecure or peer.insecure))


def _finding(to: Target, peer: Peer) -> Finding:
    line = None
    try:
        line = Line(to, peer)
        with line.within(_TIMEOUT):
            reply = line.request("POST", to.path(_PATH), b"x_format=json", _FORM)
    except OSError as error:
        return Finding(Level.CRITICAL, f"{to.peer}: {connection.reason(error)}")
    except RQError as error:
        return Finding(Level.CRITICAL, f"{to.peer}: {error}")
    finally:
        if line is not None:
            line.close()
    level, text = _judge(reply)
    return Finding(level, f"{to.peer}: {text}")


def _judge(reply: Reply) -> tuple[Level, str]:
    if reply.status == 401:
        return Level.CRITICAL, "it does not know the login or token that is set here"
    if reply.status == 403:
        return _not_permitted(_kind(reply))
    if reply.status >= 500:
        return Level.CRITICAL, f"it answers {phrase(reply.status)}"
    if 300 <= reply.status < 400:
        return (
            Level.CRITICAL,
            "it redirects to another address, which the relay does not follow",
        )
    return Level.OK, "may send there"


def _not_permitted(kind: Kind | None) -> tuple[Level, str]:
    """Tell a role that may not send from one that may, to other queues than this."""
    if kind is Kind.OTHER_QUEUE:
        return Level.OK, "may send there, to some queues"
    return (
        Level.CRITICAL,
        "the login or token that is set here may not send there: it needs the role producer",
    )


def _kind(reply: Reply) -> Kind | None:
    """Return the kind of a failure, by its sentence where an earlier RQ answers."""
    if reply.kind is not None:
        return reply.kind
    try:
        problem: Json = orjson.loads(reply.body)
    except orjson.JSONDecodeError:
        return None
    detail = problem.get("detail") if isinstance(problem, dict) else None
    return sentences.kind_of(str(detail))


if __name__ == "__main__":
    raise SystemExit(main())
