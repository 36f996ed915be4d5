"""Leases over HTTP: a queue whose workers are elsewhere, and asking as one of them."""

from __future__ import annotations

import json
from typing import Any

from harness.web_server import Answer, Client, Served
from rq.access import tokens
from rq.access.roles import Role
from rq.access.tokens import Token
from rq.layout import Root

API = "/api/v1/queues"
JSON = "application/json"


def pulled(web: Served, **settings: Any) -> str:
    """Return the name of a new queue whose workers are elsewhere."""
    return web.queue("exit 1", num_workers=0, pull=settings)


def say(
    web: Client, method: str, path: str, value: object = None, **headers: str
) -> Answer:
    """Ask below `/api/v1/queues` with JSON."""
    body = json.dumps({} if value is None else value).encode()
    return web.ask(method, f"{API}/{path}", body, Content_Type=JSON, **headers)


def leased(web: Client, name: str, **wanted: Any) -> list[dict[str, Any]]:
    """Return the leases that a request gets."""
    answer = say(web, "POST", f"{name}/leases", wanted)
    assert answer.status == 200, answer.text
    leases: list[dict[str, Any]] = answer.json["leases"]
    return leases


def begun(web: Client, name: str, **fields: Any) -> dict[str, Any]:
    """Send a message, lease it, and say that it is begun; return the lease."""
    web.send(name, **fields)
    [lease] = leased(web, name)
    place = f"{name}/leases/start"
    [row] = say(web, "POST", place, {"tokens": [lease["token"]]}).json["results"]
    assert row["ok"], row
    return lease


def credentials(root: Root, name: str, role: Role, **fields: Any) -> dict[str, str]:
    """Return the header of a new token."""
    secret = tokens.new_secret()
    tokens.create(
        root,
        Token(
            name=name,
            sha256=tokens.digest_of(secret),
            role=role,
            created=0.0,
            created_by="test",
            **fields,
        ),
    )
    return {"Authorization": f"Bearer {secret}"}
