"""A root as the ancestor leaves it on disk, made anew in a directory of the test.

Git keeps neither empty directories nor modes, sockets or dates, so the tree is built.
`ANCESTOR` names every message in it with the state that RQ must find it in.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

HOST = "http://rq.example.com:3333"

PREPARED = "20250301.1000.00.001.411"
WAITING = "20250301.1001.00.002.412"
LATER = "20250301.1002.00.003.413"
TEXT_DUE = "20250301.1003.00.004.414"
RUNNING = "20250301.1004.00.005.415"
DONE = "20250228.2359.59.999.401"
DONE_WITH_FILE = "20250301.0900.00.000.402"
RELAYED = "20250301.0901.00.000.403"
FAILED = "20250301.0902.00.000.404"
ACKNOWLEDGED = "20250301.0903.00.000.405"
PAUSED_WAITING = "20250301.1100.00.000.501"

# msg_id: (queue, where it lay, relative to the queue directory)
ANCESTOR: dict[str, tuple[str, str]] = {
    PREPARED: ("work", f"prep/{PREPARED}"),
    WAITING: ("work", f"que/{WAITING}"),
    LATER: ("work", f"que/{LATER}"),
    TEXT_DUE: ("work", f"que/{TEXT_DUE}"),
    RUNNING: ("work", f"run/{RUNNING}"),
    DONE: ("work", f"done/20250228/23/59/{DONE}"),
    DONE_WITH_FILE: ("work", f"done/20250301/09/00/{DONE_WITH_FILE}"),
    RELAYED: ("work", f"relayed/20250301/09/01/{RELAYED}"),
    FAILED: ("work", f"err/{FAILED}"),
    ACKNOWLEDGED: ("work", f"err/.{ACKNOWLEDGED}"),
    PAUSED_WAITING: ("resting", f"que/{PAUSED_WAITING}"),
}
FAR_AWAY = 4102444800  # the year 2100
ATTACHED = b"a picture of a cat\n"

_SCRIPT = """#!/bin/sh
echo "done ran with $RQ_PARAM1" >&3
"""


def build(root: Path, port: int = 3333) -> Path:
    """Make the tree under `root`, which must not exist or be empty; return it."""
    for name in ("config", "queue", "scandir", "timers", "log", "default_scripts"):
        (root / name).mkdir(parents=True)
    _write_json(
        root / "config/config.json",
        {
            "env": "development",
            "host": "rq.example.com",
            "port": str(port),  # the ancestor's installer stores strings
            "addr": "127.0.0.1",
            "tmpdir": "/tmp",
            "allow_new_queue": True,
        },
    )
    (root / "config/queuemgr.pid").write_text("4194999\n")
    _definitions(root)
    _work(root / "queue/work")
    _resting(root)
    _stopped(root)
    _deleted(root)
    _timers(root)
    return root


CLEANED = "log/cleaned"  # what the cleaner of the ancestor leaves when it has run
_CLEANER = f"""#!/bin/sh
rm -rf "$RQ_ROOT"/queue/*/done/*
touch "$RQ_ROOT/{CLEANED}"
echo done >&3
"""


def add_cleaner(root: Path) -> None:
    """Add the ancestor's cleaner, which a timer starts: it removes folders itself."""
    definition = root / "default_scripts/cleaner"
    _script(definition / "run", _CLEANER)
    _write_json(definition / "config.json", {"num_workers": "1"})
    (root / "scandir/cleaner").symlink_to("../default_scripts/cleaner")
    _queue(root / "queue/cleaner", script="./default_scripts/cleaner/run")
    asked = {"dest": "cleaner", "param1": "ALLQUEUES", "param2": "3"}
    _write_json(definition / "timer.json", {"period": 86400, "msg": asked})
    (root / "timers/cleaner.json").symlink_to("../default_scripts/cleaner/timer.json")


def _definitions(root: Path) -> None:
    """`work` comes from scandir; `resting` and `stopped` were made by web."""
    definition = root / "default_scripts/work"
    _script(definition / "run")
    _write_json(definition / "config.json", {"num_workers": "2", "coalesce": "no"})
    _write_json(definition / "form.json", {"default": "hidden"})
    (root / "scandir/work").symlink_to("../default_scripts/work")
    # The rules of the ancestor's router were shipped without `run`: no queue.
    (root / "default_scripts/rq_router").mkdir()
    (root / "scandir/rq_router").symlink_to("../default_scripts/rq_router")


def _work(queue: Path) -> None:
    _queue(
        queue,
        script="./default_scripts/work/run",
        num_workers="2",
        exec_prefix="",
    )
    # An absolute link target gave the ancestor a form that dangles.
    (queue / "form.json").symlink_to("..//nowhere/form.json")
    _message(queue, PREPARED, "prep")
    _message(queue, WAITING, "que", param1="first")
    _message(queue, LATER, "que", due=FAR_AWAY)
    _message(queue, TEXT_DUE, "que", due=str(FAR_AWAY), count=3)
    running = _message(queue, RUNNING, "que", param1="second")
    (running / "pid").write_text("4194998")
    _job(running, "4194998 - 2025-03-01 10:04:00 +0000 - RQ START - /x/run\nhalf\n")
    _status(running, "at step 3")
    _job(_message(queue, DONE, "que"), "all well\n")
    _finished(queue)


def _finished(queue: Path) -> None:
    attached = _message(queue, DONE_WITH_FILE, "prep")
    (attached / "attach").mkdir()
    (attached / "attach/cat photo.jpg").write_bytes(ATTACHED)
    _status(_place(queue, DONE), "done sleeping")
    _status(attached, None)
    relayed = _message(queue, RELAYED, "que", dest="http://other.example.com/q/work")
    _status(relayed, "http://other.example.com:3333/q/work/20250301.0901.01.000.9")
    failed = _message(queue, FAILED, "run", count=15, param1="third")
    _job(failed, "it broke\n")
    (failed / "resend").touch()
    _status(failed, "fail RQ_COUNT > 15")
    _status(_message(queue, ACKNOWLEDGED, "run"), "seen")


def _resting(root: Path) -> None:
    queue = root / "queue/resting"
    login = {"exec_prefix": "bash -lc ", "env_vars": {"HOME": "/"}}  # no start-up files
    _queue(queue, script="./default_scripts/work/run", **login)
    _message(queue, PAUSED_WAITING, "que", dest="resting")
    (root / "config/resting.pause").touch()


def _stopped(root: Path) -> None:
    _queue(root / "queue/stopped", script="./default_scripts/work/run", num_workers=1)
    (root / "config/stopped.down").touch()


def _deleted(root: Path) -> None:
    """What the ancestor made of a deleted queue: not a queue any more."""
    _queue(root / "queue/gone.deleted.1234", script="./default_scripts/work/run")


def _timers(root: Path) -> None:
    directory = root / "default_scripts/timers"
    _write_json(
        directory / "hourly.json",
        {"period": 3600, "msg": {"dest": "work", "param1": "from the timer"}},
    )
    (root / "timers/hourly.json").symlink_to("../default_scripts/timers/hourly.json")
    (root / "timers/dangling.json").symlink_to("../default_scripts/timers/none.json")


def _queue(path: Path, **config: Any) -> None:
    for state in ("prep", "que", "run", "done", "relayed", "err"):
        (path / state).mkdir(parents=True)
    _write_json(path / "config.json", {"name": path.name, **config})
    (path / "queue.pid").write_text("4194997\n")


def _place(queue: Path, msg_id: str) -> Path:
    return queue / ANCESTOR[msg_id][1]


def _message(queue: Path, msg_id: str, stale: str, **fields: Any) -> Path:
    """Make a message whose file still says the state it was last written in."""
    return message_at(_place(queue, msg_id), queue.name, stale, **fields)


def message_at(folder: Path, queue: str, stale: str, **fields: Any) -> Path:
    """Make the folder of a message of the ancestor; return it."""
    msg_id = folder.name.removeprefix(".")
    folder.mkdir(parents=True)
    full = f"{HOST}/q/{queue}/{msg_id}"
    message = {
        "msg_id": msg_id,
        "dest": queue,
        "src": "ancestor",
        "count": 0,
        "max_count": 15,
        "due": 1740823200,
        "orig_msg_id": full,
        "status": stale,
        "state": stale,
        "path": f"queue/{queue}/prep/{msg_id}",
        "child_pid": 4194998,
        "_attachments": {},
        "invoice": {"kept": True},
        **fields,
    }
    _write_json(folder / "msg", message)
    return folder


def _job(folder: Path, text: str) -> None:
    (folder / "job").mkdir()
    (folder / "job/stdio.log").write_text(f"\n{text}")


def _status(folder: Path, text: str | None) -> None:
    _write_json(folder / "status", {"job_status": text})


def _script(path: Path, text: str = _SCRIPT) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def _write_json(path: Path, data: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data))


def digest_of_attachment() -> str:
    """Return the SHA-256 of the one attachment in the tree."""
    return hashlib.sha256(ATTACHED).hexdigest()


def everything(root: Path) -> set[str]:
    """Return every path below `root`, to compare before and after."""
    return {
        os.path.relpath(os.path.join(top, name), root)
        for top, folders, files in os.walk(root)
        for name in (*folders, *files)
    }
