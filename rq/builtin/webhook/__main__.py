"""One try: param1 is the URL, param2 the story, param3 the id that the receiver sees."""

from __future__ import annotations

import json
import os
import random
import re
import sys
from collections.abc import Mapping

from rq import config, names
from rq.builtin.webhook import post, settings, tries
from rq.builtin.webhook.settings import Settings
from rq.errors import RQError
from rq.outbound import connection
from rq.outbound.addresses import Internal
from rq.scripts import python as script
from rq.scripts.pipe import Verb
from rq.words.nesting import Json

# A dot parts the id from the time in what is signed.
_ID = re.compile(r"[A-Za-z0-9_-]{1,200}")


def _try() -> tuple[Verb, str]:
    url, text, webhook_id, _ = script.params()
    if not names.is_url(url):
        return Verb.ERR, "param1 is no URL that begins with http(s)://"
    if webhook_id and not _ID.fullmatch(webhook_id):
        return Verb.ERR, f"param3 is {webhook_id!r:.80}, no id of a webhook"
    story = _story(text)
    if story is None:
        return Verb.ERR, "param2 is not a JSON object that says how a message ended"
    try:
        chosen = settings.read(config.find_root(None), url)
        answer = _send(url, story, webhook_id or _own_id(), chosen)
    except Internal as error:
        return Verb.ERR, str(error)
    except OSError as error:
        return tries.again(connection.reason(error))
    except (RQError, ValueError) as error:
        return tries.again(str(error) or type(error).__name__)
    return tries.decide(answer, script.count(), random.random())


def _send(
    url: str, story: Mapping[str, Json], webhook_id: str, chosen: Settings
) -> tries.Answer:
    if chosen.body == "form":
        kind, data = post.as_form(story, url)
    else:
        kind, data = post.as_json(story)
    return post.signed(url, kind, data, webhook_id, chosen)


def _story(text: str) -> Mapping[str, Json] | None:
    try:
        story: Json = json.loads(text)
    except ValueError:
        return None
    return story if isinstance(story, dict) else None


def _own_id() -> str:
    """Return an id for a webhook that has none: that of its message, without dots."""
    return "msg_" + os.environ.get("RQ_MSG_ID", "").replace(".", "_")


def main() -> int:
    """Make one try."""
    return tries.run(_try)


if __name__ == "__main__":
    sys.exit(main())
