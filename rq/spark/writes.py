"""What a job writes becomes visible with the end of its batch, once, whatever is killed.

1. A directory `spark/writes/QUEUE/KEY/` names the places, before anything is put there.
2. Tasks write files that no reader sees (`staging`).
3. When the function has returned, the key is noted beside every message (`sending`).
4. The list of all files is written durably: this decides.
5. The files get their names, and each place a manifest, `_rq/NAME.json`, last.

A later start that finds the note does 5 again if 4 was done; if not, nothing was written.
What a start that was killed before 4 has left is removed by the next one that writes. What
was decided is remembered for a week, and for as long as one of its messages may run again:
a queue that was down, or a message in err that is retried, comes back later than that.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypedDict, cast

from rq import config
from rq.config import files
from rq.days import Days
from rq.errors import BadInput, Busy, RQError
from rq.proc import locks
from rq.spark import day_files, delta, rejected, table_places, targets, unfinished
from rq.spark.delta import Held, Overtaken
from rq.spark.delta_goals import MERGE, Goal, Plan
from rq.spark.staging import Stage, Staged
from rq.spark.targets import OURS, Target
from rq.spark.unfinished import DONE, LIST, LOCK, PLACES
from rq.tables import Name
from rq.words.nesting import Json
from rq.words.wording import several

HELD = "held.json"  # why a decision is not done
GIVEN_UP = "given-up.json"  # tables of it that a person does not want any more
TABLES = "tables"  # directory of Delta tables
_AT_ONCE = 16  # requests to a store

_LISTS = ("stats", "nulls", "key")  # of a plan, which JSON keeps as lists
Write = Callable[[Stage], list[Staged]]


@dataclass(frozen=True, slots=True)
class Table:
    """A table that is written to a place."""

    stage: Stage
    files: list[Staged] = field(default_factory=list)
    plan: Plan | None = None  # of a table of Delta
    is_given_up: bool = False  # by a person: it is not written

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def place(self) -> str:
        """Where it is, for people."""
        if self.plan is not None:
            return f"the table {self.plan.name}"
        return self.stage.where.partition("?")[0]

    @property
    def text(self) -> str:
        end = ", which were given up" if self.is_given_up else ""
        return f"{several(self.rows, 'row')} to {self.place}{end}"


# The list of what is decided.
_Decision = TypedDict(
    "_Decision",
    {
        "name": str,  # how files and manifest begin
        "from": Mapping[str, Json],  # the messages that the tables are made of
        "time": float,
        "messages": list[str],  # all of them; no older RQ wrote these
        "tables": list[dict[str, Any]],
    },
)


class Writes:
    """The tables that one call of a job writes."""

    def __init__(self, queue: str, batch_id: str) -> None:
        self.key = secrets.token_hex(12)
        self.tables: list[Table] = []
        self._queue = queue
        self._name = f"{queue}-{batch_id}-{self.key[:8]}"  # how its files begin
        self._stages: list[Stage] = []
        self._of_before = 0  # tables of earlier calls
        self._lock: int | None = None
        self._marks: dict[str, float] = {}  # up to when increments are taken
        self._mark_locks: list[int] = []

    def close(self) -> None:
        """Remove what was not decided, as far as that can be."""
        while self._mark_locks:
            os.close(self._mark_locks.pop())
        lock, self._lock = self._lock, None
        if lock is None:
            return
        if not unfinished.has(self._own, LIST):
            with contextlib.suppress(OSError, RQError):
                unfinished.discard(self._stages)
                files.remove_dir(self._own)
        os.close(lock)

    def add(self, where: str, by: Sequence[str], write: Write) -> Table:
        """Let `write` put the files of a table below a place."""
        targets.target(where).demand()
        stage = Stage(where, self._next_key(), tuple(by))
        return self._added(Table(stage, self._staged(stage, write)))

    def add_to(self, goal: Goal, write: Write) -> tuple[Table, Table | None]:
        """Let `write` put files of a table of Delta, and of the one beside it those of rows
        that break its contract; BadInput if they do not fit it."""
        mine = self.tables[self._of_before :]
        if any(t.plan is not None and t.plan.name == goal.name for t in mine):
            raise BadInput(
                f"q.table: {goal.name} is written twice by this batch: unite the rows"
            )
        targets.target(goal.where).demand()
        key = self._next_key()
        stage = Stage(goal.where, key, goal.by, is_delta=True, contract=goal.contract)
        if goal.contract:
            self._stages.append(stage.aside)
        staged = self._staged(stage, write)
        kept = [file for file in staged if not file.is_rejected]
        aside = [file for file in staged if file.is_rejected]
        return self._planned(goal, stage, kept), self._aside(goal, stage.aside, aside)

    def _aside(self, goal: Goal, stage: Stage, staged: list[Staged]) -> Table | None:
        """Add the rows that break the contract to the table beside that of the goal."""
        if not staged:
            return None
        beside = Goal(name=goal.name + rejected.SUFFIX, where=stage.where)
        return self._planned(beside, stage, staged)

    def _planned(self, goal: Goal, stage: Stage, staged: list[Staged]) -> Table:
        place = targets.target(goal.where)
        return self._added(Table(stage, staged, delta.plan(goal, place, stage, staged)))

    def next_call(self) -> None:
        """Let the job be called once more: its tables are added to those of before."""
        self._of_before = len(self.tables)

    def _next_key(self) -> str:
        return f"{self.key}/{len(self._stages)}"

    def _staged(self, stage: Stage, write: Write) -> list[Staged]:
        self._stages.append(stage)
        self._begin()
        return write(stage)

    def _added(self, table: Table) -> Table:
        self.tables.append(table)
        return table

    @property
    def is_any(self) -> bool:
        """Whether there is something to be decided."""
        return bool(self.tables or self._marks)

    def since(self, name: str) -> tuple[float | None, float]:
        """Return up to when the increment of before was taken, None without one, and up
        to when this one is, if it is decided; until then no other batch takes one."""
        noted = Days(config.find_root(None), self._queue)
        if name not in self._marks:
            self._mark_locks.append(noted.lock_mark(name))
            carry_out(self._queue)
        before = noted.marked(name)
        self._marks.setdefault(name, max(time.time(), before or 0.0))
        return before, self._marks[name]

    def decide(
        self,
        origin: Mapping[str, Json],
        messages: Sequence[str] = (),
        about: Mapping[str, Any] | None = None,
    ) -> None:
        """From now on all tables are written, whatever happens; `origin`: what readers
        see of the messages that they are made of, `messages`: their ids, `about`: what
        it does to days (`day_files`)."""
        if not self.is_any:
            return
        if self._marks:
            self._begin()
            Days(config.find_root(None), self._queue).expect(self.key)
            about = {**(about or {}), day_files.MARKS: self._marks}
        decision: _Decision = {
            "name": self._name,
            "from": origin,
            "time": time.time(),
            "messages": list(messages),
            "tables": [asdict(table) for table in self.tables],
        }
        files.write_state(self._own / LIST, {**(about or {}), **decision})

    def publish(self) -> bool:
        """Let all tables be seen. What is decided may be done again. False: some tables
        of a day have changed since it was planned, and are as they were."""
        return not self.is_any or len(_publish(self._own)) == len(self.tables)

    @property
    def listed(self) -> Path:
        """A file of its own, for the engine that lists the files of a table."""
        return self._own / "listed.json"

    @property
    def _own(self) -> Path:
        return above(self._queue) / self.key

    def _begin(self) -> None:
        """Note durably where something will be put; first, remove what others left."""
        if self._lock is None:
            self._lock = unfinished.enter(self._own)
        stages = [asdict(stage) for stage in self._stages]
        files.write_state(self._own / PLACES, stages)


def above(queue: str) -> Path:
    """Return the directory in which the jobs of a queue note what they write."""
    return config.find_root(None).spark / "writes" / queue


def tables(queue: str) -> Path:
    """Return the directory of the Delta tables of a queue."""
    return config.find_root(None).spark / TABLES / queue


def finish(queue: str, key: str) -> list[Table] | None:
    """Publish what an earlier start has decided; None if it decided nothing."""
    own = above(queue) / key
    # That start may live and decide yet; and messages of one batch may have gone into
    # several: one of these at a time.
    try:
        lock = locks.lock_waiting(own / LOCK)
    except FileNotFoundError:
        return None
    try:
        return _publish(own) if unfinished.has(own, LIST) else None
    finally:
        os.close(lock)


def carry_out(queue: str) -> None:
    """Publish what was decided about days by processes that were killed."""
    noted = Days(config.find_root(None), queue)
    for key in noted.expected():
        if not is_held(queue, key):
            finish(queue, key)
            noted.settle(key)


def is_held(queue: str, key: str) -> bool:
    """Whether the start that has this key lives."""
    return locks.is_locked(above(queue) / key / LOCK)


def is_held_open(own: Path) -> bool:
    """Whether something is decided, and not done."""
    return unfinished.has(own, LIST) and not unfinished.has(own, DONE)


def is_decided(queue: str, key: str) -> bool:
    """Whether an earlier start has decided something."""
    return unfinished.has(above(queue) / key, LIST)


# ---- names


def _publish(own: Path) -> list[Table]:
    """Do what a list has decided, or what of it is not done; return its tables."""
    decided = cast("_Decision", json.loads((own / LIST).read_bytes()))
    entries = decided_tables(own)
    tables = [table for table, _ in entries]
    if unfinished.has(own, DONE):
        return tables
    queue = own.parent.name
    day_files.take_away(queue, decided)
    seen = list[tuple[int, Table]]()
    for number, (table, name) in enumerate(entries):
        if table.is_given_up:
            continue
        place = targets.target(table.stage.where)
        with contextlib.suppress(Overtaken), place.translated(), _noted(own):
            if _is_ordered_by_decisions(table) and not delta.has(place, name):
                _finish_earlier(own, table, decided["time"])
            _let_be_seen(place, table, name, decided)
            seen.append((number, table))
    written = [(number, table.stage.where, table.files) for number, table in seen]
    day_files.note(queue, own.name, decided, written)
    files.write_state(own / DONE, {"time": time.time()})
    with contextlib.suppress(OSError):  # what no reader sees
        unfinished.discard([table.stage for table in tables])
    left = {number for number, _ in seen}
    return [t for n, t in enumerate(tables) if n in left or t.is_given_up]


def _is_ordered_by_decisions(table: Table) -> bool:
    """Whether these rows take the place of those of earlier decisions."""
    if table.plan is None or not table.files:
        return False
    return table.plan.mode == MERGE and not table.plan.order


def _finish_earlier(own: Path, table: Table, before: float) -> None:
    """Finish what was decided earlier about a table, by any queue: else its rows would
    take the place of these. Held, if it is held for this table."""
    assert table.plan is not None
    for earlier in _earlier(own, table.stage.where, before):
        queue, key = earlier.parent.name, earlier.name
        try:
            finish(queue, key)
        except RQError as error:
            if not _lacks(earlier, table.stage.where):
                continue  # it is another table of it that cannot be finished
            if isinstance(error, Held):
                raise Held(delta.behind(table.plan.name, queue, key)) from None
            if earlier.parent == own.parent:
                raise
            # Of another queue, whose other tables may be where this one has no rights.
            name = table.plan.name
            raise Busy(f"{name}: an earlier batch of {queue}: {error}") from None


def _earlier(own: Path, where: str, before: float) -> list[Path]:
    """Return what was decided about a place before, and is not done, in its order."""
    times: dict[Path, float] = {}
    for path in own.parent.parent.glob(f"*/*/{LIST}"):
        if path.parent == own or unfinished.has(path.parent, DONE):
            continue
        with contextlib.suppress(FileNotFoundError):  # its queue has removed it
            at, places = _decided_for(path)
            if where in places:
                times[path.parent] = at
    return sorted((p for p, at in times.items() if at < before), key=times.__getitem__)


def _decided_for(path: Path) -> tuple[float, list[str]]:
    """Return when a list was decided, and for which places; BadInput if it is damaged: its
    rows may have to come first."""
    data = path.read_bytes()
    try:
        decided = cast("_Decision", json.loads(data))
        places = [entry["stage"]["where"] for entry in decided["tables"]]
        return float(decided["time"]), places
    except (ValueError, LookupError, TypeError):
        raise BadInput(
            f"{path} is damaged, and may be of rows that come before these: bring it "
            "back, or remove its directory and with it its rows"
        ) from None


def _lacks(own: Path, where: str) -> bool:
    """Whether a table of Delta is without what a decision has for it."""
    return any(
        table.files and not table.is_given_up
        and not delta.has(targets.target(where), app_id)
        for table, app_id in decided_tables(own)
        if table.stage.where == where and table.plan is not None
    )  # fmt: skip


def _name_of(decided: _Decision, number: int) -> str:
    """Return how the files of a table begin, which is its id there as well."""
    return decided["name"] + (f"-{number}" if number else "")


def decided_tables(own: Path) -> list[tuple[Table, str]]:
    """Return the tables of a decision, each with the id that the batch has there."""
    decided = cast("_Decision", json.loads((own / LIST).read_bytes()))
    given_up = _given_up(own)
    return [
        (_table(entry, given_up), _name_of(decided, number))
        for number, entry in enumerate(decided["tables"])
    ]


def _given_up(own: Path) -> list[str]:
    try:
        return list(json.loads((own / GIVEN_UP).read_bytes())["tables"])
    except FileNotFoundError:
        return []


@contextlib.contextmanager
def _noted(own: Path) -> Iterator[None]:
    """Do something; note why if the files are held."""
    try:
        yield
    except Held as error:
        files.write_state(own / HELD, {"why": str(error), "time": time.time()})
        raise


def _table(entry: Mapping[str, Any], given_up: Sequence[str] = ()) -> Table:
    files = [Staged(**file) for file in entry["files"]]
    plan = entry.get("plan")  # older lists have none
    if plan is not None:
        lists = {name: tuple(plan.get(name, ())) for name in _LISTS}
        removes = plan.get("removes")
        plan = Plan(**{**plan, **lists, "removes": removes and tuple(removes)})
    is_given_up = plan is not None and plan.name in given_up
    return Table(unfinished.stage(entry["stage"]), files, plan, is_given_up)


def _let_be_seen(place: Target, table: Table, name: str, decided: _Decision) -> None:
    """Give files their names, then let what readers go by, a manifest or the log of a
    table of Delta, name them."""
    manifest = f"{OURS}/{name}.json"
    about = delta.Decided(name, decided["time"], decided["from"])
    if table.plan is not None:
        if not delta.is_wanted(place, table.stage, table.plan, about):
            return
    elif place.has(manifest):
        return
    if table.plan is not None and table.plan.mode == MERGE:
        staged = {f"{table.stage.inner}/{file.inner}": file for file in table.files}
        _commit(place, table, staged, about)
        return
    named = {
        f"{file.folder}/{name}-{number:05}.parquet".lstrip("/"): file
        for number, file in enumerate(table.files)
    }
    _name_all(place, table, named)
    if table.plan is not None:
        _commit(place, table, named, about)
    else:
        place.put(manifest, _manifest(table, named, decided))


def _commit(
    place: Target, table: Table, named: Mapping[str, Staged], about: delta.Decided
) -> None:
    """Let a table of Delta have its files; of one in a store it is noted where it is."""
    assert table.plan is not None
    if not place.is_store:
        table_places.demand_here(table.plan.name, place.path)
        delta.commit(place, table.stage, named, table.plan, about)
        return
    queue, _, own = table.plan.name.rpartition("/")
    name = Name(queue or str(about.origin["queue"]), own)
    table_places.note(name, place.where)
    delta.commit(place, table.stage, named, table.plan, about)
    table_places.note(name, place.where)


def _name_all(place: Target, table: Table, named: Mapping[str, Staged]) -> None:
    pairs = [(f"{table.stage.inner}/{f.inner}", to) for to, f in named.items()]
    with ThreadPoolExecutor(_AT_ONCE if place.is_store else 1) as pool:
        for _ in pool.map(lambda pair: _name(place, *pair), pairs):
            pass
    place.sync({os.path.dirname(to) for to in named})


def _manifest(table: Table, named: Mapping[str, Staged], decided: _Decision) -> bytes:
    about = {
        **decided["from"],
        "time": decided["time"],
        "rows": table.rows,
        "by": table.stage.by,
        "files": [
            {"file": to, "rows": file.rows, "bytes": file.size}
            for to, file in named.items()
        ],
    }
    return json.dumps(about, ensure_ascii=False).encode()


def _name(place: Target, staged: str, to: str) -> None:
    """Give a file its name, unless it has it."""
    try:
        place.name_file(staged, to)
    except OSError as error:
        if place.has(staged):
            raise
        if not place.has(to):
            raise BadInput(
                f"{place.name}: somebody has removed {staged}, which this batch wrote"
            ) from error
