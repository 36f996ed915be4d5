"""`check_rq`: a Nagios check of a running RQ, over HTTP.

It reads the verdict of `/api/v1/verdict`, as `rq status` and the overview do; options say
from how many failed messages, and from which age, it is to be told. Of an RQ that has no
verdict, as the Ruby RQ, it judges by the counts of `/q.txt`, as that one's check did.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

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
from rq.replies.verdict import Fault, Level, VerdictView
from rq.words import moments, sentences
from rq.words.nesting import Json
from rq.words.wording import duration

_PATH = "check_rq/new_message"  # nothing is sent: the message in it is missing
_FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about a queue or a host."""

    level: Level
    text: str


@dataclass(frozen=True, slots=True)
class Limits:
    """`-t W:C:DW:DC`: of live messages, and of finished ones."""

    warning: int
    critical: int
    done_warning: int
    done_critical: int


N = TypeVar("N", int, float)
_IN_HEAD = 4  # findings in the first line
_LIMITS_BEFORE = Limits(25, 40, 3000, 3500)  # of an RQ that gives no verdict
_MAY_NOT = {
    401: ": it does not know the login or token that is set for it in config/peers.json",
    403: ": who asks may not see how it is",
}
_TIMEOUT = 10.0  # seconds for each answer
_ANSWER_LIMIT = 1024 * 1024  # bytes


class Unanswered(OSError):
    """It answered with something else than what was asked for."""

    def __init__(self, status: int) -> None:
        super().__init__(f"answered {status}")
        self.status = status


def main(argv: list[str] | None = None) -> int:
    """Run `check_rq`: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN."""
    words = list(sys.argv[1:] if argv is None else argv)
    return guarded(lambda: _check(words))


def _check(words: list[str]) -> int:
    """Return the exit code; what is wrong with the question itself is UNKNOWN."""
    try:
        args = parser().parse_args(words)
        wanted = _wanted(args)
    except SystemExit as stop:
        return Level.UNKNOWN if stop.code else Level.OK
    except BadInput as error:
        print(f"UNKNOWN: {error}")
        return Level.UNKNOWN
    return _check_peers(args) if args.peers else _check_host(args, wanted)


def _check_host(args: argparse.Namespace, wanted: Wanted) -> int:
    base = _base(args.s, args.p)
    try:
        with contextlib.closing(_line(base, args)) as line:
            findings, figures = _findings(line, wanted, is_talkative=args.d)
    except Unanswered as error:
        level = Level.UNKNOWN if error.status in _MAY_NOT else Level.CRITICAL
        print(f"{level.name}: {base}/ {error}{_MAY_NOT.get(error.status, '')}")
        return level
    except (OSError, ValueError, RQError) as error:
        print(f"CRITICAL: {base}/ {error}")
        return Level.CRITICAL
    return _tell(findings, figures)


def _tell(findings: list[Finding], figures: Mapping[str, float]) -> int:
    """Print the worst and how many more, then a line for each; after `|` the figures."""
    bad = sorted(
        (finding for finding in findings if finding.level), key=lambda it: -it.level
    )
    level = max((finding.level for finding in bad), default=Level.OK)
    texts = [_unparted(finding.text) for finding in bad]
    queues = int(figures.get("queues", 0))
    head = ", ".join(texts[:_IN_HEAD]) or f"{queues} queue{'s' * (queues != 1)}"
    more = f", and {len(texts) - _IN_HEAD} more" if len(texts) > _IN_HEAD else ""
    print(f"{level.name}: {head}{more}{_perfdata(figures)}")
    for finding, text in zip(bad[_IN_HEAD:], texts[_IN_HEAD:], strict=True):
        print(f"{finding.level.name}: {text}")
    return level


def _unparted(text: str) -> str:
    """Return a text without the mark that parts it from figures."""
    return term.plain(text).replace("|", "/")


def _perfdata(figures: Mapping[str, float]) -> str:
    units = {"oldest_due_age": "s", "disk_free_bytes": "B"}
    pairs = (
        f"{name}={value:.0f}{units.get(name, '')}" for name, value in figures.items()
    )
    return f" | {' '.join(pairs)}" if figures else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """From where on what is to be told; None: as the verdict says."""

    errors: tuple[int, int] | None  # failed messages: WARNING, CRITICAL
    age: tuple[float, float] | None  # seconds that the first is overdue
    live: Limits | None  # `-t`


def _wanted(args: argparse.Namespace) -> Wanted:
    return Wanted(
        errors=None if args.errors is None else _pair(args.errors, "--errors", int),
        age=None if args.age is None else _pair(args.age, "--age", moments.duration),
        live=None if args.t is None else parse_limits(args.t),
    )


def _pair(text: str, option: str, read: Callable[[str], N]) -> tuple[N, N]:
    """Return the two limits of `WARNING:CRITICAL`."""
    try:
        warning, critical = map(read, text.split(":"))
    except ValueError:
        raise BadInput(f"{option} {text}: say WARNING:CRITICAL, as 1:10") from None
    return warning, critical


def _findings(
    line: Line, wanted: Wanted, *, is_talkative: bool
) -> tuple[list[Finding], Mapping[str, float]]:
    """Return what is to be told of an RQ, and its figures."""
    try:
        view: VerdictView = orjson.loads(_get(line, "api/v1/verdict"))
    except Unanswered as error:
        if error.status != 404:
            raise
        every = list(_answers(line))
        limits = wanted.live or _LIMITS_BEFORE
        findings = [it for name, values in every for it in judge(name, values, limits)]
        figures: Mapping[str, float] = {"queues": len(every)}
    else:
        findings, figures = list(of_verdict(view, wanted)), _figures(view)
        every = list(_answers(line)) if wanted.live or is_talkative else []
        for name, values in every if wanted.live else ():
            findings += of_numbers(name, values, wanted.live or _LIMITS_BEFORE)
    if is_talkative:
        _tell_numbers(every)
    return findings, figures


def _tell_numbers(every: Sequence[tuple[str, Mapping[str, str]]]) -> None:
    for name, values in every:
        print(f"{name}: {' '.join(f'{key}={value}' for key, value in values.items())}")


def _figures(view: VerdictView) -> Mapping[str, float]:
    return {name: float(str(value)) for name, value in view["figures"].items()}


def of_verdict(view: VerdictView, wanted: Wanted) -> Iterator[Finding]:
    """Say what is wrong by a verdict, and by the limits that the operator has set."""
    for trouble in view["troubles"]:
        if trouble["fault"] != Fault.FAILED or wanted.errors is None:
            text = f"{trouble['who']} {trouble['said']}".rstrip()
            why = trouble["why"] or trouble["todo"]
            level = _level(trouble["level"])
            yield Finding(level, f"{text}: {why}" if why else text)
    figures = view["figures"]
    if wanted.errors is not None:
        failed = figures.get("failed", 0)
        yield Finding(_beyond(failed, wanted.errors), f"{failed} messages failed")
    if wanted.age is not None:
        age = figures.get("oldest_due_age", 0.0)
        text = f"a message is overdue for {duration(age)}"
        yield Finding(_beyond(age, wanted.age), text)


def _level(word: str) -> Level:
    """Return a level by its word; one that only a newer RQ knows is taken for bad."""
    return Level[word] if word in Level.__members__ else Level.CRITICAL


def _beyond(value: float, limits: tuple[float, float]) -> Level:
    warning, critical = limits
    if value >= critical:
        return Level.CRITICAL
    return Level.WARNING if value >= warning else Level.OK


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


def judge(name: str, values: Mapping[str, str], limits: Limits) -> Iterator[Finding]:
    """Say what is wrong with a queue; the worst of all findings counts, not the last."""
    status = values.get("status", "unknown")
    if status != "UP":
        yield Finding(Level.CRITICAL, f"{name} is {status}")
    if _number(values, "err"):
        yield Finding(Level.CRITICAL, f"{name} has {_number(values, 'err')} in err")
    yield from of_numbers(name, values, limits)


def of_numbers(
    name: str, values: Mapping[str, str], limits: Limits
) -> Iterator[Finding]:
    """Say of which messages a queue has more than the operator wants."""
    live = sum(_number(values, key) for key in ("prep", "que", "run"))
    yield from _over(name, "messages", live, limits.warning, limits.critical)
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


def _number(values: Mapping[str, str], key: str) -> int:
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
        raise Unanswered(reply.status)
    return reply.body.decode("utf-8", "replace")


def parser() -> argparse.ArgumentParser:
    """Return the parser of its words."""
    parser = argparse.ArgumentParser(
        prog="check_rq",
        description="A Nagios check: exit 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN. It tells "
        "what `rq status` tells.",
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
        metavar="W:C:DW:DC",
        help="warn and be critical from so many live messages of a queue, and from so many "
        "done or relayed; without it no number is too many",
    )
    parser.add_argument(
        "--errors",
        metavar="W:C",
        help="warn and be critical from so many failed messages in all (1:1)",
    )
    parser.add_argument(
        "--age",
        metavar="W:C",
        help="the same by how long a message is overdue: 10m:2h",
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
