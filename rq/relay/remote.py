"""The receiver's side: each step is a request, and what its answer means."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from rq import names
from rq.errors import BadInput, Refused
from rq.message import Attachment
from rq.relay import answers
from rq.relay.answers import Reply
from rq.relay.line import PIECE, Line
from rq.relay.peers import Target
from rq.relay.two_phase import Answer, Heard

SHORT = 60.0  # seconds of a request that moves no file
LONG = 1800.0  # of a commit, which may sync large files


class Remote:
    """A queue of another host."""

    def __init__(self, to: Target, line: Line) -> None:
        self._to = to
        self._line = line

    # ---- the steps

    def prepare(self, fields: Mapping[str, Any], key: str) -> Answer:
        mesg = json.dumps({**fields, "_method": "prep", "_key": key})
        form = {"x_format": "json", "mesg": mesg}
        with self._line.within(SHORT):
            if not self._line.knows_keys:
                # One that hangs up as we ask must not make us ask it twice.
                self._line.close()
            answer = answers.prepared(self._post(f"{self._to.queue}/new_message", form))
        self._line.knows_keys = answer.keyed
        return answer

    def ask(self, remote: str) -> Answer:
        with self._line.within(SHORT):
            found = answers.asked(self._get(f"{_local(remote)}/state.json"))
            if found.heard is Heard.UNKNOWN and self._is_down():
                return Answer(Heard.SILENT, "the queue is DOWN there")
        return found

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

    def attach(self, remote: str, name: str, path: Path, known: Attachment) -> Answer:
        """Send a file as a form does."""
        mark = uuid.uuid4().hex
        head, tail = _around(mark, name)
        headers = {
            "Content-Type": f"multipart/form-data; boundary={mark}",
            "Content-Length": str(len(head) + known.size + len(tail)),
        }
        with self._line.guarded():
            where = self._to.path(f"{_local(remote)}/attach/new")
            self._line.begin("POST", where, headers)
            self._line.send(head)
            self._pour(path, known)
            self._line.send(tail)
            return answers.attached(self._line.reply(), known.md5)

    def _pour(self, path: Path, known: Attachment) -> None:
        """Send a file, and prove on the way that it is what was once attached."""
        sha, size = hashlib.sha256(), 0
        buffer = memoryview(bytearray(PIECE))
        with path.open("rb", buffering=0) as file:
            while size <= known.size and (got := file.readinto(buffer)):
                size += got
                sha.update(buffer[:got])
                if size <= known.size:
                    self._line.send(buffer[:got])
        if size != known.size or sha.hexdigest() != known.sha256:
            raise Refused(f"attachment {path.name} is not what was attached here")

    # ---- HTTP

    def _post(self, rest: str, form: Mapping[str, str]) -> Reply:
        body = urlencode(form).encode()
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        return self._line.request("POST", self._to.path(rest), body, kind)

    def _get(self, rest: str) -> Reply:
        return self._line.request("GET", self._to.path(rest), None, {})


def _local(remote: str) -> str:
    """Return `QUEUE/ID` of a full id: the host is the one that was asked, whatever it
    calls itself."""
    queue, short = names.split_url(remote)
    if short is None:
        raise BadInput(f"{remote!r:.200} is not the id of a message")
    return f"{queue}/{short}"


def _around(mark: str, name: str) -> tuple[bytes, bytes]:
    head = (
        f'--{mark}\r\nContent-Disposition: form-data; name="filedata"; '
        f'filename="{name}"\r\nContent-Type: application/octet-stream\r\n\r\n'
    )
    tail = (
        f'\r\n--{mark}\r\nContent-Disposition: form-data; name="x_format"\r\n\r\n'
        f"json\r\n--{mark}--\r\n"
    )
    return head.encode(), tail.encode()
