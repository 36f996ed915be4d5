"""A notice as a letter, and as JSON for a webhook; pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime

from rq.builtin.notice import stories
from rq.builtin.notice.stories import Story
from rq.words import visible
from rq.words.nesting import Json

_SUBJECT = 150  # characters
_ID = 24  # characters


def mail(to: str, story: Story, log: str, key: str, host: str) -> bytes:
    """Return a letter for sendmail -t. Whatever the story holds, it stays in the place
    that it is put into: a header is one line, and the body is encoded."""
    letter = EmailMessage(policy=SMTP.clone(linesep="\n", cte_type="7bit"))
    letter["To"] = to
    letter["Subject"] = subject(story, host)
    letter["Date"] = format_datetime(datetime.fromtimestamp(story.number("at"), UTC))
    letter["Message-ID"] = f"<{_digest(key)}@rq.invalid>"
    letter["Auto-Submitted"] = "auto-generated"
    letter["X-RQ-Queue"] = visible.line(story.queue)
    letter["X-RQ-Notice"] = visible.line(story.matter)
    letter.set_content(body(story, log), charset="utf-8")
    return letter.as_bytes()


def subject(story: Story, host: str) -> str:
    """Return one line."""
    text = f"[RQ {host}] {stories.headline(story)}"
    return visible.line(" ".join(text.split()))[:_SUBJECT]


def body(story: Story, log: str) -> str:
    """Return what happened, which message it was, and what its log says."""
    parts = ["\n".join(stories.sentences(story))]
    rows = stories.facts(story)
    width = max(len(name) for name, _ in rows)
    facts = (f"{name:<{width}}  {visible.line(value)}" for name, value in rows)
    parts.append("\n".join(facts))  # a line each, whatever a sender has written
    if log:
        about = "What it printed" if story.matter == "output" else "The end of its log"
        parts.append(f"{about}:\n\n{log}")
    return visible.text("\n\n".join(parts)) + "\n"


def as_json(story: Story, log: str) -> dict[str, Json]:
    """Return what a webhook, or another queue, is told."""
    values: Mapping[str, Json] = story.values
    return {
        **values,
        "subject": visible.line(stories.headline(story)),
        "text": "\n".join(stories.sentences(story)),
        "status": story.text("text"),
        "log": log,
    }


def posted(story: Story, log: str) -> bytes:
    """Return the body of a webhook, as that of a message's end is made."""
    at = datetime.fromtimestamp(story.number("at"), UTC)
    whole = {
        "type": f"notice.{story.matter}",
        "timestamp": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "data": as_json(story, log),
    }
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode()


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:_ID]
