"""Which Delta tables the jobs of a queue reach: its own, and those whose queue says so.

`"spark": {"allow": ["reports reads orders"]}` of the queue that a table belongs to lets the
jobs of the queue `reports` read it; `writes` lets them write as well. `*` is all queues, or
all tables. It is the owner's word that counts, as it is now.
"""

from __future__ import annotations

from collections.abc import Iterable

from rq import config, names, tables
from rq.errors import BadInput, NotPermitted, RQError
from rq.spark import table_places
from rq.tables import Name

READS, WRITES = "reads", "writes"
_ENOUGH = {READS: (READS, WRITES), WRITES: (WRITES,)}
_ANY = "*"


def short(queue: str, text: str, verb: str = "q.table") -> str:
    """Return the name of a table as jobs of a queue call it: its own without the queue."""
    owner, name = named(text, verb)
    return f"{owner}/{name}" if owner not in ("", queue) else name


def named(text: str, verb: str = "q.table") -> tuple[str, str]:
    """Return the queue, empty if it is one's own, and the name of a table; BadInput.

    >>> named("orders"), named("shop/orders")
    (('', 'orders'), ('shop', 'orders'))
    """
    queue, slash, name = text.rpartition("/")
    is_queue = names.is_queue_name(queue) if slash else True
    if not is_queue or not tables.TABLE.fullmatch(name):
        raise BadInput(
            f"{verb}: {text!r:.80} is no name of a table: a letter, then letters, digits "
            "and _, 64 at most; of another queue QUEUE/NAME"
        )
    return queue, name


def place(queue: str, text: str, verb: str) -> str:
    """Return where the table is that a job of a queue names; NotPermitted unless it may
    do `verb` there."""
    owner, name = named(text)
    root = config.find_root(None)
    if owner in ("", queue):
        return table_places.of(root, Name(queue, name), table_places.own_setting())
    _demand(owner, name, queue, verb)
    setting = table_places.setting_of(root, owner)
    return table_places.of(root, Name(owner, name), setting)


def _demand(owner: str, name: str, queue: str, verb: str) -> None:
    # No kind that is tried again: it would wait in que, while a person has to change a file.
    if not any(_allows(entry, queue, verb, name) for entry in _said(owner)):
        raise NotPermitted(
            f"{owner}/{name} is a table of the queue {owner}, and {queue} may not "
            f"{verb.removesuffix('s')} it: {owner} allows it by "
            f'"spark": {{"allow": ["{queue} {verb} {name}"]}} in its config'
        )


def _said(owner: str) -> Iterable[str]:
    """Return what a queue allows; nothing if there is no such queue, or it cannot be read."""
    try:
        settings = config.read_queue(config.find_root(None).queue(owner))
    except (OSError, RQError):
        return ()
    allow = settings.spark.get("allow", ())
    return tuple(map(str, allow)) if isinstance(allow, list | tuple) else ()


def _allows(entry: str, queue: str, verb: str, name: str) -> bool:
    words = entry.split()
    return (
        len(words) == 3
        and words[0] in (_ANY, queue)
        and words[1] in _ENOUGH[verb]
        and words[2] in (_ANY, name)
    )
