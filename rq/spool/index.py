"""A cache of what recovery needs of live messages, so that it need not read them all.

One line of header, lines of up to a thousand entries, then delivery keys, then
transactions, a line that says it is whole, with a checksum of all before it. It may be
older than the journal: the fold repeats the rest.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict
from zlib import crc32

import orjson

from rq.files import durable
from rq.journal.checkpoint import read_whole
from rq.layout import JOURNAL, QueueDir
from rq.message.after import Fail, Rule, Wait
from rq.message.rank import PLAIN, from_json
from rq.spool.entry import Entry, came
from rq.spool.leases import EndedLeases
from rq.spool.memory import NO_RANKS, Accepted, Ranks
from rq.spool.store import Spool
from rq.spool.transactions import Transaction, Transactions
from rq.spool.uniques import Last, Uniques
from rq.words.states import State

VERSION = 1
_CHUNK = 1000
_QUE = State.QUE
_TMP = f"{JOURNAL}/.index.tmp"

# A message, its due, seq, count, attempt, since, key, and its rank, which an earlier
# version of RQ does not write.
_Row = Sequence[Any]


class _More(TypedDict, total=False):
    """A line that holds no entries."""

    keys: dict[str, tuple[str, float, str]]
    txns: list[list[Any]]
    preparers: dict[str, str]  # by transaction; an older RQ reads past it
    ended: list[list[Any]]
    held: list[str]
    after: list[str]  # the messages that `waits` means by their places here
    waits: dict[str, tuple[str, str, list[int]]]  # rule, fail, places
    uniques: dict[str, str]
    last: dict[str, tuple[str, float]]


@dataclass(slots=True)
class Index:
    """What was known as of `seq`."""

    journal: str
    seq: int
    # As if each waited: which do is told by the folders. There may be a million, so a
    # start takes them over as they are, by the very strings that are their ids here.
    entries: dict[str, Entry] = field(default_factory=dict)
    keys: dict[str, Accepted] = field(default_factory=dict)
    txns: list[list[Any]] = field(default_factory=list)
    preparers: dict[str, str] = field(default_factory=dict)  # by transaction
    ended: list[list[Any]] = field(default_factory=list)  # leases
    held: set[str] = field(default_factory=set)
    waits: dict[str, Wait] = field(default_factory=dict)  # for other messages
    uniques: dict[str, str] = field(default_factory=dict)  # unique keys of entries
    last: dict[str, Last] = field(default_factory=dict)  # by unique key: who came last
    unique: tuple[int, ...] | None = (
        None  # the params of unique keys; None: no such keys
    )
    compares: tuple[int, ...] = ()  # the params that its entries' keys are made of
    ranks: Ranks = NO_RANKS  # the params that their ranks are made of


def read(queue: QueueDir) -> Index | None:
    """Return the index; None when it is missing or not whole. OSError: it cannot be read
    now, and segments may be gone whose keys it alone knows."""
    return read_whole(queue.index, _read_lines)


def seq_of(queue: QueueDir, journal: str) -> int | None:
    """Return the event that the index follows, without reading it all; None when there
    is none that recovery would use. OSError: it cannot be read now."""
    head = read_whole(queue.index, _read_head)
    return head.seq if head is not None and head.journal == journal else None


def _read_head(lines: Iterator[bytes]) -> Index | None:
    return _headed(next(lines, b""))


def _headed(first: bytes) -> Index | None:
    """Return the index that a header begins; None when another version wrote it."""
    head = orjson.loads(first)
    if head["version"] != VERSION:
        return None
    compares = tuple(head.get("compares", ()))
    key, fair = head.get("ranks", NO_RANKS)
    ranks = tuple(key), tuple(fair)
    index = Index(head["journal"], int(head["seq"]), compares=compares, ranks=ranks)
    if (unique := head.get("unique")) is not None:
        index.unique = tuple(unique)
    return index


def _read_lines(lines: Iterator[bytes]) -> Index | None:
    first = next(lines, b"")
    index = _headed(first)
    if index is None:
        return None
    before, crc = 0, crc32(first)
    for text in lines:
        line = orjson.loads(text)
        before, crc = crc, crc32(text, crc)
        if isinstance(line, dict) and "end" in line:
            return index if line["end"] == before else None
        _take_line(index, line)
    return None


def _take_line(index: Index, line: list[_Row] | _More) -> None:
    if isinstance(line, list):
        for msg_id, due, seq, count, attempt, since, key, *values in line:
            rank = from_json(values[0]) if values and values[0] else PLAIN
            index.entries[msg_id] = Entry(
                _QUE, _QUE, due, seq, count, attempt, came(due, since), key, rank
            )
        return
    index.keys.update((k, Accepted(*v)) for k, v in line.get("keys", {}).items())
    index.last.update((k, Last(*v)) for k, v in line.get("last", {}).items())
    index.txns += line.get("txns", ())
    index.preparers.update(line.get("preparers", {}))
    index.ended += line.get("ended", ())
    index.held.update(line.get("held", ()))
    index.uniques.update(line.get("uniques", {}))
    if "waits" in line:
        places = line["after"]
        for msg_id, (rule, fail, ats) in line["waits"].items():
            ids = tuple(places[at] for at in ats)
            index.waits[msg_id] = Wait(ids, Rule(rule), Fail(fail))


def lines(
    journal: str,
    seq: int,
    entries: Mapping[str, Entry],
    keys: Mapping[str, Accepted],
    txns: Transactions,
    compares: Sequence[int] = (),
    ended: EndedLeases | None = None,
    ranks: Ranks = NO_RANKS,
    uniques: Uniques | None = None,
) -> Iterator[bytes]:
    """Give the lines of an index, which may be written slowly. An entry that changes
    meanwhile may be old or new in it: recovery folds the events after `seq` over it."""
    crc = 0
    head = {"compares": list(compares), "ranks": ranks}
    if uniques is not None and uniques.on:
        head["unique"] = list(uniques.compares or ())
    for value in _values(journal, seq, entries, keys, txns, head, ended, uniques):
        text = orjson.dumps(value) + b"\n"
        crc = crc32(text, crc)
        yield text
    yield orjson.dumps({"end": crc}) + b"\n"


def lines_of(spool: Spool) -> Iterator[bytes]:
    """Give the lines of the index of a spool whose events are durable."""
    journal = spool.journal
    return lines(
        journal.journal_id,
        journal.position.seq,
        spool.entries,
        spool.keys,
        spool.txns,
        spool.compares,
        spool.ended_leases,
        spool.ranks,
        spool.uniques,
    )


def _values(
    journal: str,
    seq: int,
    entries: Mapping[str, Entry],
    keys: Mapping[str, Accepted],
    txns: Transactions,
    head: Mapping[str, object],
    ended: EndedLeases | None = None,
    uniques: Uniques | None = None,
) -> Iterator[object]:
    yield {"version": VERSION, "journal": journal, "seq": seq, **head}
    ids = list(entries)
    for at in range(0, len(ids), _CHUNK):
        chunk = ids[at : at + _CHUNK]
        yield _chunk(entries, chunk)
        if held := [i for i in chunk if (e := entries.get(i)) is not None and e.held]:
            yield {"held": held}
        yield from _wait_lines(entries, chunk)
        if uniques is not None and uniques.on:
            yield {"uniques": _unique_keys(entries, chunk)}
    names = list(keys)
    for at in range(0, len(names), _CHUNK):
        some = names[at : at + _CHUNK]
        yield {"keys": {key: keys[key].to_json() for key in some if key in keys}}
    yield from _last_lines(uniques.last if uniques is not None else {})
    for rows in ended.rows(_CHUNK) if ended is not None else ():
        yield {"ended": rows}
    yield from _txn_lines(list(txns.by_id.values()))


def _wait_lines(entries: Mapping[str, Entry], ids: list[str]) -> Iterator[_More]:
    """Give what messages wait for. A predecessor that many name is written once a line,
    and a line holds a thousand names or those of one message."""
    places: dict[str, int] = {}
    waits: dict[str, tuple[str, str, list[int]]] = {}
    for msg_id in ids:
        entry = entries.get(msg_id)
        if entry is None or (wait := entry.after) is None:
            continue
        ats = [places.setdefault(place, len(places)) for place in wait.ids]
        waits[msg_id] = (str(wait.rule), str(wait.fail), ats)
        if len(places) >= _CHUNK:
            yield {"after": list(places), "waits": waits}
            places, waits = {}, {}
    if waits:
        yield {"after": list(places), "waits": waits}


def _unique_keys(entries: Mapping[str, Entry], ids: list[str]) -> dict[str, str]:
    there = ((msg_id, entries.get(msg_id)) for msg_id in ids)
    return {i: e.unique for i, e in there if e is not None and e.unique is not None}


def _last_lines(last: Mapping[str, Last]) -> Iterator[object]:
    names = list(last)
    for at in range(0, len(names), _CHUNK):
        chunk = names[at : at + _CHUNK]
        yield {"last": {key: list(last[key]) for key in chunk if key in last}}


def _txn_lines(txns: list[Transaction]) -> Iterator[dict[str, Any]]:
    chunk: list[Transaction] = []
    size = 0
    for txn in txns:
        chunk.append(txn)
        size += 1 + len(txn.members) + len(txn.rows)
        if size >= _CHUNK:
            yield _txn_line(chunk)
            chunk, size = [], 0
    yield _txn_line(chunk)


def _txn_line(txns: list[Transaction]) -> dict[str, Any]:
    preparers = {txn.txn_id: txn.preparer for txn in txns if txn.preparer is not None}
    return {"txns": [txn.to_json() for txn in txns], "preparers": preparers}


def _chunk(entries: Mapping[str, Entry], ids: list[str]) -> list[list[Any]]:
    chunk = []
    for msg_id in ids:
        entry = entries.get(msg_id)
        if entry is not None and entry.state in (State.QUE, State.RUN):
            chunk.append(
                [
                    msg_id,
                    entry.due,
                    entry.seq,
                    entry.count,
                    entry.attempt,
                    entry.since,
                    entry.key,
                    entry.rank.to_json(),
                ]
            )
    return chunk


class Writing:
    """An index on its way to disk, a slice at a time."""

    def __init__(self, dir_fd: int, source: Iterator[bytes]) -> None:
        """`dir_fd`: the directory of the queue."""
        self._dir_fd = dir_fd
        self._source = source
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        fd = os.open(_TMP, flags, durable.FILE_MODE, dir_fd=dir_fd)
        self._file = os.fdopen(fd, "wb")

    def write_slice(self, chunks: int = 4) -> bool:
        """Write some lines; return whether more are left."""
        for _ in range(chunks):
            text = next(self._source, None)
            if text is None:
                return False
            self._file.write(text)
        return True

    def finish(self) -> None:
        """Make the new index the index, durably; may be called in a thread."""
        self._file.flush()
        durable.sync_open(self._file.fileno())
        self._file.close()
        durable.crash_point("index:before-rename")
        durable.move(_TMP, f"{JOURNAL}/index", self._dir_fd)
        durable.sync_path(JOURNAL, self._dir_fd)
        durable.crash_point("index:after-rename")

    def abandon(self) -> None:
        self._file.close()
        durable.unlink(_TMP, self._dir_fd)
