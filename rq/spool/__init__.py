"""The spool: messages as folders, their events and their recovery; the only mover.

`Memory` is what the journal has told of a queue. `Events` writes lines and brings memory
after them, `Lag` brings the folders after it, and `Spool` joins them. Lines stay dicts,
typed as `Record`: each is made once and written as JSON, so a class in between would be
built and taken apart for every event.

The owner of a queue opens it and asks `Spool`. Other rooms may import `folders`,
`script_files`, `ancestor_files`, `restored`, `adoption`, `check` and `disk_speed`, which
need no owner. All else is the spool's own, or the queues'; contracts say which.
"""

from rq.spool.leases import Held
from rq.spool.memory import Accepted
from rq.spool.recovery import (
    counts_at_stop,
    open_spool,
    rows_counted,
    stopped_cleanly,
)
from rq.spool.recovery_apply import Opened
from rq.spool.restored import why_waiting
from rq.spool.store import LAG_BYTES, LAG_MESSAGES, PREP_SECONDS, Spool

__all__ = [
    "LAG_BYTES",
    "LAG_MESSAGES",
    "PREP_SECONDS",
    "Accepted",
    "Held",
    "Opened",
    "Spool",
    "counts_at_stop",
    "open_spool",
    "rows_counted",
    "stopped_cleanly",
    "why_waiting",
]
