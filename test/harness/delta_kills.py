"""A job that writes Delta tables, killed at each step of a batch, by a queue that starts it again."""

from __future__ import annotations

from harness.queues import running_queue
from harness.spark_jobs import DIES, HEAD, prepared, tools

DYING = """
dying(sending.Sender, "prepare", "planned", "noted")
dying(writes.Writes, "decide", None, "decided")
dying(writes, "_name", None, "named")
dying(delta, "commit", "uncommitted", "synced")
dying(delta, "_widen", None, "widened")
dying(delta, "_append", None, "committed")
dying(delta_merge, "merge", None, "merged")
dying(sending.Sender, "commit", "published", "sent")

@job(engine="duckdb")
def run(q):
    rows = q.lines().select("msg_id", "lineno", "line")
    if "two" in os.environ["KIND"]:
        q.table(rows, "second")
    if os.environ["KIND"] == "contract":
        q.contract("flights", {"line": {"most": "e"}}, unique=["msg_id", "lineno"])
    if os.environ["KIND"] == "merge":
        q.table(rows, "flights", mode="merge", key=["msg_id", "lineno"])
        q.send("box", param1=q.ids[0])
        return
    if (ROOT / "died-named").exists():  # from then on there is one column more
        rows = rows.withColumn("more", F.lit(1))
    q.table(rows, "flights", by="line")
    q.send("box", param1=q.ids[0])
"""
BEFORE = ["begun", "staged", "planned", "noted"]
# After a decision an attempt is not begun again, so each of these needs a message.
AFTER = [
    "decided",
    "named",
    "uncommitted",
    "widened",
    "committed",
    "synced",
    "published",
    "sent",
]
POINTS = {
    "lone": [*BEFORE, *AFTER],
    "many": ["noted", "named"],
    "two": ["noted", "synced"],
    # `synced` is behind the commit of each of the two tables.
    "contract": ["staged", "noted", "decided", "committed", "synced", "published"],
    "merge": ["staged", "noted", "decided", "uncommitted", "merged", "synced"],
}
PATIENCE = 300.0


def end(queue, msg_id, look):
    """Retry a message until it is done; look each time it was killed."""
    while (ended := queue.ended(msg_id, PATIENCE))["state"] == "err":
        assert "SIGKILL" in ended["status"]
        for seen in look():
            assert len(seen) == len(set(seen))
        queue.ok("retry_message", {"msg_id": msg_id})


def kill_at_each(root, kind, look, rights=(), **spark):
    """Send messages until a job of a kind was killed at each step; return their ids. `look`
    returns the rows of each table; `rights`, `spark`: more settings of the queue."""
    env = {"PATH": f"{tools(root)}:/usr/bin:/bin", "KIND": kind, **dict(rights)}
    env |= {"POINTS": " ".join(POINTS[kind])}
    # Those that come back find others beside them.
    batch = {"batch": {"max": 3, "wait": 1}} if kind in ("many", "two") else {}
    settings = {"exec_prefix": "", "env_vars": env, "num_workers": 1, **batch}
    settings |= {"spark": spark}
    with (
        running_queue(root, "#!/bin/sh\necho done >&3\n", "box") as box,
        running_queue(root, HEAD + DIES + DYING, "logs", **settings) as queue,
    ):
        log = {"log": b"a\nb\nc\nd\ne\n" + b"z\n" * (kind == "contract")}
        count = 3 if batch else sum(point not in BEFORE for point in POINTS[kind])
        sent = [prepared(queue, log, max_count=99) for _ in range(count)]
        for msg_id in sent:
            end(queue, msg_id, look)
        sent.append(prepared(queue, log))
        assert queue.ended(sent[-1], PATIENCE)["state"] == "done"
        died = {path.name.removeprefix("died-") for path in root.glob("died-*")}
        assert died == set(POINTS[kind])
        wanted = sorted((msg_id, word) for msg_id in sent for word in "abcde")
        assert look() == [wanted] * (2 if kind == "two" else 1)
        assert "rows to the table flights" in queue.get(sent[0])["status"]
        boxed = box.ask("num_messages")
        assert sum(boxed.values()) - boxed["prep"] == (2 if batch else len(sent))
    return sent
