"""Makes `node`, a directory that a broker from before the cluster leaves, and what it told.

Run once, with the last commit that has no `rq/broker/cluster` checked out in OLD:
`PYTHONPATH=OLD:OLD/test python make.py DIR`.
"""

import json
import shutil
import sys
from pathlib import Path

from harness.broker import Broker
from harness.waiting import wait_until

LONG = 2_000_000_000  # seconds: it is read for years
AGAIN = "RETRY", 1_000_000_000
SMALL = {"TEST_LARGE": "2000", "TEST_SEGMENT": "8192", "TEST_SNAPSHOT": "2500"}


def main(place: Path) -> None:
    broker = Broker(place / "node", SMALL)
    client = broker.start()
    job_ids = before_the_snapshot(client)
    wait_until((place / "node" / "snapshot").exists)
    job_ids += behind_it(client)
    asked = [("SHOW", job_id) for job_id in job_ids]
    asked += [("QLEN", name) for name in ("waits", "once", "given", "late", "large")]
    asked += [("PAUSE", "closed", "state"), ("RQ.INFO", "mail")]
    asked += [("RQ.INSPECT", "mail", 0, 9), ("RQ.INSPECT", "mail", "PENDING", 0, 9)]
    told = [(words, client.ask(*words)) for words in asked]
    (place / "told.json").write_text(json.dumps(told, default=text, indent=1) + "\n")
    broker.kill()
    for name in ("lock", "journal/next", "journal/reserve"):
        (place / "node" / name).unlink()


def text(data: bytes) -> str:
    return data.decode("latin-1")


def before_the_snapshot(client):
    def add(queue, body, *options):
        return client.ask("ADDJOB", queue, body, 0, "TTL", LONG, *options)

    job_ids = [add("waits", "first", *AGAIN), add("waits", b"\xff\0 no text", *AGAIN)]
    job_ids += [add("once", "waits", "RETRY", 0), add("given", "once", "RETRY", 0)]
    job_ids += [add("given", "often", *AGAIN), add("large", "L" * 3000, *AGAIN)]
    job_ids += [add("late", "delayed", "DELAY", LONG - 1000, *AGAIN)]
    job_ids += [refused := add("refused", "refused", *AGAIN)]
    job_ids += [done := add("done", "done", *AGAIN)]
    client.ask("ACKJOB", done)
    client.ask("PAUSE", "closed", "in")
    client.ask("GETJOB", "COUNT", 2, "FROM", "given")
    for _ in range(3):
        client.ask("GETJOB", "FROM", "refused")
        client.ask("NACK", refused)
    message_ids = client.ask("RQ.PUSH", "mail", "a", "b", "c", b"\xfe")
    client.ask("RQ.POP", "COUNT", 2, "mail")
    client.ask("RQ.ACK", "mail", message_ids[0])
    for contents in ("one", "two", "three"):
        client.ask("QADD", "news", LONG, contents)
    event, _ = client.ask("QGET", "news", "readers", "EX", LONG - 5)
    client.ask("QACK", "news", "readers", event)
    return job_ids


def behind_it(client):
    last = client.ask("ADDJOB", "waits", "last", 0, "TTL", LONG, *AGAIN)
    done = client.ask("ADDJOB", "waits", "gone", 0, "TTL", LONG, *AGAIN)
    client.ask("ACKJOB", done)
    client.ask("QGET", "news", "readers", "EX", LONG - 5)
    client.ask("RQ.PUSH", "mail", "d")
    return [last, done]


if __name__ == "__main__":
    shutil.rmtree(Path(sys.argv[1]) / "node", ignore_errors=True)
    main(Path(sys.argv[1]))
