"""What is posted: the story of an end as JSON, or the ancestor's form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from urllib.parse import urlencode, urlsplit

from rq.message import PARAMS
from rq.words.nesting import Json

_OF_THE_FORM = ("src", *PARAMS, "orig_msg_id")


def as_json(story: Mapping[str, Json]) -> tuple[str, bytes]:
    """Return (content type, body) as Standard Webhooks recommend them."""
    times = story.get("times")
    body = {
        "type": f"message.{story.get('state', 'ended')}",
        "timestamp": times.get("ended") if isinstance(times, dict) else None,
        "data": story,
    }
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    return "application/json", text.encode()


def as_form(story: Mapping[str, Json], url: str) -> tuple[str, bytes]:
    """Return (content type, body) as the ancestor had them: a message for the queue
    whose `new_message` the URL is."""
    message = {name: story[name] for name in _OF_THE_FORM if name in story}
    message["dest"] = urlsplit(url).path.rpartition("/")[0]
    form = {"x_format": "json", "mesg": json.dumps(message)}
    return "application/x-www-form-urlencoded", urlencode(form).encode()
