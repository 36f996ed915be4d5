"""The commands about whom a queue tells how it goes."""

from __future__ import annotations

from rq import replies
from rq.access.roles import Role
from rq.config import secrets
from rq.config.notices import Matter, Notice, targets
from rq.config.settings import QueueConfig
from rq.errors import WrongState
from rq.queues.control.command import Context, Handler, Ok, Request
from rq.queues.delivery import notices
from rq.queues.owner.settings import Settings
from rq.spool.news import News


def listed(ctx: Context, request: Request) -> Ok[replies.NoticesView]:
    """Answer whom the queue tells of what, and how that stands."""
    tells = view(ctx.owner.settings, ctx.owner.spool.news)
    if not ctx.connection.asker.principal.may(Role.ADMIN):
        for row in tells["tells"]:
            row["whom"] = secrets.hosts_only(row["whom"])
    return "ok", tells


def view(settings: Settings, news: News) -> replies.NoticesView:
    """Return whom a queue tells of what, and how that stands."""
    wanted = settings.notices
    own = settings.queue
    return {
        "tells": [_row(own, news, matter, notice) for matter, notice in wanted.items()],
        "failing": news.failing or None,
        "quiet": news.quiet or None,
        "succeeded": news.succeeded or None,
    }


def _row(
    own: QueueConfig, news: News, matter: Matter, notice: Notice
) -> replies.TellsRow:
    group = news.groups.get(matter)
    return {
        "matter": str(matter),
        "whom": targets(notice),
        "own": getattr(own, f"on_{matter}") is not None,
        "every": notice["every"],
        "seconds": notices.limit(notice, news),
        "last": group.at if group and group.at else None,
        "more": group.more if group else 0,
    }


def test(ctx: Context, request: Request) -> Ok[list[str]]:
    """Send a notice now to all whom the queue tells of something; answer whom."""
    owner = ctx.owner
    whom = notices.test(owner.settings, owner.spool)
    if not whom:
        raise WrongState(
            f"queue {owner.name} tells nobody of anything: set on_err, or another of "
            "these, in its config or in config/config.json"
        )
    owner.wake()
    if ctx.connection.asker.principal.may(Role.ADMIN):
        return "ok", whom
    return "ok", secrets.hosts_only(whom)


HANDLERS: dict[str, Handler] = {
    "notices": listed,
    "test_notice": test,
}
