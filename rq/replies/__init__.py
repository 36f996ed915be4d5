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
    FireView,
    HelperState,
    NextFire,
    SupervisorStatus,
    TimerRow,
    TimersStatus,
    TimerView,
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
    "FireView",
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
    "NextFire",
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
    "TimerView",
    "TimersStatus",
    "TransactionView",
    "WordResult",
    "WorkerView",
]
