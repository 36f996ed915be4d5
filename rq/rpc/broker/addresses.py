"""Names of any bytes, as they stand in an address, and as a person reads them. Pure."""

from __future__ import annotations

import re

from rq.errors import BadInput

_OTHERS = re.compile(rb"[^A-Za-z0-9_:-]")
_ESCAPED = re.compile("~([0-9A-F]{2})", re.ASCII)


def address_of(name: bytes) -> str:
    """Return a name of any bytes as it stands in an address.

    >>> address_of(b"mail"), address_of(b"rq:a/b.\\xff~"), address_of(b"")
    ('mail', 'rq:a~2Fb~2E~FF~7E', '~')
    """
    text = _OTHERS.sub(lambda match: b"~%02X" % match[0][0], name)
    return text.decode() or "~"


def name_at(address: str) -> bytes:
    """Return the name that stands in an address; BadInput: none does.

    >>> name_at("a~2Fb~FF"), name_at("~")
    (b'a/b\\xff', b'')
    """
    if address == "~":
        return b""
    text = _ESCAPED.sub(lambda match: chr(int(match[1], 16)), address)
    name = text.encode("latin-1", "replace")
    if address_of(name) != address:
        raise BadInput(f"{address:.80} is not how a name stands in an address")
    return name


def readable(data: bytes) -> str:
    """Return bytes as text; those that are none as their numbers.

    >>> readable(b"a\\xff")
    'a\\\\xff'
    """
    return data.decode(errors="backslashreplace")
