"""The options of a stream under leases, checked, and the way to its queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rq import config, names
from rq.errors import BadInput
from rq.layout import Root
from rq.outbound import peers
from rq.spark.lease_queue import SocketWay, Way, WebWay
from rq.work import options as agent_options

ROWS, MOST_ROWS = 1000, 100_000  # of a batch
SECONDS, LONGEST = 600.0, 86_400.0


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a stream, checked. They travel with its tasks: no secret is here."""

    root: str  # where RQ is; with a url "", or the root whose peers.json is used
    queue: str
    claims: str
    rows: int
    seconds: float
    partitions: int
    label: str  # "": made of the name of the stream
    timeout: float
    url: str | None = None  # of the web; None: the queue is on this host
    token_file: str | None = None
    insecure: bool = False


def parse_options(options: Mapping[str, str]) -> Options:
    """Return what options ask for; BadInput names the wrong one."""
    queue, claims = options.get("queue", ""), options.get("claims", "")
    if not names.is_queue_name(queue):
        raise BadInput(f"queue: {queue!r:.60} is not the name of a queue")
    if not claims.startswith("/"):
        raise BadInput(
            "claims: name a directory of this query's own by its whole path, say one in "
            "its checkpointLocation"
        )
    url = _url(options)
    root = options.get("root")
    return Options(
        root="" if url and root is None else str(config.find_root(root).path),
        queue=queue,
        claims=claims,
        rows=int(_number(options, "rows", ROWS, MOST_ROWS)),
        seconds=_number(options, "seconds", SECONDS, LONGEST),
        partitions=int(_number(options, "partitions", 2, 10_000)),
        label=agent_options.label(options.get("label", "")),
        timeout=_number(options, "timeout", 60.0, LONGEST),
        url=url,
        token_file=options.get("token_file"),
        insecure=_yes(options, "insecure"),
    )


def _url(options: Mapping[str, str]) -> str | None:
    url = options.get("url")
    if url is None:
        if "token_file" in options:
            raise BadInput(
                "token_file: it is for a url; a queue of this host needs none"
            )
        return None
    if not names.is_remote(url):
        raise BadInput("url: it is not http://HOST:PORT/ or https://HOST/")
    if "@" in url:
        raise BadInput(
            "url: Spark shows it to everybody, so it holds no password: let token_file "
            "name a file with a token"
        )
    return f"{url.rstrip('/')}/"


def _number(
    options: Mapping[str, str], name: str, default: float, most: float
) -> float:
    text = options.get(name, f"{default}")
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 1 <= value <= most:
        raise BadInput(f"{name}: {text!r:.60} is not a number from 1 to {most:.0f}")
    return value


def _yes(options: Mapping[str, str], name: str) -> bool:
    text = options.get(name, "false")
    if text not in ("true", "false"):
        raise BadInput(f"{name}: {text!r:.60} is not true or false")
    return text == "true"


def way(options: Options) -> Way:
    """Return the way to the queue; BadConfig when the token cannot be read."""
    if options.url is None:
        return SocketWay(Root(Path(options.root)).queue(options.queue).socket)
    to = peers.target(f"{options.url}q/{options.queue}")
    root = Root(Path(options.root)) if options.root else None
    token = None if options.token_file is None else Path(options.token_file)
    peer = agent_options.peer_of(to, root, token, options.insecure)
    return WebWay(to, peer)
