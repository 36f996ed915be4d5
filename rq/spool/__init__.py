"""The spool: journal, folders and recovery of one queue; the only mover of messages."""

from rq.spool.recovery import open_spool, stopped_cleanly
from rq.spool.recovery_apply import Opened
from rq.spool.store import Spool

__all__ = ["Opened", "Spool", "open_spool", "stopped_cleanly"]
