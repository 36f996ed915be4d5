"""A POST to a receiver of webhooks, and its answer.

What is posted is the story of an end, as JSON or as the ancestor's form.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping
from urllib.parse import urlencode, urljoin, urlsplit

import rq
from rq.builtin.webhook import settings as urls
from rq.builtin.webhook import signing
from rq.builtin.webhook.settings import Settings
from rq.builtin.webhook.tries import Answer
from rq.message.table import PARAMS
from rq.outbound import connection, page
from rq.outbound.exchange import NotHttp
from rq.outbound.page import Rules
from rq.words.nesting import Json

REDIRECTS = 3
_KEEP_METHOD = frozenset({307, 308})  # all others turn a POST into a GET
_BODY = 4096  # bytes of an answer that are read
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


def signed(
    url: str, kind: str, data: bytes, webhook_id: str, settings: Settings
) -> Answer:
    """Post data of a kind, signed, in the time that a try may take; as `post`."""
    signatures = signing.headers(webhook_id, int(time.time()), data, settings.secrets)
    agent = f"RQ/{rq.__version__}"
    headers = {"Content-Type": kind, "User-Agent": agent, **signatures}
    with connection.within(settings.timeout):
        return post(url, data, headers, settings)


def post(
    url: str, body: bytes, headers: Mapping[str, str], settings: Settings
) -> Answer:
    """Post; follow redirects to the same origin. OSError when no answer came, BadInput or
    Internal when none was asked for."""
    for _ in range(REDIRECTS + 1):
        answer = _post_once(url, body, headers, settings)
        if answer.status not in _KEEP_METHOD or not answer.location:
            return answer
        target = _same_origin(url, answer.location)
        if target is None:
            return answer
        url = target
    return answer


def _same_origin(url: str, location: str) -> str | None:
    """Return where a redirect leads; None when that is another host."""
    try:
        target = urljoin(url, location)
        same = urls.origin(urlsplit(url)) == urls.origin(urlsplit(target))
    except ValueError:
        return None  # it is no address
    return target if same else None


def _post_once(
    url: str, body: bytes, headers: Mapping[str, str], settings: Settings
) -> Answer:
    rules = Rules(
        allow=settings.allow,
        mend=lambda host: "config/webhooks.json may allow it",
        timeout=settings.timeout,
        ca=settings.ca,
        file="webhooks.json",
    )
    with contextlib.closing(page.ask("POST", url, rules, body, headers)) as answer:
        with contextlib.suppress(ConnectionError, NotHttp):  # its head was the answer
            answer.read(_BODY)
        return Answer(
            status=answer.status,
            retry_after=answer.headers.get("retry-after"),
            date=answer.headers.get("date"),
            location=answer.headers.get("location"),
        )
