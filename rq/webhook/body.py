"""What is posted: the story of an end as JSON, or the ancestor's form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

from rq.message import PARAMS

_OF_THE_FORM = ("src", *PARAMS, "orig_msg_id")


def as_json(told: Mapping[str, Any]) -> tuple[str, bytes]:
    """Return (content type, body) as Standard Webhooks recommend them."""
    times = told.get("times") or {}
    body = {
        "type": f"message.{told.get('state', 'ended')}",
        "timestamp": times.get("ended"),
        "data": told,
    }
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    return "application/json", text.encode()


def as_form(told: Mapping[str, Any], url: str) -> tuple[str, bytes]:
    """Return (content type, body) as the ancestor had them: a message for the queue
    whose `new_message` the URL is."""
    message = {name: told[name] for name in _OF_THE_FORM if name in told}
    message["dest"] = urlsplit(url).path.rpartition("/")[0]
    form = {"x_format": "json", "mesg": json.dumps(message)}
    return "application/x-www-form-urlencoded", urlencode(form).encode()
