"""What redis-py does with a broker: `redis_py.py PORT PROTOCOL`, with redis on sys.path.

Prints `kill` when the broker is to be killed and started again, waits for a line, and
ends with `done`.
"""

import sys
import threading

import redis

NAME = b"\x00\xff queue \r\n"
BODY = b"\x80body\r\n\x00"


def main():
    port, protocol = map(int, sys.argv[1:])
    client = redis.Redis(port=port, protocol=protocol, socket_timeout=20)
    ask = client.execute_command
    for part in (jobs, blocked, looking, reliable, groups, pipelines, errors, table):
        part(client, ask)
    again(client, ask)
    client.close()
    sys.stdout.write("done\n")


def jobs(client, ask):
    assert client.ping()
    job = ask("ADDJOB", NAME, BODY, 0, "RETRY", 60, "TTL", 600)
    assert job.startswith(b"D-")
    assert len(job) == 40
    assert ask("QLEN", NAME) == 1
    assert ask("GETJOB", "NOHANG", "FROM", NAME) == [[NAME, job, BODY]]
    assert ask("WORKING", job) == 60
    assert ask("NACK", job) == 1
    taken = ask("GETJOB", "WITHCOUNTERS", "COUNT", 5, "FROM", "none", NAME)
    counters = [b"nacks", 1, b"additional-deliveries", 0]
    assert taken == [[NAME, job, BODY, *counters]], taken
    shown = ask("SHOW", job)
    fields = dict(zip(shown[::2], shown[1::2], strict=True))
    assert (fields[b"state"], fields[b"body"]) == (b"active", BODY), fields
    assert ask("ACKJOB", job) == 1
    assert ask("ACKJOB", job) == 0
    assert ask("SHOW", job) is None
    assert ask("GETJOB", "NOHANG", "FROM", NAME) is None
    fast, gone = (ask("ADDJOB", NAME, BODY, 0) for _ in range(2))
    assert ask("FASTACK", fast) == ask("DELJOB", gone) == 1


def blocked(client, ask):
    """One client waits, and another one sends."""
    got = []
    wait = ("GETJOB", "TIMEOUT", 15_000, "FROM", "late", "later")
    waiter = threading.Thread(target=lambda: got.extend(ask(*wait)))
    waiter.start()
    while b"blocked_clients:1" not in raw_info(client):
        pass
    job = ask("ADDJOB", "later", "x", 0)
    waiter.join(15)
    assert got == [[b"later", job, b"x"]], got
    assert ask("GETJOB", "TIMEOUT", 20, "FROM", "late") is None
    assert ask("ACKJOB", job) == 1


def raw_info(client):
    """INFO as it came, as redis-py makes a dictionary of it."""
    info = client.info()
    return b"blocked_clients:%d" % info["blocked_clients"]


def looking(client, ask):
    job = ask("ADDJOB", "look", "x", 0, "DELAY", 600)
    assert ask("QPEEK", "look", 3) == []
    assert ask("ENQUEUE", job) == 1
    assert ask("QPEEK", "look", 3) == [[b"look", job, b"x"]]
    assert ask("DEQUEUE", job) == 1
    stat = ask("QSTAT", "look")
    assert dict(zip(stat[::2], stat[1::2], strict=True))[b"len"] == 0
    assert b"look" in ask("QSCAN", "BUSYLOOP")[1]
    assert ask("JSCAN", "QUEUE", "look")[1] == [job]
    assert ask("PAUSE", "look", "in") == b"in"
    refused("PAUSED", ask, "ADDJOB", "look", "x", 0)
    assert ask("PAUSE", "look", "none") == b"none"
    assert ask("DELJOB", job) == 1
    assert client.client_setname("story")
    assert client.client_getname() in ("story", b"story")
    assert client.time()[0] > 1_700_000_000
    assert client.client_id() > 0


def reliable(client, ask):
    first, second = ask("RQ.PUSH", NAME, BODY, "two")
    pair = ask("RQ.POP", "COUNT", 5, NAME)
    assert pair == [[NAME, first, BODY], [NAME, second, b"two"]]
    assert ask("RQ.POP", "BLOCK", 20, NAME) is None
    assert ask("RQ.INSPECT", NAME, "PENDING", 0, 1)[0][:2] == [first, BODY]
    assert ask("RQ.RECOVER", NAME, 9, 0) == [[first, BODY], [second, b"two"]]
    assert ask("RQ.ACK", NAME, first, "1-1", second) == [first, second]
    assert ask("RQ.INFO", NAME) == [b"undelivered", 0, b"delivered", 0]
    refused("EMPTYKEY", ask, "RQ.INFO", "nothing")


def groups(client, ask):
    event = ask("QADD", "events", 60, BODY)
    assert ask("QNOTIFY", "g", 1, "events") == b"events"
    assert ask("QGET", "events", "g", "EX", 30) == [event, BODY]
    assert ask("QGET", "events", "g") is None
    assert ask("QACK", "events", "g", event) == 1
    assert ask("QACK", "events", "g", event) == 0
    assert ask("QGET", "events", "other", "EX", 0) == [event, BODY]
    assert ask("QSTATUS", "events", "GROUPS", "g")[0][0] == b"events"
    assert b"events g total:1" in ask("QINFO", "events")[0]
    assert ask("QFLUSH", "events") in (True, b"OK")


def pipelines(client, ask):
    with client.pipeline(transaction=False) as many:
        for number in range(500):
            many.execute_command("ADDJOB", "many", number, 0)
            many.execute_command("QLEN", "many")
        answers = many.execute()
    assert answers[1::2] == list(range(1, 501))
    got = ask("GETJOB", "COUNT", 500, "FROM", "many")
    assert [body for _, _, body in got] == [b"%d" % n for n in range(500)]
    with client.pipeline(transaction=False) as many:
        many.execute_command("ACKJOB", *answers[:500:2])
        many.execute_command("ACKJOB", "no id")
        many.execute_command("ACKJOB", *answers[500::2])
        first, wrong, last = many.execute(raise_on_error=False)
    assert (first, last) == (250, 250)
    assert "BADID" in str(wrong), wrong


def errors(client, ask):
    refused("BADID", ask, "ACKJOB", "x")
    refused("NOJOB", ask, "WORKING", "D-00000000-AAAAAAAAAAAAAAAAAAAAAAAA-05a1")
    refused("unknown command", ask, "LPUSH", "x", "y")
    refused("wrong number of arguments", ask, "QLEN")
    refused("syntax error", ask, "GETJOB", "NOHANG", "x")
    refused("MAXLEN must be", ask, "ADDJOB", "q", "x", 0, "MAXLEN", 0)
    assert client.ping()


def table(client, ask):
    """What there is, as programs ask that look before they ask for something."""
    every = client.command()
    assert client.command_count() == len(every) == len(client.command_list())
    addjob = every["addjob"]
    assert addjob["arity"] == -4, addjob
    assert (addjob["first_key_pos"], addjob["last_key_pos"]) == (1, 1), addjob
    if "acl_categories" in addjob:
        assert texts(addjob["acl_categories"]) == ["@write"], addjob
        assert len(addjob["key_specifications"]) == 1, addjob
    assert texts(client.command_getkeys("QLEN", "look")) == ["look"]
    found = client.command_getkeys("GETJOB", "COUNT", 2, "FROM", "a", "b")
    assert texts(found) == ["a", "b"], found
    refused("no key arguments", ask, "COMMAND GETKEYS", "PING")
    assert texts(client.command_list(pattern="q*len")) == ["qlen"]
    assert "config" in texts(client.command_list(category="admin"))
    assert client.command_list(module="none") == []
    assert "addjob" in texts(ask("COMMAND DOCS", "addjob"))


def texts(words):
    """The words, which some versions give as bytes."""
    return [word.decode() if isinstance(word, bytes) else word for word in words]


def refused(why, ask, *words):
    try:
        answer = ask(*words)
    except redis.ResponseError as error:
        answer = f"refused: {error}"
    assert answer.startswith("refused: "), (words, answer)
    assert why in answer, answer


def again(client, ask):
    """The broker is killed; the same client goes on."""
    job = ask("ADDJOB", "kept", BODY, 0, "RETRY", 600)
    sys.stdout.write("kill\n")
    sys.stdout.flush()
    sys.stdin.readline()
    try:
        length = ask("QLEN", "kept")
    except redis.ConnectionError:
        length = ask("QLEN", "kept")
    assert length == 1
    assert ask("GETJOB", "FROM", "kept") == [[b"kept", job, BODY]]
    assert ask("ACKJOB", job) == 1


if __name__ == "__main__":
    main()
