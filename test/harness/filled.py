"""Fills a root as a busy house would: 200 queues, 100,000 messages, 3,000 failures of 12
causes in the last day, through the spool itself, so that folders and journals agree.

    PYTHONPATH=.:test .venv/bin/python -m harness.filled DIR [QUEUES MESSAGES FAILURES]
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path

from harness.spool import Clock, Owner
from rq.config import files
from rq.layout import Root
from rq.words.states import Event, Role

DAY = 86400.0
GROUP = 500  # messages that are committed together
# A cause, and what was said: 12 ways to fail.
WAYS = (
    ("exit", "status 3 after order {n}"),
    ("exit", "no such file: /srv/in/{n}.csv"),
    ("timeout", "it ran longer than {s} s"),
    ("said_err", "customer '{w}' is unknown"),
    ("said_err", "https://shop.example/orders/{n} said 503"),
    ("said_err", "connection to db{s} refused"),
    ("signal", "KILL after {s} s"),
    ("no_word", "the script said nothing"),
    ("memory", "more than {n} bytes"),
    ("heartbeat", "silent for {s} s"),
    ("bad_report", "does not know the word {w!r}"),
    ("resend_limit", "upstream {w} is busy, try {s}"),
)
WORDS = ("invoice", "report", "thumbnail", "import", "export", "letter", "backup")


def fill(
    path: Path,
    queues: int = 200,
    messages: int = 100_000,
    failures: int = 3_000,
    now: float | None = None,
) -> Root:
    """Make the root; messages are spread over the day before `now`."""
    now = time.time() if now is None else now
    root = Root(path)
    files.make_root(root)
    script = path / "script"
    script.write_text("#!/bin/sh\necho done ok >&3\n")
    script.chmod(0o755)
    settings = {"env": "test", "host": "127.0.0.1", "port": 3333, "web": False}
    files.write_state(root.config, settings)
    rule = random.Random(1)
    for number in range(queues):
        share = messages // queues, failures // queues + (number < failures % queues)
        _fill_queue(
            root, f"{WORDS[number % len(WORDS)]}-{number:03d}", share, now, rule
        )
    return root


def _fill_queue(
    root: Root, name: str, share: tuple[int, int], now: float, rule: random.Random
) -> None:
    """Fill a queue: so many messages, of which so many fail, one waits."""
    number, failing = share
    clock = Clock(now - DAY - rule.random() * 3600)  # no two give the same ids
    owner = Owner(root.path, clock=clock, name=name)
    settings = {"name": name, "script": str(root.path / "script"), "num_workers": 0}
    owner.queue.config.write_text(json.dumps(settings))
    owner.open()
    fails = set(rule.sample(range(1, number), failing))
    for at in range(number):
        clock.now += DAY / number * 0.99
        msg_id = owner.submit(
            param1=f"order-{rule.randrange(100_000)}",
            param2=f"{rule.choice(WORDS)} of {rule.choice(WORDS)} {at}",
            src="shop.example",
        )
        if at:
            _end(owner, msg_id, at in fails, rule)
        if at % GROUP == GROUP - 1:
            owner.apply()
    owner.stop()


def _end(owner: Owner, msg_id: str, fails: bool, rule: random.Random) -> None:
    """Let a message run, and end."""
    ran = int(rule.expovariate(0.5) * 1e6)
    owner.spool.fire(msg_id, Event.CLAIM, Role.QUEUE, slot=0)
    cause, text = "done", "ok"
    if fails:
        cause, text = rule.choice(WAYS)
        text = text.format(
            n=rule.randrange(10**6), s=rule.randrange(100), w=rule.choice(WORDS)
        )
    facts = {"cause": cause, "text": text, "outcome": "err" if fails else "done"}
    facts |= {
        "run_us": ran,
        "wait_us": rule.randrange(10**6),
        "exit": 3 if fails else 0,
    }
    event = Event.FAIL if fails else Event.FINISH
    owner.spool.fire(msg_id, event, Role.QUEUE, facts=facts)


if __name__ == "__main__":
    fill(Path(sys.argv[1]).absolute(), *map(int, sys.argv[2:]))
