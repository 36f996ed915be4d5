"""Hand each log below the s3:// address in param1 on to the queue weblogs, once.

A log is called HOST/NAME there. What was handed on moves to a directory beside it, of the
same name with `-taken` behind. A crash in between hands it on again, under the same key:
the queue knows it. A store or a queue that does not answer is asked again later.
"""

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from pyarrow import fs

from rq.errors import RQError
from rq.rpc import client

AGAIN = 60  # seconds
TO = "weblogs"
SOCKET = Path(os.environ["RQ_ROOT"], "queue", TO, "queue.sock")


def main() -> int:
    where = os.environ["RQ_PARAM1"]
    if not where.startswith("s3://"):
        say(f"err param1 is no s3:// address: {where}")
        return 1
    try:
        number = hand_all_on(where)
    except (OSError, RQError) as error:
        say(f"resend {AGAIN}-{' '.join(str(error).split())}")
    else:
        say(f"done {number} logs")
    return 0


def hand_all_on(where: str) -> int:
    """Hand on what is there; return how many logs that was."""
    store, base = fs.FileSystem.from_uri(where)
    logs = store.get_file_info(fs.FileSelector(base, recursive=True))
    found = [one for one in logs if one.type == fs.FileType.File]
    for number, log in enumerate(found, 1):
        inner = log.path.removeprefix(base).strip("/")
        say(f"run {number}/{len(found)} {inner}")
        hand_on(store, log, inner)
        move(store, log.path, f"{base.rstrip('/')}-taken/{inner}")
    return len(found)


def hand_on(store: fs.FileSystem, log: fs.FileInfo, inner: str) -> None:
    host, _, name = inner.rpartition("/")
    copy = Path(name)
    with store.open_input_file(log.path) as stream, copy.open("wb") as file:
        shutil.copyfileobj(stream, file, 1024 * 1024)
    key = f"{log.path} {log.mtime_ns} {log.size}"
    about = {"dest": TO, "src": host or "unknown", "_key": key}
    full, state = ask("prep_message", about)
    msg_id = full.rpartition("/")[2]
    if state == "prep":
        ask("attach_message", {"msg_id": msg_id, "pathname": str(copy.absolute())})
        ask("commit_message", {"msg_id": msg_id, "_key": key})
    copy.unlink()


def move(store: fs.FileSystem, source: str, target: str) -> None:
    store.create_dir(target.rpartition("/")[0])
    store.move(source, target)


def ask(command: str, about: dict[str, str]) -> list[Any]:
    """Return what follows `ok` in the queue's answer."""
    reply = client.ask(SOCKET, command, about)
    client.demanded(reply, f"{TO}: ")
    return reply[1:]


def say(text: str) -> None:
    os.write(3, f"{text}\n".encode())


if __name__ == "__main__":
    sys.exit(main())
