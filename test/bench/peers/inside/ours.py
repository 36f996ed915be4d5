"""RQ: its own client over the queue's control socket."""

import time
from pathlib import Path

from rq.rpc import client


def connect(address):
    line = client.Connection(Path(address))

    def send(param):
        word, answer = line.ask("create_message", {"dest": "q", "param1": param})
        if word != "ok":
            raise SystemExit(answer)

    return send


def done(address):
    return client.ask(Path(address), "num_messages")["done"]


def waiting(address):
    return client.ask(Path(address), "num_messages", timeout=600)["que"]


def fill(address, total):
    with client.Connection(Path(address), timeout=600) as line:
        for at in range(0, total, 200):
            batch = range(min(200, total - at))
            for _ in batch:
                line.send("create_message", {"dest": "q", "param1": ""})
            for _ in batch:
                word, answer = line.receive()
                if word != "ok":
                    raise SystemExit(answer)


def settle(address):
    """Wait for the folders of what was accepted."""
    while client.ask(Path(address), "detail", timeout=600)[1]["lag"]:
        time.sleep(0.02)
