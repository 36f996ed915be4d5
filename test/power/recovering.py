"""Recovers a state by the real code, and judges what came of it by what was promised."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.spool import Clock, Owner, check_live
from power.tale import ANY, NOWHERE, Seen, in_small, read_may

from rq.errors import RQError
from rq.layout import ATTACH, folder
from rq.proc import lease_holders
from rq.spool import attempts_kept, check, folders, rows
from rq.words.states import COUNTED, State

BACK = 2_000_000_000.0  # when power is back: whatever was claimed has been due


@dataclass(slots=True)
class Recovered:
    """What recovery has made of a state."""

    seen: dict[str, Seen] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    owed: dict[str, str] = field(default_factory=dict)  # to another queue: its key
    decided: dict[str, str] = field(default_factory=dict)  # key of a transaction
    handed: list[str] = field(default_factory=list)  # will be handed over once more
    known: dict[str, str] = field(default_factory=dict)  # a key: its message
    troubles: list[str] = field(default_factory=list)  # wrong whatever was promised


@dataclass(slots=True)
class Promises:
    """What the marks say up to a point."""

    may: dict[str, list[Seen]] = field(default_factory=dict)
    together: dict[str, dict[str, str]] = field(default_factory=dict)
    passed: dict[str, str] = field(default_factory=dict)  # done here: a copy there
    decided: dict[str, str] = field(default_factory=dict)  # transaction: how it stands
    known: dict[str, list[str]] = field(default_factory=dict)  # a key: whose it may be

    def copy(self) -> Promises:
        every = (self.may, self.together, self.passed, self.decided, self.known)
        return Promises(*(dict(one) for one in every))

    def take(self, said: dict[str, Any]) -> None:
        if (shown := said.get("shown")) is not None:  # all that there is of a queue
            for token in self.may:
                if token.startswith(shown):
                    self.may[token] = [Seen()]
        for msg_id, may in said.get("may", {}).items():
            self.may[msg_id] = list(read_may(may))
        self.together |= said.get("together", {})
        self.passed |= said.get("passed", {})
        self.decided |= said.get("decided", {})
        self.known |= said.get("known", {})

    def broken(self, recovered: Recovered) -> Iterator[str]:
        """Say in words what was promised and is not so."""
        yield from self._messages(recovered)
        yield from self._together(recovered)
        for here, there in self.passed.items():
            yield from _passed(recovered, here, there)
        for key, standing in self.decided.items():
            if (known := recovered.decided.get(key)) != standing:
                yield f"transaction {key} was {standing}, and is {known}"
        for key, may in self.known.items():
            if (whose := recovered.known.get(key, "")) not in may:
                yield f"{key} is of {whose!r}, allowed: {may}"

    def _messages(self, recovered: Recovered) -> Iterator[str]:
        for msg_id, may in self.may.items():
            seen = recovered.seen.get(msg_id, Seen())
            if not any(_alike(seen, one) for one in may):
                yield f"{msg_id}: {seen}, allowed: {[str(one) for one in may]}"
        for msg_id, seen in recovered.seen.items():
            if msg_id not in self.may and seen.state != "prep":
                yield f"{msg_id}: nobody has sent it, and it is {seen}"

    def _together(self, recovered: Recovered) -> Iterator[str]:
        for name, before in self.together.items():
            states = {one: recovered.seen.get(one, Seen()).state for one in before}
            stayed = {states[one] == state for one, state in before.items()}
            if len(stayed) > 1:
                yield f"{name}: some have moved on, some have not"


def _passed(found: Recovered, here: str, there: str) -> Iterator[str]:
    """A message that is done has one copy elsewhere, or owes it under its key."""
    copy, key = found.seen.get(there), found.owed.get(there)
    over = found.seen.get(here, Seen()).state in ("done", "relayed")
    if over and copy is None and key is None:
        yield f"{here} is over, and there is no {there}"
    if copy is not None and key not in (None, copy.key):
        yield f"{there} is there, and {here} will send it again"


def _alike(seen: Seen, promised: Seen) -> bool:
    if promised.state == NOWHERE:
        return seen.state == NOWHERE
    if promised.state == "prep" and not promised.txn:  # nothing was promised
        return seen.state in ("prep", NOWHERE)
    if seen.txn != promised.txn:
        return False
    if promised.count == ANY:
        return seen.state == promised.state and promised.key in ("", seen.key)
    if seen.key != promised.key or seen.state != promised.state:
        return False
    if (seen.files, seen.lease) != (promised.files, promised.lease):
        return False
    if seen.state == "que":
        wanted = (promised.count, promised.attempt, promised.due, promised.held)
        known = (seen.count, seen.attempt, seen.due, seen.held)
        more, known_more = (
            (promised.priority, promised.waits),
            (seen.priority, seen.waits),
        )
        return (*known, *known_more) == (*wanted, *more)
    return True


@contextlib.contextmanager
def power_is_back(boot: str = "boot-after") -> Iterator[None]:
    """Be the machine after the cut: nobody who held a lease is left."""
    kept, lease_holders.end_left = (
        lease_holders.end_left,
        lambda queue, prefix, grace: [],
    )
    try:
        with in_small(boot):
            yield
    finally:
        lease_holders.end_left = kept


def recover(root: Path, names: tuple[str, ...] = ()) -> Recovered:
    """Recover the queue `q` in `root`, or those of `names`, twice, and stop them."""
    if not names:
        return _recover(Owner(root, Clock(BACK)))
    every = Recovered()
    for name in names:
        found = _recover(Owner(root, Clock(BACK), name))
        every.troubles += [f"{name}: {one}" for one in found.troubles]
        every.seen |= {f"{name}/{token}": one for token, one in found.seen.items()}
        every.ids |= {f"{name}/{token}": one for token, one in found.ids.items()}
        every.owed |= found.owed
        every.decided |= {f"{name}/{key}": one for key, one in found.decided.items()}
    return every


def _recover(owner: Owner) -> Recovered:
    found = Recovered()
    try:
        owner.open()
        found.seen = look(owner, found)
        found.owed = _owed(owner)
        found.decided = _decided(owner)
        found.known = _known(owner)
        owner.again()
        _same(found, look(owner, found), "a second recovery")
        owner.apply()
        _check(owner, found)
        _check_attempts(owner, found)
        _same(found, look(owner, found), "settling")
        owner.stop()
        _check_stopped(owner, found)
        owner.open()
        if not owner.opened.clean:
            found.troubles.append("a stop was not clean")
        _same(found, look(owner, found), "a stop")
        if _known(owner) != found.known:
            found.troubles.append(f"keys were {found.known}, are {_known(owner)}")
    except (RQError, OSError, ValueError, KeyError, AssertionError) as error:
        found.troubles.append(f"it cannot be recovered: {error!r}")
    finally:
        with contextlib.suppress(OSError):
            owner.crash()
    return found


def _check_attempts(owner: Owner, found: Recovered) -> None:
    """How each retry of a waiting message came about is kept, whole."""
    for msg_id in folders.list_state(owner.queue, State.QUE):
        path = f"{folder(State.QUE, msg_id)}"
        message = owner.spool.read(msg_id)
        kept = attempts_kept.listed(path, owner.spool.dir_fd)["attempts"]
        if len(kept) < min(message.count, message.attempt):
            found.troubles.append(
                f"{msg_id}: {message.count} retries, {len(kept)} attempts are kept"
            )
        for name in folders.names_in(owner.queue, f"{path}/attempts"):
            if folders.read_json(f"{path}/attempts/{name}", owner.spool.dir_fd) is None:
                found.troubles.append(f"{msg_id}: {name} is not whole")


def _same(found: Recovered, again: dict[str, Seen], by: str) -> None:
    for msg_id in found.seen.keys() | again.keys():
        before, after = found.seen.get(msg_id), again.get(msg_id)
        if before != after:
            found.troubles.append(f"{msg_id} changed by {by}: {before}, {after}")


def look(owner: Owner, found: Recovered) -> dict[str, Seen]:
    """See every message, by what the spool knows and by what lies on disk."""
    spool, seen, tokens = owner.spool, {}, {}
    keys = {
        accepted.msg_id: key
        for key, accepted in spool.keys.items()
        if not accepted.joined
    }
    listed = {
        msg_id for state in COUNTED for msg_id in folders.list_state(owner.queue, state)
    }
    for msg_id in listed | spool.entries.keys():
        state = spool.find(msg_id)
        if state is None:
            continue
        try:
            one = _see(owner, msg_id, state, keys.get(msg_id, ""))
            tokens[msg_id] = spool.read(msg_id).src or msg_id
        except RQError as error:
            one = Seen(state=str(state))
            if state is not State.PREP:
                found.troubles.append(f"{msg_id} is half there: {error} ({state})")
        if (token := tokens.get(msg_id, msg_id)) in seen:
            found.troubles.append(f"{token} is there twice: {seen[token]}, {one}")
        seen[token], found.ids[token] = one, msg_id
    for token, one in _rows(owner):
        if token in seen:
            found.troubles.append(f"{token} is a message and a row: {seen[token]}")
        seen[token] = one
    return seen


def _rows(owner: Owner) -> Iterator[tuple[str, Seen]]:
    """See the rows that have still to become messages; Damaged when they are not there."""
    for file in owner.spool.txns.stock:
        for line in rows.read(owner.queue, file):
            yield json.loads(line)["src"], Seen("que", due=file.due)


def _owed(owner: Owner) -> dict[str, str]:
    """Return what other queues are owed, by its token there."""
    return {
        f"{one.dest}/{one.message.get('src')}": one.key
        for one in owner.spool.owed.values()
    }


def _decided(owner: Owner) -> dict[str, str]:
    txns = owner.spool.txns
    standing = {key: str(txns.by_id[one].standing) for key, one in txns.by_key.items()}
    # A user's key is kept behind the user's name: a client says it without.
    return {key.rpartition("\t")[2]: how for key, how in standing.items()}


def _known(owner: Owner) -> dict[str, str]:
    """Return the messages of keys that have joined one, and those that were accepted
    last under a unique key."""
    keys = owner.spool.keys.items()
    joined = {f"joined {key}": one.msg_id for key, one in keys if one.joined}
    last = {f"last {key}": one.msg_id for key, one in owner.spool.uniques.last.items()}
    stands = {f"stands {one}": word for one, word in owner.spool.standings.items()}
    return joined | last | stands


def _see(owner: Owner, msg_id: str, state: State, key: str) -> Seen:
    spool = owner.spool
    message = spool.read(msg_id)
    entry = spool.entries.get(msg_id)
    if entry is not None and entry.results is not None:
        with contextlib.suppress(OSError):
            spool.settle(msg_id)  # it gets its files then
    files = tuple(_files(owner.queue.path / (spool.place(msg_id) or ""), message))
    if entry is not None and state is State.QUE:
        known = (entry.count, entry.attempt, entry.due, entry.held, entry.after)
        held_there = message.held is not None
        by_file = (
            message.count,
            message.attempt,
            message.due,
            held_there,
            message.wait,
        )
        if (*known, entry.rank.priority) != (*by_file, message.priority):
            raise RQError(f"memory says {known}, the file {message}")
    txn, held = spool.txns.of(msg_id), spool.leases.get(msg_id)
    return Seen(
        str(state),
        message.count,
        message.attempt,
        message.due,
        files,
        key,
        "" if txn is None else txn.txn_id,
        "" if held is None else held.token,
        message.held is not None,
        message.priority,
        0 if message.wait is None else len(message.wait.ids),
    )


def _files(place: Path, message: Any) -> Iterable[str]:
    for name, one in sorted(message.attachments.items()):
        try:
            data = (place / ATTACH / name).read_bytes()
        except OSError as error:
            raise RQError(f"its attachment {name} cannot be read: {error}") from None
        if hashlib.sha256(data).hexdigest() != one.sha256:
            raise RQError(f"its attachment {name} is not what was attached")
    return sorted(one.sha256 for one in message.attachments.values())


def _check(owner: Owner, found: Recovered) -> None:
    """Each message lies in one place, and the counters know it."""
    for one in check_live(owner.spool):
        if not _unpromised(owner, one):
            found.troubles.append(f"after recovery: {one}")
    for msg_id in found.ids.values():
        there = [
            state
            for state in COUNTED
            if (owner.queue.path / folder(state, msg_id)).exists()
        ]
        if len(there) != 1:
            found.troubles.append(f"{msg_id} lies in {there}")


def _check_stopped(owner: Owner, found: Recovered) -> None:
    for one in check.check(owner.queue):
        if not _unpromised(owner, one):
            found.troubles.append(f"after a stop: {one}")


def _unpromised(owner: Owner, problem: check.Problem) -> bool:
    """Whether it concerns a prepared message, of which nothing was promised."""
    return (owner.queue.path / "prep" / problem.subject).exists()


def clear(root: Path) -> None:
    shutil.rmtree(root, ignore_errors=True)
