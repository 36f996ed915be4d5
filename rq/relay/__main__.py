"""Takes message after message of the queue `relay`; or one, in a queue whose workers
are not long-lived."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path

from rq.errors import RQError
from rq.outbound.line import Lines
from rq.relay import handover
from rq.relay import task as tasks
from rq.scripts import python as script
from rq.scripts.pipe import Verb


def main() -> int:
    lines = Lines()
    if "RQ_MSG_ID" in os.environ:
        _take({}, Path.cwd(), lines)
    else:
        for values in script.messages():
            _take(values, Path(values["RQ_MSG_DIR"]), lines)
    lines.close()
    return 0


def _take(values: Mapping[str, str], job: Path, lines: Lines) -> None:
    try:
        verb, text = handover.run(tasks.read({**os.environ, **values}, job), lines)
    except RQError as error:
        verb, text = handover.refused(job, error)
    except Exception as error:  # noqa: BLE001 - one of the four places
        traceback.print_exc()
        verb, text = handover.hindered(job, f"{type(error).__name__}: {error}")
    if verb is not Verb.RELAYED:
        print(verb, text, flush=True)  # noqa: T201 - into the log of the message
    script.say(verb, text)


if __name__ == "__main__":
    sys.exit(main())
