"""One try: param1 is the URL, param2 the story, param3 the id that the receiver sees."""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from types import FrameType

import rq
from rq import config, script
from rq.errors import RQError
from rq.nesting import Json
from rq.outbound import connection
from rq.outbound.addresses import Internal
from rq.pipe import Verb
from rq.webhook import body, outcome, settings, signing
from rq.webhook.post import post
from rq.webhook.settings import Settings


class Late(Exception):
    """The try as a whole has taken too long; not an OSError, so that nothing catches it."""


def main() -> int:
    if "RQ_MSG_ID" in os.environ:  # a process for each message
        _take()
        return 0
    for values in script.messages():
        os.environ.update(values)
        _take()
    return 0


def _take() -> None:
    try:
        verb, text = _try()
    except Exception as error:  # noqa: BLE001 - a loop iteration
        traceback.print_exc()
        verb, text = _again(f"{type(error).__name__}: {error}")
    print(verb, text, flush=True)  # noqa: T201 - into the log of the message
    script.say(verb, text)


def _try() -> tuple[Verb, str]:
    url, text, webhook_id, _ = script.params()
    story = _story(text)
    if story is None:
        return Verb.ERR, "param2 is not a JSON object that says how a message ended"
    try:
        chosen = settings.read(config.find_root(None), url)
        answer = _send(url, story, webhook_id or _own_id(), chosen)
    except Internal as error:
        return Verb.ERR, str(error)
    except Late:
        return _again(f"no answer within {chosen.timeout:g} s")
    except (OSError, http.client.HTTPException) as error:
        return _again(connection.reason(error))
    except (RQError, ValueError) as error:
        return _again(str(error) or type(error).__name__)
    return outcome.decide(answer, script.count(), random.random())


def _send(
    url: str, story: Mapping[str, Json], webhook_id: str, chosen: Settings
) -> outcome.Answer:
    if chosen.body == "form":
        kind, data = body.as_form(story, url)
    else:
        kind, data = body.as_json(story)
    signed = signing.headers(webhook_id, int(time.time()), data, chosen.secrets)
    agent = f"RQ/{rq.__version__}"
    _end_after(chosen.timeout)
    try:
        return post(
            url, data, {"Content-Type": kind, "User-Agent": agent, **signed}, chosen
        )
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _end_after(seconds: float) -> None:
    """Bound the whole try: an answer may also come a byte at a time."""

    def late(number: int, frame: FrameType | None) -> None:
        raise Late

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _story(text: str) -> Mapping[str, Json] | None:
    try:
        story: Json = json.loads(text)
    except ValueError:
        return None
    return story if isinstance(story, dict) else None


def _own_id() -> str:
    """Return an id for a webhook that has none: that of its message, without dots."""
    return "msg_" + os.environ.get("RQ_MSG_ID", "").replace(".", "_")


def _again(reason: str) -> tuple[Verb, str]:
    return outcome.again(reason, script.count(), random.random())


if __name__ == "__main__":
    sys.exit(main())
