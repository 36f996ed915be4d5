"""huey on SQLite: a task that a consumer runs; `fsync=True` is synchronous=FULL."""

import os
import subprocess
import time

from huey import SqliteHuey

SCRIPT = os.environ.get("PEER_SCRIPT")
huey = SqliteHuey(
    filename=os.environ["PEER_ADDRESS"], fsync=True, timeout=60, results=True
)


@huey.task()
def handle(param):
    """Run the script for each message, or do in the worker what it would do."""
    if SCRIPT:
        subprocess.run([SCRIPT], env={**os.environ, "RQ_PARAM1": param}, check=True)
    elif param:
        now = time.time()
        with open(param, "w") as file:
            file.write(f"{now}\n")
    return True  # kept as its result, as an ended message is


def connect(address):
    return handle


def done(address):
    return huey.storage.result_store_size()


def waiting(address):
    return huey.storage.queue_size()


def fill(address, total):
    """In one transaction: what is measured is what a full queue costs."""
    one = huey.serialize_task(handle.s(""))
    with huey.storage.db(commit=True) as cursor:
        words = "insert into task (queue, data, priority) values (?, ?, 0)"
        cursor.executemany(words, ((huey.name, one) for _ in range(total)))


def settle(address):
    """What was answered is done."""
