"""One directory of the many of a day that is over.

Readers go by `current.json`, so what they count is the same at any time; what was merged
stays a while for those that are at it.
"""

from __future__ import annotations

import time
from dataclasses import replace

from rq.config import files
from rq.spark import bronze
from rq.spark.building import History

OLD = 3600.0  # seconds that merged directories stay for readers that are at them
_AT_ONCE = 7  # days


def merge_closed(at: History, old: float) -> None:
    """Merge the batches of days that are over; remove what merging has left, once no
    reader can still have it open."""
    _remove_old(at, old)
    today = time.strftime("%Y-%m-%d", time.gmtime())
    closed = [
        date
        for date in bronze.dates(at.bronze)
        if date < today and len(bronze.batches(at.bronze, date, at.current)) > 1
    ]
    for date in closed[:_AT_ONCE]:
        at = _merge(at, date)


def _merge(at: History, date: str) -> History:
    batches = bronze.batches(at.bronze, date, at.current)
    upto = batches[-1].number
    merged = bronze.merged_path(at.bronze, date, upto)
    bronze.write_merged(at.events(batches), merged)
    current = at.current.with_merged(date, upto)
    files.write_state(at.place.current_file, current.to_json())
    return replace(at, current=current)


def _remove_old(at: History, old: float) -> None:
    if time.time() - at.place.current_file.stat().st_mtime < old:
        return
    for path in at.place.others(at.current.number):
        files.remove_dir(path)
    for date, upto in at.current.merged.items():
        used = bronze.batches(at.bronze, date, at.current)
        for batch in bronze.every_batch(at.bronze, date):
            if batch not in used and batch.number <= upto:
                files.remove_dir(batch.path)
