"""The script of the queue `flow`: sends the messages of a flow, all of them or none."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rq import config
from rq.builtin.flow import closing, record
from rq.builtin.flow.sending import Again, Refused, Sending
from rq.errors import RQError
from rq.flow import marks
from rq.layout import Root
from rq.scripts import python as script
from rq.scripts.pipe import Verb

_PAUSE = 5  # seconds until it is tried again


def main() -> int:
    root, folder = config.find_root(None), Path("..").resolve()
    if ended := closing.of_env(os.environ):
        return _tell(root, ended)
    try:
        sending = Sending(
            root=root,
            msg_id=os.environ["RQ_MSG_ID"],
            folder=folder,
            plan=record.plan_in(folder),
            by=record.by_in(folder),
        )
        sending.run()
    except Again as error:
        return _again(str(error))
    except FileNotFoundError:
        return _err(record.NO_PLAN)
    except OSError as error:  # of the disk, or of what RQ lacks
        return _again(str(error))
    except (Refused, RQError) as error:
        return _err(str(error))
    script.say(Verb.DONE, marks.messages(len(sending.sent), "sent"))
    return 0


def _tell(root: Root, msg_id: str) -> int:
    try:
        closing.tell(root, msg_id)
    except (RQError, OSError) as error:
        return _err(str(error))
    return 0


def _again(text: str) -> int:
    print(text)  # noqa: T201 - the log of the message
    script.say(Verb.LATER, f"{_PAUSE}-{text}")
    return 0


def _err(text: str) -> int:
    print(text)  # noqa: T201
    script.say(Verb.ERR, text)
    return 1


if __name__ == "__main__":
    sys.exit(main())
