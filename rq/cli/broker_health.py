"""Whether the broker is well: what `rq status` and `rq doctor` say of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rq.cli import ports, term
from rq.config import broker as config
from rq.config import broker_secret
from rq.config.broker import FSYNC
from rq.errors import BadConfig, RQError
from rq.layout import Root
from rq.replies.health import Trouble
from rq.rpc.broker import questions
from rq.words.wording import duration, size

_PATIENCE = 3.0  # seconds


def totals(root: Root) -> Mapping[str, str] | None:
    """Return what the broker tells of itself as a whole; None: it is off. RQError: it
    should answer, and does not."""
    if not config.read(root.broker_config).enabled:
        return None
    return questions.totals(root, _PATIENCE)


def headline(root: Root, facts: Mapping[str, str]) -> str:
    """Return one line of what it holds."""
    chosen = config.read(root.broker_config)
    jobs = term.number(int(facts["jobs"]), "job")
    queues = term.number(int(facts["queues"]), "queue")
    clients = term.number(int(facts["clients"]), "client")
    return f"broker {chosen.addr}:{chosen.port}: {jobs} in {queues}, {clients} (`rq broker queues`)"


def troubles(root: Root, facts: Mapping[str, str]) -> Iterator[Trouble]:
    """Give what is wrong with a broker that answers."""
    if why := _wrong_secret(root):
        said = "has a secret that it will not take when it starts again"
        yield Trouble(who="broker", said=said, why=why)
    if why := facts["trouble"]:
        yield Trouble(who="broker", said="takes nothing new", why=why)
    used, limit = int(facts["used_memory"]), int(facts["maxmemory"])
    if level := int(facts["memory_level"]):
        said = f"uses {size(used)} of {size(limit)} for jobs"
        refuses = "takes nothing new" if level == 2 else "keeps no new job"
        why = (
            f"that full, it {refuses}: let programs work them off, or raise `maxmemory`"
        )
        yield Trouble(who="broker", said=said, why=why, kind="warn", passing=True)
    yield from _of_cluster(facts)
    if (seconds := int(facts["grace"])) > 0:
        yield Trouble(
            who="broker",
            said=f"lets nothing expire for {duration(seconds)}",
            why="by the time of day the machine was off for over a day; if that is "
            "wrong, `rq broker disable` and set the time",
            kind="warn",
            passing=True,
        )


def serious(root: Root) -> str:
    """Return why a broker that is up does not do its work, in a sentence; "": it does."""
    try:
        facts = questions.totals(root, _PATIENCE)
    except RQError as error:
        return str(error).replace(": see `rq broker status`", "")
    return f"it takes nothing new: {facts['trouble']}" if facts["trouble"] else ""


def _wrong_secret(root: Root) -> str:
    """Return why the secret that nodes share cannot be used; "": it can, or there is
    none."""
    try:
        chosen = config.read(root.broker_config)
        if chosen.secret_file:
            broker_secret.read(root.path / chosen.secret_file)
    except BadConfig as error:
        return str(error)
    return ""


def _of_cluster(facts: Mapping[str, str]) -> Iterator[Trouble]:
    others = int(facts["nodes"]) - 1
    if others and facts["linked_nodes"] == "0":
        yield Trouble(
            who="broker",
            said=f"is alone, and knows {term.number(others, 'other node')}",
            why="jobs that are to have copies are refused: `rq broker nodes` says why it "
            "has no link",
            kind="warn",
            passing=True,
        )
    elif silent := facts["silent_nodes"]:
        yield Trouble(
            who="broker",
            said=f"gets no answer from {silent}",
            why="jobs with copies elsewhere go on; start what is down, or let the others "
            "forget a node that will not come back: `rq broker nodes`",
            kind="warn",
            passing=True,
        )
    if facts["leaving"] == "1":
        yield Trouble(
            who="broker",
            said="leaves its cluster, and takes no new jobs",
            why="`rq broker leave` tells what is left; with --cancel it stays",
            kind="warn",
            passing=True,
        )


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
    if why := _wrong_secret(root):
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
    for trouble in troubles(root, facts):
        yield trouble.sentence
