"""What a decision does to days of tables: it notes them, and a day that was made again takes
the place of the files that it was made of.

Files are taken away in this order: the manifest stops to name them, then they go; the new ones
get their names after that. So a reader sees no row twice, and for moments some of a day not
at all. All of it may be done again.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rq import config, days
from rq.days import Batch, Days, Part
from rq.errors import Damaged
from rq.spark import targets
from rq.spark.staging import Staged
from rq.spark.targets import OURS

# Which of a decision each is, where, and its files; those that were carried out.
Tables = Sequence[tuple[int, str, Sequence[Staged]]]
SCRIPT, DAY, CALLS, REMOVES = "script", "day", "calls", "removes"  # of a decision
MARKS = "marks"
_REPLACE = "replace_by"  # the mode of a plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """Files of one batch that go."""

    where: str
    manifest: str
    files: Sequence[str]


def of_script(script: str, ids: Sequence[str]) -> dict[str, Any]:
    """Return what the decision of a batch says of itself, for days."""
    return {SCRIPT: script, CALLS: [list(ids)]}


def of_day(
    day: str, script: str, inputs: Sequence[Batch], calls: Sequence[Sequence[str]]
) -> dict[str, Any]:
    """Return what a decision says that makes a day again, which is made of batches, by
    calls of the job."""
    removes = [asdict(_removal(part)) for batch in inputs for part in batch.parts]
    groups = [list(group) for group in calls]
    return {SCRIPT: script, DAY: day, CALLS: groups, REMOVES: removes}


def _removal(part: Part) -> Removal:
    place = targets.target(part.place)
    with place.translated():
        data = place.read(f"{OURS}/{part.manifest}.json")
    listed = json.loads(data)["files"] if data else []
    names = [file["file"] for file in listed]
    mine = [name for name in names if days.day_of(os.path.dirname(name)) == part.day]
    return Removal(where=part.place, manifest=part.manifest, files=mine)


# ---- carrying out


def take_away(queue: str, decided: Mapping[str, Any]) -> None:
    """Remove the files whose place a decision takes."""
    if not decided.get(REMOVES):
        return
    held = Days(config.find_root(None), queue).lock_files()
    try:
        for entry in decided[REMOVES]:
            _take(Removal(**entry))
    finally:
        os.close(held)


def _take(removal: Removal) -> None:
    place, name = targets.target(removal.where), f"{OURS}/{removal.manifest}.json"
    with place.translated():
        data = place.read(name)
        about = json.loads(data) if data else {"files": []}
        stays = [f for f in about["files"] if f["file"] not in set(removal.files)]
        if data and len(stays) < len(about["files"]):
            rows = sum(file["rows"] for file in stays)
            place.put(
                name, json.dumps({**about, "rows": rows, "files": stays}).encode()
            )
        place.remove(removal.files)


def note(queue: str, key: str, decided: Mapping[str, Any], tables: Tables) -> None:
    """Note which days have got rows by a decision that was carried out; by one of an
    older RQ, whose script is not known, none."""
    noted = Days(config.find_root(None), queue)
    if decided.get(MARKS):
        noted.mark(decided[MARKS])
        noted.settle(key)
    if not decided.get(SCRIPT):
        return
    day = decided.get(DAY, "")
    batch = Batch(
        name=decided["name"],
        decided=decided["time"],
        script=decided[SCRIPT],
        groups=decided[CALLS],
        parts=list(_parts(decided["name"], day, tables)),
    )
    try:
        noted.note(batch, day, _gone(decided, tables), _replaced(decided, batch))
    except Damaged as error:
        if day:
            raise
        # Its rows are there, and it has ended; that this is so is not to fail it.
        print(f"rq: days of {queue}: {error}", file=sys.stderr)  # noqa: T201


def _gone(decided: Mapping[str, Any], tables: Tables) -> list[tuple[str, str]]:
    """Return the parts, by place and manifest, that others stand for; none of tables that
    have changed since this was planned: these are as they were."""
    seen = {place for _, place, _ in tables}
    left = {t["stage"]["where"] for t in decided["tables"]} - seen
    entries = decided.get(REMOVES, ())
    return [(e["where"], e["manifest"]) for e in entries if e["where"] not in left]


def _replaced(decided: Mapping[str, Any], batch: Batch) -> set[tuple[str, str]]:
    """Return of which days, at which places, a batch has replaced all that was there."""
    whole = {
        table["stage"]["where"]
        for table in decided["tables"]
        if (table.get("plan") or {}).get("mode") == _REPLACE
        and len(table["stage"]["by"]) == 1
    }
    return {(part.day, part.place) for part in batch.parts if part.place in whole}


def _parts(name: str, day: str, tables: Tables) -> Iterable[Part]:
    """Give what each table has got of each day. A day that is made again has a part also
    where it has no row, for it is to be known what it was made of."""
    for number, place, written in tables:
        rows = {day: 0} if day else {}
        for file in written:
            key = days.day_of(file.folder)
            rows[key] = rows.get(key, 0) + file.rows
        manifest = f"{name}-{number}" if number else name
        for key, count in rows.items():
            yield Part(day=key, place=place, manifest=manifest, rows=count)
