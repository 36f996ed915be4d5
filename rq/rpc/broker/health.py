"""Whether the broker is well: what `rq status`, `rq doctor` and the verdict say of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rq.config import broker as config
from rq.config import broker_secret
from rq.errors import BadConfig, RQError
from rq.layout import Root
from rq.replies import SupervisorStatus
from rq.replies.health import children
from rq.replies.verdict import Fault, Trouble
from rq.rpc.broker import questions
from rq.words.wording import duration, size

_PATIENCE = 3.0  # seconds


def totals(root: Root) -> Mapping[str, str] | None:
    """Return what the broker tells of itself as a whole; None: it is off. RQError: it
    should answer, and does not."""
    if not config.read(root.broker_config).enabled:
        return None
    return questions.totals(root, _PATIENCE)


def look(
    root: Root, supervisor: SupervisorStatus
) -> tuple[Mapping[str, str] | None, list[Trouble]]:
    """Return what the broker tells of itself, if it should run and does, and what is
    wrong with it beside what the supervisor says."""
    try:
        facts = totals(root)
    except BadConfig as error:
        return None, [_serious("is not used", str(error))]
    except RQError as error:
        up = (child for child in children(supervisor) if child["state"] == "UP")
        is_up = any(child["kind"] == "broker" for child in up)
        return None, [_serious("does not answer", str(error))] if is_up else []
    return facts, [] if facts is None else list(troubles(root, facts))


def _serious(said: str, why: str) -> Trouble:
    return Trouble(fault=Fault.BROKER, who="broker", what=said, why=why)


def _passing(said: str, why: str) -> Trouble:
    fault = Fault.BROKER_PRESSURE
    return Trouble(fault=fault, who="broker", what=said, why=why, passing=True)


def troubles(root: Root, facts: Mapping[str, str]) -> Iterator[Trouble]:
    """Give what is wrong with a broker that answers."""
    if why := wrong_secret(root):
        yield _serious("has a secret that it will not take when it starts again", why)
    if why := facts["trouble"]:
        yield _serious("takes nothing new", why)
    used, limit = int(facts["used_memory"]), int(facts["maxmemory"])
    if level := int(facts["memory_level"]):
        refuses = "takes nothing new" if level == 2 else "keeps no new job"
        yield _passing(
            f"uses {size(used)} of {size(limit)} for jobs",
            f"that full, it {refuses}: let programs work them off, or raise `maxmemory`",
        )
    yield from _of_cluster(facts)
    if (seconds := int(facts["grace"])) > 0:
        yield _passing(
            f"lets nothing expire for {duration(seconds)}",
            "by the time of day the machine was off for over a day; if that is "
            "wrong, `rq broker disable` and set the time",
        )


def wrong_secret(root: Root) -> str:
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
        number = "1 other node" if others == 1 else f"{others:,} other nodes"
        yield _passing(
            f"is alone, and knows {number}",
            "jobs that are to have copies are refused: `rq broker nodes` says why it "
            "has no link",
        )
    elif silent := facts["silent_nodes"]:
        yield _passing(
            f"gets no answer from {silent}",
            "jobs with copies elsewhere go on; start what is down, or let the others "
            "forget a node that will not come back: `rq broker nodes`",
        )
    if facts["leaving"] == "1":
        yield _passing(
            "leaves its cluster, and takes no new jobs",
            "`rq broker leave` tells what is left; with --cancel it stays",
        )
