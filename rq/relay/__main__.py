"""Runs once for each message of the queue `relay`."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

from rq import script
from rq.errors import RQError
from rq.pipe import Verb
from rq.relay import handover, task


def main() -> int:
    try:
        verb, text = handover.run(task.read(os.environ, Path.cwd()))
    except RQError as error:
        verb, text = handover.refused(error)
    except Exception as error:  # noqa: BLE001 - main is one of the four places
        traceback.print_exc()
        verb, text = Verb.LATER, f"60-{type(error).__name__}: {error}"
    print(verb, text)  # noqa: T201 - into the log of the message
    script.say(verb, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
