"""Reads what a request of an operation brings, and refuses what is not of its shape."""

from __future__ import annotations

import falcon
from falcon.asgi import Request

from rq.web import forms
from rq.web.api import readers
from rq.web.api.operation import Media, Operation
from rq.words.nesting import from_json

BODY = forms.REQUEST  # bytes


async def of(row: Operation, req: Request) -> object:
    """Return the request of an operation as its shape has it; None when it has none.

    BadInput names the field that is wrong; 400, 411, 413 or 415 when the body cannot be
    read. A body that is no JSON is the handler's to read.
    """
    if row.asks_by_query and row.request is not None:
        return readers.read_query(row.request, req.params)
    if Media.JSON not in row.takes or row.method == "GET":
        return None
    kind = media_of(req)
    if kind != Media.JSON and kind in row.takes:
        return None
    kinds = row.takes if row.request else ()
    data = await body(req, *kinds, most=row.longest or BODY)
    if row.request is None:
        return None
    return readers.read(row.request, from_json(data or b"{}", "the body"))


def media_of(req: Request) -> str:
    """Return what a request says that its body is."""
    return (req.content_type or "").partition(";")[0].strip().lower()


async def body(req: Request, *kinds: str, most: int = BODY) -> bytes:
    """Return the body of a request, whole; `kinds`: what it may be, if it is not empty."""
    length = req.content_length or 0
    if length > most:
        raise falcon.HTTPContentTooLarge(
            description=f"A request is at most {most} bytes here; send several."
        )
    if req.get_header("Transfer-Encoding"):
        raise falcon.HTTPLengthRequired(
            description="A request needs its Content-Length, so that half of it is none."
        )
    if kinds and length:
        check_media(req, kinds)
    data = await req.stream.read()
    if len(data) < length:
        raise falcon.HTTPBadRequest(
            description="The body is shorter than its Content-Length says."
        )
    return bytes(data)


def check_media(req: Request, kinds: tuple[str, ...]) -> None:
    """415 when a request says that its body is something else, or packed."""
    check_packing(req)
    if media_of(req) not in kinds:
        raise falcon.HTTPUnsupportedMediaType(
            description=f"{media_of(req) or 'No Content-Type'} is not read here; send "
            f"{' or '.join(kinds)}."
        )


def check_packing(req: Request) -> None:
    """415 when a request says that its body is packed."""
    packed = req.get_header("Content-Encoding") or "identity"
    if packed.strip().lower() != "identity":
        raise falcon.HTTPUnsupportedMediaType(
            description=f"A body with Content-Encoding {packed:.40} is not read here; "
            "send it as it is."
        )
