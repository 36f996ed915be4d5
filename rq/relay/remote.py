"""The receiver's side: each step is a request, and what its answer means."""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import IO
from urllib.parse import quote, urlencode

from rq import names
from rq.errors import BadInput, Refused
from rq.message.fields import Attachment
from rq.outbound.connection import Connection
from rq.outbound.exchange import Reply
from rq.outbound.line import STALL, Line
from rq.outbound.peers import Target
from rq.relay import answers, task
from rq.relay.two_phase import Answer, Heard
from rq.words.nesting import Json

SHORT = 30.0  # seconds of a request that moves no file
LONG = 1800.0  # of a commit, which may sync large files
# A receiver that hangs up in the middle has said why; if not, reading that fails too.
_HUNG_UP = (BrokenPipeError, ConnectionResetError)


class Remote:
    """A queue of another host."""

    def __init__(self, to: Target, line: Line) -> None:
        self._to = to
        self._line = line

    # ---- the steps

    def prepare(self, fields: Mapping[str, Json], key: str) -> Answer:
        mesg = json.dumps({**fields, "_method": "prep", "_key": key})
        form = {"x_format": "json", "mesg": mesg}
        with self._line.within(SHORT):
            if not self._line.knows_keys:
                # One that hangs up as we ask must not make us ask it twice.
                self._line.close()
            answer = answers.prepared(self._post(f"{self._to.queue}/new_message", form))
        self._line.knows_keys = answer.knows_keys
        return answer

    def ask(self, remote: str) -> Answer:
        with self._line.within(SHORT):
            answer = answers.looked_up(self._get(f"{_local(remote)}/state.json"))
            if answer.heard is Heard.UNKNOWN and self._is_down():
                return Answer(Heard.SILENT, "the queue is DOWN there")
        return answer

    def _is_down(self) -> bool:
        """Whether the queue says nothing of its messages now (the ancestor: 404)."""
        reply = self._get(f"{self._to.queue}.json")
        try:
            return reply.status != 200 or json.loads(reply.body)["status"] == "DOWN"
        except (ValueError, KeyError, TypeError):
            return True

    def commit(self, remote: str, key: str) -> Answer:
        form = {"x_format": "json", "_method": "commit", "_key": key}
        form["msg_id"] = remote
        with self._line.within(LONG):
            return answers.committed(self._post(_local(remote), form))

    def attach(self, remote: str, name: str, path: Path, digests: Attachment) -> Answer:
        """Send a file as a form does."""
        mark = uuid.uuid4().hex
        head, tail = _around(mark, name)
        headers = {
            "Content-Type": f"multipart/form-data; boundary={mark}",
            "Content-Length": str(len(head) + digests.size + len(tail)),
        }
        where = self._to.path(f"{_local(remote)}/attach/new")
        with self._line.guarded(), task.opened(path) as file:
            body = self._line.begin("POST", where, None, headers)
            with contextlib.suppress(*_HUNG_UP):
                body.send(head)
                _send(body, file, 0, digests)
                body.send(tail)
            return self._attached(digests)

    def resume(self, remote: str, name: str, path: Path, digests: Attachment) -> Answer:
        """Send what the receiver has not yet of a file."""
        with self._line.within(SHORT):
            where, headers = self._put(remote, name, digests)
            headers["Content-Range"] = f"bytes */{digests.size}"
            reply = self._line.request("PUT", where, b"", headers)
        have = answers.progress(reply, digests.md5)
        if isinstance(have, Answer):
            return have
        return self.put(remote, name, path, digests, min(have, digests.size))

    def put(
        self, remote: str, name: str, path: Path, digests: Attachment, start: int = 0
    ) -> Answer:
        """Send a file from `start` on; the receiver compares its SHA-256."""
        where, headers = self._put(remote, name, digests)
        last = max(digests.size - 1, start)
        headers["Content-Range"] = f"bytes {start}-{last}/{digests.size}"
        headers["Content-Length"] = str(digests.size - start)
        with self._line.guarded(), task.opened(path) as file:
            body = self._line.begin("PUT", where, None, headers)
            with contextlib.suppress(*_HUNG_UP):
                _send(body, file, start, digests)
            return self._attached(digests)

    def _attached(self, digests: Attachment) -> Answer:
        """Read the answer to a file, which may not come a byte at a time either."""
        with self._line.within(STALL):
            return answers.attached(self._line.reply(), digests.md5)

    def _put(
        self, remote: str, name: str, digests: Attachment
    ) -> tuple[str, dict[str, str]]:
        where = self._to.path(f"{_local(remote)}/attach/{quote(name)}")
        kind = "application/octet-stream"
        return where, {"Content-Type": kind, "X-RQ-SHA256": digests.sha256}

    # ---- HTTP

    def _post(self, rest: str, form: Mapping[str, str]) -> Reply:
        body = urlencode(form).encode()
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        return self._line.request("POST", self._to.path(rest), body, kind)

    def _get(self, rest: str) -> Reply:
        return self._line.request("GET", self._to.path(rest), None, {})


def _send(body: Connection, file: IO[bytes], start: int, digests: Attachment) -> None:
    count = digests.size - start
    if os.fstat(file.fileno()).st_size != digests.size:
        raise Refused(
            f"attachment {file.name} no longer has the size it was attached with"
        )
    if body.send_file(file, start, count) != count:
        raise Refused(f"attachment {file.name} became shorter while it was sent")


def _local(remote: str) -> str:
    """Return `QUEUE/ID` of a full id: the host is the one that was asked, whatever it
    calls itself."""
    queue, short = names.split_url(remote)
    if short is None:
        raise BadInput(f"{remote!r:.200} is not the id of a message")
    return f"{queue}/{short}"


def _around(mark: str, name: str) -> tuple[bytes, bytes]:
    """Return what goes before and behind a file in a form. The ancestor, whom alone forms
    are sent to, unescapes the name: of a + it would make a blank."""
    escaped = name.replace("+", "%2B")
    head = (
        f'--{mark}\r\nContent-Disposition: form-data; name="filedata"; '
        f'filename="{escaped}"\r\nContent-Type: application/octet-stream\r\n\r\n'
    )
    tail = (
        f'\r\n--{mark}\r\nContent-Disposition: form-data; name="x_format"\r\n\r\n'
        f"json\r\n--{mark}--\r\n"
    )
    return head.encode(), tail.encode()
