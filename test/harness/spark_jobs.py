"""Queues of one-file jobs for tests: their scripts find this Python and this Java."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from harness.checkout import CHECKOUT
from harness.queues import RunningQueue, short

LAUNCHER = """#!/bin/sh
PYTHONPATH={checkout} exec {python} -m rq.spark "$@"
"""
HEAD = "#!/usr/bin/env rq-spark\nfrom rq.spark import job, F\n"
TAKE = "#!/bin/sh\necho done taken >&3\n"
# The begin of a job whose process is killed once at each of its POINTS.
DIES = """
import os
from pathlib import Path
from rq.spark import delta, delta_merge, sending, staging, targets, writes

ROOT = Path(os.environ["RQ_ROOT"])

def die_once(when):
    mark = ROOT / f"died-{when}"
    if when in os.environ["POINTS"].split() and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), 9)

def dying(place, name, before=None, after=None):
    does = getattr(place, name)

    def do(*of):
        if before:
            die_once(before)
        result = does(*of)
        if after:
            die_once(after)
        return result

    setattr(place, name, do)

dying(staging._Files, "end", "begun", "staged")
"""


def tools(root: Path) -> Path:
    """Return a directory in which `rq-spark` is that of this Python."""
    directory = root / "tools"
    directory.mkdir(parents=True, exist_ok=True)
    launcher = directory / "rq-spark"
    if not launcher.exists():
        text = LAUNCHER.format(checkout=CHECKOUT, python=sys.executable)
        launcher.write_text(text)
        launcher.chmod(0o755)
    return directory


def job_settings(root: Path, env: dict[str, str]) -> dict[str, Any]:
    """Return the settings of a queue whose script is a job; `env` is `spark_env`."""
    path = f"{tools(root)}{os.pathsep}{os.environ['PATH']}"
    return {
        "exec_prefix": "",
        "env_vars": {"PATH": path, "JAVA_HOME": env["RQ_JAVA_HOME"]},
        "spark": {
            "master": env["RQ_SPARK_MASTER"],
            "conf": json.loads(env["RQ_SPARK_CONF"]),
        },
    }


def prepared(queue: RunningQueue, files: dict[str, bytes], **fields: Any) -> str:
    """Send a message with attachments; return its short id."""
    full = queue.ok("prep_message", {"dest": queue.name, **fields})
    msg_id = short(full)
    for name, data in files.items():
        path = queue.root.path / f"upload-{name}"
        path.write_bytes(data)
        about = {"msg_id": msg_id, "pathname": str(path), "name": name}
        queue.ok("attach_message", about)
    queue.ok("commit_message", {"msg_id": msg_id})
    return msg_id
