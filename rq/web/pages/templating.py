"""The templates' environment: autoescape, and the few words that templates know."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import orjson
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from rq import __version__
from rq.config.settings import RootConfig
from rq.message import limits, next_attempt, waits
from rq.replies import health
from rq.web import progress
from rq.web.pages import plots, sparklines
from rq.words import visible
from rq.words.wording import duration, moment, shortly, size

_BEGINNING = 4096  # characters of a value that are shown beside others
TEMPLATES = Path(__file__).resolve().parent.parent / "templates"


class Addresses(Protocol):
    """What templates need of the site."""

    config: RootConfig

    def url(self, path: str) -> str: ...

    def is_queue(self, name: str) -> bool: ...


def environment(site: Addresses) -> Environment:
    """Return the environment that renders the pages of a site."""
    templates = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        finalize=visibly,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals.update(
        url=site.url,
        is_queue=site.is_queue,
        config=site.config,
        version=__version__,
        spark=sparklines.spark,
        chart=sparklines.chart,
        behind=sparklines.behind,
        traffic=sparklines.traffic,
        part_done=progress.part_done,
        trouble_of=health.in_words,
        reasons=health.REASONS,
    )
    templates.filters.update(
        duration=duration,
        span=span,
        limits=limits.in_words,
        limits_of_view=limits.of_view,
        retries=next_attempt.retries,
        rows_still=waits.rows,
        took=plots.took,
        moment=moment,
        clock=clock,
        shortly=shortly,
        iso=iso,
        size=size,
        count=count,
        text=text,
        line=visible.line,
        pretty=pretty,
        beginning=beginning,
        element_id=element_id,
        named=named,
        commands=commands,
        exact=escape,
    )
    return templates


def visibly(value: object) -> object:
    """Return what any expression of any template gives, so that a reader sees all of it.

    Markup has come by here before. What a form sends back says `| exact`.

    >>> visibly("exe.\u202egpj"), visibly(Markup("<b>")), visibly(3)
    ('exe.<U+202E>gpj', Markup('<b>'), 3)
    """
    return visible.thinned(visible.text(value)) if type(value) is str else value


def span(seconds: float) -> str:
    """Return an age or a time to wait; its parts of a second would only flicker.

    >>> [span(s) for s in (0.4, 12.3, 59.7, 83, -1)]
    ['0 s', '12 s', '60 s', '1 min 23 s', '0 s']
    """
    return f"{max(seconds, 0):.0f} s" if seconds < 60 else duration(seconds)


def clock(seconds: float, now: float) -> str:
    """Return a moment of the last or next hours as a clock in UTC shows it, any other
    with its date.

    >>> clock(3600, 7200), clock(3600, 200_000)
    ('01:00:00', '1970-01-01 01:00')
    """
    at = datetime.fromtimestamp(seconds, UTC)
    is_near = at.date() == datetime.fromtimestamp(now, UTC).date()
    return f"{at:%H:%M:%S}" if is_near else f"{at:%Y-%m-%d %H:%M}"


def iso(seconds: float) -> str:
    """Return an epoch time as the attribute `datetime` wants it."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"


def count(number: float) -> str:
    """Return a number with its thousands apart.

    >>> count(1234567)
    '1,234,567'
    """
    return f"{number:,}"


def text(value: object) -> str:
    """Return any JSON value on one line; a text is itself."""
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def beginning(value: str) -> str:
    """Return the first characters of a value that a page shows whole elsewhere.

    >>> beginning("a" * 5000)[4090:]
    'aaaaaa … 904 more characters, in the JSON'
    """
    more = len(value) - _BEGINNING
    return (
        f"{value[:_BEGINNING]} … {count(more)} more characters, in the JSON"
        if more > 0
        else value
    )


def pretty(value: object) -> str:
    """Return JSON for people; what a JSON text holds is shown as JSON."""
    if isinstance(value, Mapping):
        value = dict(value)
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()


def named(name: str) -> str:
    """Return a name of any bytes as something that a reader sees, and can click on.

    >>> named("mail"), named(""), named(" \\n")
    ('mail', '(no name)', '(blanks)')
    """
    return name if name.strip() else "(blanks)" if name else "(no name)"


def element_id(value: str) -> str:
    """Return an id for an element from any name: no two names share one."""
    return "x" + hashlib.sha256(value.encode()).hexdigest()[:12]


def commands(sentence: str) -> Markup:
    """Return a sentence whose parts between backticks look like commands.

    >>> commands("say `rq up` <now>")
    Markup('say <code>rq up</code> &lt;now&gt;')
    """
    parts = visible.text(sentence).split("`")
    if len(parts) % 2 == 0:
        return escape("`".join(parts))
    code = Markup("<code>{}</code>")
    return Markup("").join(
        code.format(part) if index % 2 else escape(part)
        for index, part in enumerate(parts)
    )
