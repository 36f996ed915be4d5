"""What owners, the supervisor and the timers answer on their sockets, as types.

A reply is JSON: whoever asked takes it for one of these, once, where it comes in. They
hold what our own programs read; a reply may hold more.
"""

from rq.replies.leases import (
    Elsewhere,
    Grant,
    GrantsView,
    LeaseFile,
    LeaseRow,
    LeasesView,
    LeaseView,
    RemoteWorker,
    WordResult,
)
from rq.replies.message import (
    AttachmentView,
    BatchView,
    MessageRow,
    MessageView,
    Result,
    Standing,
    StoryView,
)
from rq.replies.processes import (
    ChildView,
    HelperState,
    SupervisorStatus,
    TimerRow,
    TimersStatus,
)
from rq.replies.queue import (
    Checked,
    Counts,
    Detail,
    Expired,
    Held,
    Owed,
    Problem,
    Restored,
    Running,
    Sealed,
    TransactionView,
    WorkerView,
)

__all__ = [
    "AttachmentView",
    "BatchView",
    "Checked",
    "ChildView",
    "Counts",
    "Detail",
    "Elsewhere",
    "Expired",
    "Grant",
    "GrantsView",
    "Held",
    "HelperState",
    "LeaseFile",
    "LeaseRow",
    "LeaseView",
    "LeasesView",
    "MessageRow",
    "MessageView",
    "Owed",
    "Problem",
    "RemoteWorker",
    "Restored",
    "Result",
    "Running",
    "Sealed",
    "Standing",
    "StoryView",
    "SupervisorStatus",
    "TimerRow",
    "TimersStatus",
    "TransactionView",
    "WordResult",
    "WorkerView",
]
