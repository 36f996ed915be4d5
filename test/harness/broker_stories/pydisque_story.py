"""What pydisque does with a broker: `pydisque_story.py PORT`, as `redis_py.py` is used."""

import logging
import sys

from pydisque.client import Client

BODY = b"\x80body\r\n\x00"


def main():
    logging.disable()
    client = Client([f"127.0.0.1:{sys.argv[1]}"])
    client.connect()
    assert len(client.connected_node.node_id) == 40
    jobs(client)
    queues(client)
    again(client)
    sys.stdout.write("done\n")


def jobs(client):
    options = {"retry": 60, "ttl": 600, "maxlen": 5, "replicate": 1}
    job = client.add_job("py", BODY, timeout=100, **options)
    assert client.qlen("py") == 1
    [(queue, job_id, body)] = client.get_job(["none", "py"], timeout=1000)
    assert (queue, job_id, body) == (b"py", job, BODY)
    assert client.working(job) == 60
    client.nack_job(job)
    taken = client.get_job(["py"], count=3, withcounters=True)
    assert taken == [(b"py", job, BODY, 1, 0)], taken
    shown = client.show(job, return_dict=True)
    assert shown[b"state"] == b"active", shown
    client.ack_job(job)
    assert client.show(job) is None
    assert client.get_job(["py"], nohang=True) == []
    assert client.get_job(["py"], timeout=20) == []
    late = client.add_job("py", "late", delay=600, asynchronous=True)
    assert client.enqueue(late) == client.dequeue(late) == 1
    assert client.del_job(late) == 1
    client.fast_ack(client.add_job("py", "x"))


def queues(client):
    job = client.add_job("scan", "x")
    assert client.qpeek("scan", 1) == [[b"scan", job, b"x"]]
    assert client.qstat("scan", return_dict=True)[b"len"] == 1
    assert b"scan" in client.qscan(busyloop=True)[1]
    assert client.jscan(queue="scan", busyloop=True)[1] == [job]
    [shown] = client.jscan(queue="scan", state=["queued"], reply="all")[1]
    assert job in shown
    assert client.pause("scan", kw_in=True) == b"in"
    assert client.pause("scan", kw_none=True, kw_bcast=True) == b"none"
    assert client.del_job(job) == 1
    assert client.info()


def again(client):
    job = client.add_job("kept", BODY, retry=600)
    sys.stdout.write("kill\n")
    sys.stdout.flush()
    sys.stdin.readline()
    assert client.qlen("kept") == 1
    assert client.get_job(["kept"]) == [(b"kept", job, BODY)]
    client.ack_job(job)


if __name__ == "__main__":
    main()
