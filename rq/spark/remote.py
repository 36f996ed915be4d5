"""What a message names in `param1`, fetched only where its queue may go.

An address of the web is judged as that of a webhook is. A store is read with the queue's
own rights, so only where the queue's configuration names it.
"""

from __future__ import annotations

import contextlib
import errno
import http
import ipaddress
import json
import re
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urljoin, urlsplit

from rq.errors import BadConfig, BadInput, Refused, Unreachable
from rq.outbound import addresses, page
from rq.outbound.addresses import Allowed
from rq.outbound.exchange import phrase
from rq.outbound.page import Page, Rules
from rq.words.nesting import Json

if TYPE_CHECKING:
    from pyarrow import fs

STORE = "s3://"
WEB = ("http://", "https://")
ADDRESSES = (*WEB, STORE)
_STORE_TOO = frozenset({"s3a", "s3n"})  # as Hadoop calls it
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
VARIABLE = "RQ_SPARK_ALLOW"  # from the queue's config: a list, as JSON
_PATIENCE = 60.0  # seconds without a byte
# Of a store: so often it is asked, and each time for whole seconds without a byte. By
# itself arrow takes each answer that needs three seconds for none, for minutes. What reads
# tables counts the seconds of a whole answer.
TRIES, SILENT, ANSWER = 5, 10, 30
_REDIRECTS = 5
_MOVED = frozenset({301, 302, 303, 307, 308})
_LATER = frozenset({408, 425, 429, 500, 502, 503, 504})
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_REGION = re.compile(r"[a-z0-9][a-z0-9-]{0,39}", re.ASCII)
_OPTIONS = frozenset({"region", "scheme", "endpoint_override"})
_GONE = frozenset({errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN})
# What pyarrow says of a store that was away, or had too much to do.
_AWAY = re.compile(
    r"AWS Error (?:NETWORK_CONNECTION|SLOW_DOWN|SERVICE_UNAVAILABLE|INTERNAL_FAILURE"
    r"|THROTTLING|REQUEST_TIMEOUT)|curlCode: (?:6|7|28|52|56),"
    # and what delta-rs does
    r"|HTTP error: |- HTTP error|error sending request"
    r"|status code\b[\s\S]{0,40}?\b(?:500|502|503|504|429) "
)


class Source(Protocol):
    """What is read from: an answer over HTTP, or a stream of Arrow."""

    def read(self, size: int) -> bytes:
        """Return at most so many bytes; none at the end."""

    def close(self) -> None:
        """Give the connection back."""


@dataclass(frozen=True, slots=True)
class Allow:
    """What a queue may fetch beside what everybody may reach."""

    web: Allowed = field(default_factory=Allowed)
    stores: tuple[str, ...] = ()  # `BUCKET` or `BUCKET/PREFIX`


def texts(env: Mapping[str, str]) -> list[str]:
    """Return what the config of the queue that started this process allows; BadConfig."""
    try:
        given: Json = json.loads(env.get(VARIABLE) or "[]")
    except ValueError as error:
        raise BadConfig(f"{VARIABLE} is not JSON: {error}") from None
    if not isinstance(given, list):
        raise BadConfig(f'{VARIABLE} is not a list: ["HOST", "s3://BUCKET/"]')
    # What has a blank is about tables (`table_rights`).
    return [str(text) for text in given if " " not in str(text).strip()]


def allow(given: Sequence[str]) -> Allow:
    """Return what a list of hosts, networks and s3:// addresses allows; BadConfig."""
    stores = [text for text in given if text.startswith(STORE)]
    try:
        web = addresses.allowed(text for text in given if text not in stores)
    except BadInput as error:
        raise BadConfig(f"spark: {error}") from None
    return Allow(web, tuple(text.removeprefix(STORE).rstrip("/") for text in stores))


def address(text: str) -> str:
    """Return what a message names, with its scheme as it is compared here.

    >>> address(" HTTPS://Example.com/A"), address("a plain text"), address("A://b")
    ('https://Example.com/A', 'a plain text', 'a://b')
    >>> address("s3a://logs/a.gz")
    's3://logs/a.gz'
    """
    text = text.strip()
    scheme, colon, rest = text.partition("://")
    scheme = scheme.lower()
    if scheme in _STORE_TOO:
        return f"{STORE}{rest}"
    return f"{scheme}{colon}{rest}" if colon else text


def is_address(where: str) -> bool:
    """Whether a text that `address` gave is one.

    >>> is_address("s3://logs/"), is_address("orders of May")
    (True, False)
    """
    return _SCHEME.match(where) is not None


def demand_known(where: str) -> None:
    """Raise BadInput unless an address is of a kind that is read here."""
    if not where.startswith(ADDRESSES):
        scheme = where.partition("://")[0]
        raise BadInput(
            f"{scheme}:// is not read here: {', '.join(ADDRESSES)} are, and attachments"
        )


def below(where: str, may: Allow) -> list[str]:
    """Return the files that an address stands for: an s3:// one that ends in a slash,
    all that are below. Refused when the queue may not go there; OSError."""
    if not where.startswith(STORE):
        return [where]
    address, question, query = where.partition("?")
    system, path = store(where, may)
    if not address.endswith("/"):
        return [where]
    from pyarrow import fs

    with _bucket_named(system, path):
        infos = system.get_file_info(fs.FileSelector(path, recursive=True))
    names = sorted(info.path for info in infos if info.type == fs.FileType.File)
    return [f"{STORE}{quote(name)}{question}{query}" for name in names]


def stream(where: str, may: Allow) -> Source:
    """Open an address as it is there, compressed or not; Refused, Unreachable, BadInput
    or OSError when that cannot be."""
    if where.startswith(STORE):
        system, path = store(where, may)
        # By its first bytes its kind is told, not by its name.
        with _bucket_named(system, path):
            opened: Source = system.open_input_stream(path, compression=None)
        return opened
    return _page(where, may)


def is_passing(error: BaseException) -> bool:
    """Whether what failed may succeed a while later."""
    if isinstance(error, Unreachable | TimeoutError | ConnectionError):
        return True
    if isinstance(error, socket.gaierror):
        return error.errno == socket.EAI_AGAIN
    if not isinstance(error, OSError):
        return False
    return error.errno in _GONE or is_away(str(error))


def is_away(text: str) -> bool:
    """Whether an error tells that a store is away, or has too much to do."""
    return _AWAY.search(text) is not None


# ---- stores


def store(where: str, may: Allow | None) -> tuple[fs.FileSystem, str]:
    """Return a store and the path in it; None: the code of a job names it, and may name
    any. What arrow is given holds only what was judged here, so that no two readings of
    an address can differ."""
    parts = urlsplit(where)
    bucket, key = parts.netloc, unquote(parts.path).strip("/")
    if not _BUCKET.fullmatch(bucket) or ".." in key.split("/"):
        raise BadInput(f"{where!r:.120} is not s3://BUCKET/NAME")
    path = f"{bucket}/{key}" if key else bucket
    if may is not None and not _is_below(path, may.stores):
        raise Refused(
            f"this queue may not read {STORE}{bucket}; " + _mend(f"{STORE}{bucket}/")
        )
    return _system(bucket, _options(parts, may)), path


def options(where: str) -> dict[str, str]:
    """Return what an address that the code of a job names says of its store."""
    return _options(urlsplit(where), None)


def _system(bucket: str, options: Mapping[str, str]) -> fs.FileSystem:
    from pyarrow import fs

    region = options.get("region")
    if region is None and not options.get("endpoint_override"):
        region = fs.resolve_s3_region(bucket)
    return fs.S3FileSystem(
        **{**options, "region": region},
        connect_timeout=SILENT,
        request_timeout=SILENT,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=TRIES),
    )


@contextlib.contextmanager
def _bucket_named(system: fs.FileSystem, path: str) -> Iterator[None]:
    """Do something in a store; if its bucket is missing, BadInput names it: what arrow
    says of that is an error of the key."""
    from pyarrow.fs import FileType

    try:
        yield
    except OSError as error:
        bucket = path.partition("/")[0]
        with contextlib.suppress(OSError):
            if system.get_file_info(bucket).type is FileType.NotFound:
                raise BadInput(f"there is no bucket {bucket}") from error
        raise


def _is_below(path: str, places: Iterable[str]) -> bool:
    return any(path == top or path.startswith(f"{top}/") for top in places)


def _options(parts: SplitResult, may: Allow | None) -> dict[str, str]:
    """Return what says where a store is; it gets requests that are signed with the
    queue's rights, so it must have been named."""
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if strange := options.keys() - _OPTIONS:
        options_text = ", ".join(sorted(_OPTIONS))
        raise BadInput(f"?{min(strange):.40}= is not one of {options_text}")
    # It becomes a part of the name of a host, to which signed requests go.
    if not _REGION.fullmatch(options.get("region", "auto")):
        raise BadInput(f"?region={options['region']!r:.40} is no region")
    scheme = options.get("scheme", "https")
    if scheme not in ("http", "https"):
        raise BadInput(f"?scheme={scheme!r:.40} is neither http nor https")
    if endpoint := options.get("endpoint_override"):
        host, port = addresses.split_port(endpoint)
        usual = 443 if scheme == "https" else 80
        is_named = may is None or _is_named(
            addresses.plain(host), port or usual, may.web
        )
        if not is_named:
            raise Refused(f"the store {host} is not named; {_mend(endpoint)}")
    return options


def _mend(place: str) -> str:
    """Return what lets a queue go to a place, as it is written there: as JSON."""
    return (
        f'the queue\'s config may allow it: "spark": {json.dumps({"allow": [place]})}'
    )


def _is_named(host: str, port: int, web: Allowed) -> bool:
    """Whether a host is allowed by its name, or as an address that it is itself."""
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return not web.hosts.isdisjoint({(host, None), (host, port)})
    return web.takes(host, port, ip)


# ---- the web


def _page(url: str, may: Allow) -> Page:
    """Return the answer that has the body; redirects are followed, each is judged."""
    rules = Rules(allow=may.web, mend=_mend, timeout=_PATIENCE)
    for _ in range(_REDIRECTS + 1):
        answer = page.ask("GET", url, rules)
        status, location = answer.status, answer.headers.get("location")
        if status == http.HTTPStatus.OK:
            return answer
        answer.close()
        if status not in _MOVED or not location:
            kind = Unreachable if status in _LATER else BadInput
            raise kind(phrase(status))
        url = urljoin(url, location)
    raise BadInput(f"more than {_REDIRECTS} redirects")
