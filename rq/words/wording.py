"""What RQ has measured and written of an attempt, in words for people.

The status keeps the ancestor's words, which programs know; a person reads these.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from rq.kinds import Kind
from rq.words import sentences

_PLAIN = {
    "cause": "cause",
    "exit": "exit status",
    "signal": "signal",
    "pid": "process",
    "batch": "batch",
    "messages": "messages in it",
    "left": "of these not ended",
}
# What a result raises that is not the JSON of a job.
_NO_FIGURES = (
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)
_TIMES = {"wait_us": "waited", "run_us": "ran", "cpu_us": "CPU time"}  # µs

_LIMIT = re.compile(
    r"(?:HIT MAX RESEND COUNT - MOVING TO ERR|its attempt was lost .*?; tries used: \d+)"
    r"(?: - (?P<said>.*))?",
    re.DOTALL,
)
_IMPROPER = re.compile(
    r"PROCESS EXITED IMPROPERLY - (?:MOVING TO ERR|RUNNING IT AGAIN) - "
    r"Completion was (?P<word>\w+) but exit status was (?P<exit>\S+)(?: - (?P<said>.*))?",
    re.DOTALL,
)
_DELAY = re.compile(r"\d+(?:-|@(\S+) ?|$)")


def reason(text: str) -> str:
    """Return why a script asks for another attempt, without the seconds before it.

    >>> [reason(text) for text in ("900-no route", "5-", "5", "2 of 3")]
    ['no route', '', '', '2 of 3']
    >>> reason("2@http://h:3333 Connection refused")
    'waits for http://h:3333: Connection refused'
    """
    delay = _DELAY.match(text)
    if delay is None:
        return text
    said = text[delay.end() :]
    return f"waits for {delay[1]}: {said}" if delay[1] else said


def later(text: str) -> str:
    """Return why a script asks to be run later, as the rest of a sentence.

    >>> [later(text) for text in ("2@http://h:3333 Connection refused", "5@h", "5-busy")]
    ['http://h:3333 cannot take it: Connection refused', 'h cannot take it', 'busy']
    """
    delay = _DELAY.match(text)
    if delay is None or delay[1] is None:
        return reason(text)
    said = text[delay.end() :]
    return f"{delay[1]} cannot take it" + (f": {said}" if said else "")


def in_list(state: str, text: str) -> str:
    """Return what a script last said of a message, as a list of messages has room for it.

    >>> [in_list(state, "900-busy") for state in ("que", "run")]
    ['busy', '900-busy']
    """
    if state == "que":
        return shortly(reason(text))
    return shortly(text) if state in ("err", "errack", "dismissed") else text


def improper(text: str) -> tuple[str, str]:
    """Return the word that a script reported before it ended as it should not, and the
    last that it said.

    >>> start = "PROCESS EXITED IMPROPERLY - MOVING TO ERR - Completion was "
    >>> improper(start + "done but exit status was 3 - all well")
    ('done', 'all well')
    >>> improper(start + "none but exit status was SIGKILL")
    ('', '')
    """
    match = _IMPROPER.fullmatch(text)
    if match is None:
        return "", text
    word, said = match["word"], match["said"] or ""
    last = reason(said) if word in ("resend", "later") else said
    return "" if word == "none" else word, last


def beside_limit(text: str) -> str:
    """Return what the last attempt said of a message that was tried as often as it may
    be; nothing if it said nothing.

    >>> beside_limit("HIT MAX RESEND COUNT - MOVING TO ERR - 60-no route")
    'no route'
    >>> beside_limit(f"{lost(2, 5)} - its batch ended with SIGKILL; it reported nothing")
    'its batch ended with SIGKILL; it reported nothing'
    """
    match = _LIMIT.fullmatch(text)
    return reason(match["said"] or "") if match else ""


def shortly(text: str) -> str:
    """Return the status of a message that failed, as a list has room for it.

    >>> start = "PROCESS EXITED IMPROPERLY - MOVING TO ERR - Completion was "
    >>> shortly(start + "none but exit status was SIGKILL")
    'ended by SIGKILL'
    >>> shortly(start + "done but exit status was 3 - all well")
    'exit status 3, said: all well'
    >>> shortly("HIT MAX RESEND COUNT - MOVING TO ERR - 60-no route")
    'run again too often, said: no route'
    """
    match = _IMPROPER.fullmatch(text)
    if match is None:
        said = beside_limit(text) if text.startswith("HIT ") else ""
        return f"run again too often, said: {said}" if said else text
    how = match["exit"]
    is_number = (
        how.isdigit() or how == "#"
    )  # which stands for any, where many are alike
    end = f"exit status {how}" if is_number else f"ended by {how}"
    said = improper(text)[1]
    return f"{end}, said: {said}" if said else end


def refusal(text: str) -> str:
    """Return why nobody took what was to be handed on.

    >>> refusal("forward failed - couldn't connect to queue - b")
    'there is no queue b, or nobody answers for it'
    >>> refusal("forward failed - status: DOWN")
    'the queue is DOWN'
    """
    sentence = text.removeprefix("forward failed - ")
    kind, name = sentences.kind_of(sentence), sentence.rpartition(" ")[2]
    if kind is Kind.NO_SUCH_QUEUE:
        return f"there is no queue {name}, or nobody answers for it"
    return f"the queue is {name}" if kind is Kind.DOWN else sentence


def leader(text: str) -> str:
    """Return the message that ran in place of an equal one.

    >>> leader("duplicate http://localhost/q/mail/20260102.0304.05.006.7")
    'http://localhost/q/mail/20260102.0304.05.006.7'
    """
    return text.removeprefix("duplicate ")


def size_of_environment(text: str) -> str:
    """Return how large the parameters were that no environment held.

    >>> size_of_environment("parameters too large for an environment (9 of 5 bytes)")
    '(9 of 5 bytes)'
    """
    return text.partition(" environment ")[2]


def times(count: object) -> str:
    """Return how often.

    >>> [times(n) for n in (1, 2, None)]
    ['once', '2 times', '? times']
    """
    return "once" if count == 1 else f"{'?' if count is None else count} times"


def lost(losses: int, tries: int) -> str:
    """Return how often the attempts of a message were lost, of how many that count.

    >>> lost(1, 1), lost(2, 5)
    ('its attempt was lost once; tries used: 1', 'its attempt was lost 2 times; tries used: 5')
    """
    return f"its attempt was lost {times(losses)}; tries used: {tries}"


def ended(sentence: str) -> str:
    """Return a sentence with its full stop, unless it ends with an address or a path.

    >>> [ended(text) for text in ("It ran: ", "It said: why?", "It is at http://h/q/x")]
    ['It ran.', 'It said: why?', 'It is at http://h/q/x']
    """
    sentence = sentence.rstrip(": ")
    last = sentence.rpartition(" ")[2]
    return (
        sentence if sentence[-1:] in (".", "!", "?") or "/" in last else f"{sentence}."
    )


def results(result: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return what is facts of an attempt: what, and how much of it.

    >>> results({"exit": 1, "run_us": 12_300, "max_rss": 2048})
    [('exit status', '1'), ('ran', '12 ms'), ('memory', '2.0 MiB')]
    >>> results({"exit": 0, "lease": {"by": "ann/blue", "seconds": 60.0}})
    [('exit status', '0'), ('worker', 'ann/blue')]
    """
    facts: dict[str, Any] = {k: v for k, v in result.items() if v is not None}
    if "finished" in facts:
        facts.pop("pid", None)  # it is gone: attempts are told with theirs
    rows = figures(facts["result"]) if "result" in facts else []
    rows += [
        (label, str(facts[name])) for name, label in _PLAIN.items() if name in facts
    ]
    for name, label in _TIMES.items():
        if name in facts:
            rows.append((label, duration(float(facts[name]) / 1e6)))
    if facts.get("lease"):
        rows.append(("worker", str(facts["lease"]["by"])))
        if until := facts["lease"].get("until"):  # it is out
            rows.append(
                ("lease runs out", f"{moment(float(until))} UTC, unless renewed")
            )
    if facts.get("max_rss"):
        rows.append(("memory", size(int(facts["max_rss"]) * 1024)))
    return rows


def at_work(result: Mapping[str, object], now: float) -> list[tuple[str, str]]:
    """Return for how long an attempt has been at work, and how long it has been silent.

    >>> at_work({"started": 100.0, "printed": 160.0}, 400.0)
    [('running for', '5 min'), ('last printed', '1970-01-01 00:02:40 UTC, 4 min ago')]
    >>> at_work({"started": 100.0, "printed": None}, 400.0)
    [('running for', '5 min'), ('last printed', 'nothing yet')]
    """
    rows, started = [], result.get("started")
    if isinstance(started, int | float):
        rows.append(("running for", duration(max(0.0, now - started))))
    if "printed" in result:
        printed = result["printed"]
        said = "nothing yet"
        if isinstance(printed, int | float):
            ago = duration(max(0.0, now - printed))
            said = f"{moment(printed)} UTC, {ago} ago"
        rows.append(("last printed", said))
    return rows


def figures(result: object) -> list[tuple[str, str]]:
    """Return what a job on Spark has read and made; of another result its text.

    >>> figures('{"messages": 2, "files": 3, "bytes": 2048, "rows_in": 9, "rejected": 1}')
    [('read', '2 messages, 3 files, 2.0 KiB, 9 lines, 1 rejected')]
    >>> figures('{"messages": 1, "outputs": {"a.csv": 7}, "spark_us": 12300000}')
    [('read', '1 message'), ('made', 'a.csv (7 rows)'), ('Spark', '12.3 s')]
    >>> figures('{"messages": 1, "discarded": {"orders": 1}}')
    [('read', '1 message'), ('discarded', 'orders (1 row)')]

    What another script says may look like it, so it is taken for nothing else than text:

    >>> figures('{"messages": "many"}')
    [('result', '{"messages": "many"}')]
    """
    try:
        said = json.loads(str(result))
        return _figures(said) if "messages" in said else [("result", str(result))]
    except _NO_FIGURES:
        return [("result", str(result))]


def _figures(said: Mapping[str, Any]) -> list[tuple[str, str]]:
    parts = [several(said["messages"], "message")]
    if "files" in said:
        parts += [several(said["files"], "file"), size(int(said["bytes"]))]
        parts.append(several(said["rows_in"], "line"))
    if "rejected" in said:
        parts.append(f"{said['rejected']:,} rejected")
    rows = [("read", ", ".join(parts))]
    for name, label in (("outputs", "made"), ("discarded", "discarded")):
        if outputs := said.get(name):
            rows.append((label, ", ".join(_outputs(outputs))))
    for name, engine in (("spark_us", "Spark"), ("duckdb_us", "DuckDB")):
        if name in said:
            rows.append((engine, duration(float(said[name]) / 1e6)))
    return rows


def _outputs(outputs: Mapping[str, int | None]) -> Iterator[str]:
    """Give what a job has made, with its rows if it has some."""
    for name, count in outputs.items():
        yield name if count is None else f"{name} ({several(count, 'row')})"


def several(count: int, noun: str) -> str:
    """Return a number of things.

    >>> [several(1, "row"), several(1200, "row"), several(2, "batch")]
    ['1 row', '1,200 rows', '2 batches']
    """
    if count == 1:
        return f"{count:,} {noun}"
    return f"{count:,} {noun}es" if noun.endswith("ch") else f"{count:,} {noun}s"


def moment(epoch: float) -> str:
    """Return an epoch time as people read it, in UTC.

    >>> moment(0.0)
    '1970-01-01 00:00:00'
    """
    return f"{datetime.fromtimestamp(epoch, UTC):%Y-%m-%d %H:%M:%S}"


def duration(seconds: float) -> str:
    """Return seconds as people say them.

    >>> [duration(s) for s in (0.0123, 4.56, 83, 7260, 200000, 3600)]
    ['12 ms', '4.6 s', '1 min 23 s', '2 h 1 min', '2 d 7 h', '1 h']
    """
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < 3600:
        parts = (whole // 60, "min"), (whole % 60, "s")
    elif whole < 86400:
        parts = (whole // 3600, "h"), (whole % 3600 // 60, "min")
    else:
        parts = (whole // 86400, "d"), (whole % 86400 // 3600, "h")
    return " ".join(f"{number} {unit}" for number, unit in parts if number)


def size(size_bytes: float) -> str:
    """Return a size as people say it.

    >>> [size(n) for n in (0, 999, 2048, 5 * 1024**3)]
    ['0 B', '999 B', '2.0 KiB', '5.0 GiB']
    """
    left = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if left < 1024 or unit == "TiB":
            break
        left /= 1024
    return f"{left:.0f} {unit}" if unit == "B" else f"{left:.1f} {unit}"
