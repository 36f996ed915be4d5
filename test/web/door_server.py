"""The web's door before an application that tells what it was asked with.

Run as `python door_server.py ROOT READY_FD JSON`; the JSON changes what takes long.
"""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rq import config
from rq.access import tls
from rq.layout import Root
from rq.proc import listening
from rq.rpc.helper import Helper
from rq.web import connection, door, server


async def tell(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the scope, after the whole body; who asks /stranger is not let in."""
    assert scope["type"] == "http", scope["type"]
    if scope["path"] != "/stranger":
        scope["rq.admitted"]()
    body, more, ended = b"", True, ""
    while more:
        message = await receive()
        ended = message["type"]
        body += message.get("body", b"")
        more = message.get("more_body", False)
    told = {
        "uid": scope.get("rq.uid", "missing"),
        "scheme": scope["scheme"],
        "client": scope["client"][0],
        "path": scope["path"],
        "headers": [[k.decode(), v.decode()] for k, v in scope["headers"]],
        "length": len(body),
        "ended": ended,
    }
    text = json.dumps(told).encode()
    if scope["path"] == "/big":
        text = b"x" * 20_000_000
    length = (b"content-length", str(len(text)).encode())
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    await send({"type": "http.response.body", "body": text})


class Telling(server._Server):
    def load(self) -> Any:
        self._counted = server._Counted(tell, SimpleNamespace(livelog=None))
        return self._counted


def main() -> None:
    root, ready, changes = Root(Path(sys.argv[1])), int(sys.argv[2]), sys.argv[3]
    wanted = json.loads(changes)
    for name in ("HEAD_TIME", "STALL_TIME"):
        setattr(connection, name, wanted.get(name, getattr(connection, name)))
    door._SAID_AGAIN = wanted.get("SAID_AGAIN", door._SAID_AGAIN)
    server.BODY_TIME = wanted.get("BODY_TIME", server.BODY_TIME)
    tls.LOOK = wanted.get("LOOK", tls.LOOK)
    if number := wanted.get("DESCRIPTORS"):
        resource.setrlimit(resource.RLIMIT_NOFILE, (number, number))
    settings = config.read_root(root)
    rules = door.Rules(
        connections=settings.web_connections,
        certificate=tls.of(settings.tls, root.path),
    )
    started = Helper("web", root, ready, None)
    Telling(
        started,
        settings,
        rules,
        listening.listen(settings.addr, settings.port, "the web"),
    ).run()


if __name__ == "__main__":
    main()
