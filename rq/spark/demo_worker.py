"""The script of the queues that `rq up --demo` makes: what becomes of a message is in its
number, so that everybody can count it."""

from __future__ import annotations

import os
import sys
import time

from rq.scripts import python as script
from rq.scripts.pipe import Verb


def main() -> int:
    for values in script.messages():
        os.environ.update(values)
        _handle(int(script.params()[0]), script.count())
    return 0


def _handle(number: int, count: int) -> None:
    """Take some milliseconds; of 25 one fails, of 10 one asks to be run again."""
    time.sleep(number * 7919 % 23 / 1000)
    if number % 25 == 0:
        script.say(Verb.ERR, f"number {number} fails, as every 25th")
    elif number % 10 == 3 and not count:
        script.say(Verb.RESEND, f"0-number {number} wants a second attempt")
    else:
        script.say(Verb.DONE, f"number {number}")


if __name__ == "__main__":
    sys.exit(main())
