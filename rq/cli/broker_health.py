"""Whether the broker is well: what `rq status` and `rq doctor` say of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rq.cli import ports, term
from rq.config import broker as config
from rq.config.broker import FSYNC
from rq.errors import BadConfig, RQError
from rq.layout import Root
from rq.rpc.broker import health, questions

_PATIENCE = 3.0  # seconds


def headline(root: Root, facts: Mapping[str, str]) -> str:
    """Return one line of what it holds."""
    chosen = config.read(root.broker_config)
    jobs = term.number(int(facts["jobs"]), "job")
    queues = term.number(int(facts["queues"]), "queue")
    clients = term.number(int(facts["clients"]), "client")
    return f"broker {chosen.addr}:{chosen.port}: {jobs} in {queues}, {clients} (`rq broker queues`)"


def serious(root: Root) -> str:
    """Return why a broker that is up does not do its work, in a sentence; "": it does."""
    try:
        facts = questions.totals(root, _PATIENCE)
    except RQError as error:
        return str(error).replace(": see `rq broker status`", "")
    return f"it takes nothing new: {facts['trouble']}" if facts["trouble"] else ""


def warnings(root: Root, running: bool) -> Iterator[str]:
    """Give what `rq doctor` says of it; `running`: RQ is up."""
    try:
        chosen = config.read(root.broker_config)
        if not chosen.enabled:
            return
        config.check_door(chosen)
    except BadConfig as error:
        yield str(error)
        return
    if chosen.appendfsync != FSYNC[0]:
        yield (
            f"`appendfsync` of the broker is {chosen.appendfsync}: what it has answered "
            "may be lost in a power cut"
        )
    if running:
        yield from _of_running(root)
        return
    if why := health.wrong_secret(root):
        yield why
    if (holder := ports.holder(chosen.addr, chosen.port)) is not None:
        yield f"port {chosen.port}, which the broker needs, is taken by {holder}"


def _of_running(root: Root) -> Iterator[str]:
    try:
        facts = questions.totals(root, _PATIENCE)
    except RQError:
        yield (
            "the broker is enabled and does not answer: `rq status` and log/broker.log "
            "say why"
        )
        return
    for trouble in health.troubles(root, facts):
        yield trouble.sentence
