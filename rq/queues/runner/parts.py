"""The parts of the runner that single scripts, long-lived workers and batches share."""

from __future__ import annotations

from dataclasses import dataclass

from rq.access.attempt_tokens import AttemptTokens
from rq.queues.concurrency import Tasks
from rq.queues.runner.abort import FailedStarts
from rq.queues.runner.finish import Finisher
from rq.queues.runner.launch import Launcher
from rq.queues.runner.left_processes import Orphans
from rq.queues.runner.reports import Reports
from rq.scripts.script_file import ScriptFile
from rq.scripts.slots import Slots
from rq.scripts.time_limits import TimeLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What starts scripts, hears them, and ends what they leave behind."""

    slots: Slots
    file: ScriptFile
    launcher: Launcher
    reports: Reports
    orphans: Orphans
    finisher: Finisher
    failed_starts: FailedStarts
    tasks: Tasks
    time_limits: TimeLimits
    tokens: AttemptTokens
