"""A client of RQ, any Python from 3.9; one file, no other module of RQ is needed.

    import rq_client

    rq = rq_client.Client()  # of RQ_URL and RQ_TOKEN
    sent = rq.send("mail", param1="ann@example.org", key="order/4711")
    message = rq.wait("mail", sent.msg_id)
    print(message["state"])

What was sent is on disk when `send` returns. Each message is sent with a key, yours or one
of chance, so that it is sent again after a lost answer and is still one message. What may
not be done twice is tried again only if RQ has said that nothing was done. Every request
has a time-out. Every failure is an `RQError`; no text of one holds the token.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import http.client
import json
import os
import random
import re
import ssl
import time
import urllib.parse
import uuid
from dataclasses import dataclass
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    Union,
)

__all__ = ["Client", "RQError", "Sent", "verify_webhook"]

Object = Dict[str, Any]  # of JSON
Message = Object  # the fields of a message, as RQ has them
Fields = Mapping[str, object]

ENDED = frozenset({"done", "relayed", "err", "dismissed"})
_GOES_ON = frozenset({"runs", "ready", "waits", "unsent"})  # marks of a flow
# RQ says with these kinds that it has done nothing: whatever was asked may be asked again.
NOT_DONE = frozenset(
    {
        "busy",
        "down",
        "closed",
        "no_room",
        "disk_failed",
        "cannot_read",
        "too_often",
        "unreachable",
    }
)
# With these it is not known: only what may be done twice is asked again.
UNKNOWN = frozenset({"outcome_unknown", "internal", "no_answer"})
_UNKNOWN_STATUSES = frozenset({500, 502, 503, 504})  # of a proxy, say
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 10.0  # seconds
_LINES, _BYTES = 10_000, 16 << 20  # of a request with many messages
_BULK_TIMEOUT = 120.0
_WAIT = 30  # seconds that one request waits for an end
_LOOK = 1  # the same, where progress is to be told


class RQError(Exception):
    """What was asked was not done; `kind` is one word that programs go by."""

    def __init__(self, kind: str, text: str, status: int = 0) -> None:
        super().__init__(f"{text} ({kind})")
        self.kind = kind
        self.status = status  # of HTTP; 0: there was no answer


@dataclass(frozen=True)
class Sent:
    """A message that RQ has on disk."""

    msg_id: str
    queue: str
    joined: bool = False  # an equal message stood there already: this is its id


class Client:
    """Asks one RQ. It may be shared by threads."""

    def __init__(
        self,
        url: Optional[str] = None,
        token: Optional[str] = None,
        *,
        timeout: float = 10.0,
        attempts: int = 5,
        context: Optional[ssl.SSLContext] = None,
    ) -> None:
        """`url` and `token`: else RQ_URL and RQ_TOKEN; `timeout`: seconds of one attempt;
        `context`: what is trusted of https."""
        self._at = _parsed(url or os.environ.get("RQ_URL", ""))
        self._token = _token(token or os.environ.get("RQ_TOKEN", ""))
        self._timeout = timeout
        self._attempts = attempts
        self._context = context

    # ---- sending

    def send(self, queue: str, *, key: Optional[str] = None, **fields: object) -> Sent:
        """Send a message. With the same `key`, for seven days, it is the same message."""
        data = self._post(f"{_queue(queue)}/messages", fields, key or uuid.uuid4().hex)
        return Sent(data["msg_id"], data["queue"], bool(data.get("joined")))

    def send_many(
        self,
        queue: str,
        messages: Iterable[Fields],
        *,
        key: Optional[str] = None,
    ) -> List[Union[Sent, RQError]]:
        """Send many messages; for each, in their order, what became of it. With the same
        `key` and the same messages they are sent once."""
        key = key or uuid.uuid4().hex
        answers: List[Union[Sent, RQError]] = []
        for number, body in enumerate(_bodies(messages)):
            headers = _typed("application/x-ndjson", f"{key}/{number}")
            path = f"{_queue(queue)}/messages/bulk"
            timeout = max(self._timeout, _BULK_TIMEOUT)
            data = self._ask("POST", path, body, headers, timeout=timeout)
            answers += [_of_line(queue, json.loads(line)) for line in data.splitlines()]
        return answers

    def send_flow(
        self,
        messages: Union[Iterable[Fields], Fields],
        *,
        name: Optional[str] = None,
        key: Optional[str] = None,
    ) -> Sent:
        """Send messages of which some wait for others, by `name` and `after`: all of them
        or none. With the same `key` it is the same flow. A whole plan, with `messages`
        and perhaps `post_run_webhook`, will do, too."""
        if not isinstance(messages, Mapping):
            messages = {"messages": list(messages)}
        plan = {**messages, **({"name": name} if name else {})}
        data = self._post("flows", plan, key or uuid.uuid4().hex)
        return Sent(data["msg_id"], "flow")

    # ---- looking

    def message(self, queue: str, msg_id: str) -> Message:
        """Return a message as it is now."""
        return self._get(_message(queue, msg_id))

    def wait(
        self,
        queue: str,
        msg_id: str,
        *,
        timeout: float = 600.0,
        on_progress: Optional[Callable[[Message], object]] = None,
    ) -> Message:
        """Return a message that has ended: its `state` is done, relayed or err.

        `on_progress` is called with it whenever its `status` has changed. An RQError of the
        kind `timeout`: it has not ended in time, and goes on.
        """
        deadline, told = time.monotonic() + timeout, None
        while True:
            left = deadline - time.monotonic()
            most = _LOOK if on_progress else _WAIT
            message = self._look(queue, msg_id, max(0.0, min(most, left)))
            if message["state"] in ENDED:
                return message
            if on_progress and message["status"] != told:
                told = message["status"]
                on_progress(message)
            if left <= 0:
                text = f"{queue}/{msg_id} has not ended after {timeout:g} s, it goes on"
                raise RQError("timeout", text)

    def result(self, queue: str, msg_id: str, *, timeout: float = 600.0) -> Any:
        """Wait for a message, and return what its script said as `result`: JSON is read,
        other text is text; None: it said nothing. An RQError of the kind `failed`: the
        message ended in err."""
        message = self.wait(queue, msg_id, timeout=timeout)
        if message["state"] not in ("done", "relayed"):
            raise RQError("failed", f"{queue}/{msg_id}: {message['story']['why']}")
        said = (message.get("result") or {}).get("result")
        try:
            return json.loads(said) if said is not None else None
        except ValueError:
            return said

    def log(self, queue: str, msg_id: str) -> bytes:
        """Return what the script of a message has printed."""
        return self._ask("GET", f"{_message(queue, msg_id)}/log")

    def flow(self, flow: str) -> Object:
        """Return a flow as it is now: its `mark`, and its `nodes` with theirs."""
        return self._get(_flow(flow))

    def _look_at_flow(self, flow: str, seconds: float) -> Object:
        path = f"{_flow(flow)}?wait={seconds:.3f}&for=end"
        data: Object = json.loads(
            self._ask("GET", path, timeout=self._timeout + seconds)
        )
        return data

    def wait_flow(
        self,
        flow: str,
        *,
        timeout: float = 600.0,
        on_progress: Optional[Callable[[Object], object]] = None,
    ) -> Object:
        """Return a flow of which nothing runs or is ready to: `mark` is `done`, or tells
        what is not, and `text` why. One that was not begun (`is_begun`), since a queue has
        refused a message, has the mark `failed`: none of it ran. One that was cancelled
        is `cancelled`. `on_progress` is called with it whenever its `nodes` have changed. An RQError of
        the kind `timeout` says how it stands."""
        deadline, told = time.monotonic() + timeout, None
        while True:
            left = deadline - time.monotonic()
            most = _LOOK if on_progress else _WAIT
            view = self._look_at_flow(flow, max(0.0, min(most, left)))
            if view["mark"] not in _GOES_ON:
                return view
            if on_progress and view["nodes"] != told:
                told = view["nodes"]
                on_progress(view)
            if left <= 0:
                text = f"flow {flow} has not ended after {timeout:g} s: {view['text']}"
                raise RQError("timeout", text)

    def _look(self, queue: str, msg_id: str, seconds: float) -> Message:
        query = f"?wait={seconds:.3f}&for=end"
        path = f"{_message(queue, msg_id)}{query}"
        data: Message = json.loads(
            self._ask("GET", path, timeout=self._timeout + seconds)
        )
        return data

    # ---- changing

    def cancel(self, queue: str, msg_id: str) -> None:
        """End a message that runs: it ends in err; remove one that waits."""
        self._ask("POST", f"{_message(queue, msg_id)}/cancel", safe=False)

    def cancel_flow(self, flow: str) -> None:
        """End what has not ended of a flow."""
        self._ask("POST", f"{_flow(flow)}/cancel", safe=False)

    # ---- requests

    def _get(self, path: str) -> Object:
        data: Object = json.loads(self._ask("GET", path))
        return data

    def _post(self, path: str, data: Fields, key: str) -> Object:
        body = json.dumps(data).encode()
        answer = self._ask("POST", path, body, _typed("application/json", key))
        reply: Object = json.loads(answer)
        return reply

    def _ask(
        self,
        method: str,
        path: str,
        body: Optional[bytes] = None,
        headers: Mapping[str, str] = {},
        *,
        safe: bool = True,
        timeout: Optional[float] = None,
    ) -> bytes:
        """Ask, and ask again while that is safe and may help; return the body."""
        for pause in _pauses(self._attempts):
            failure = _Failure()
            try:
                return self._once(method, path, body, headers, timeout, failure)
            except RQError as error:
                again = error.kind in NOT_DONE or failure.again
                if pause is None or not (again or (safe and error.kind in UNKNOWN)):
                    raise
            time.sleep(max(pause, min(failure.retry_after, _LONGEST_PAUSE)))
        raise AssertionError("the last attempt returns or raises")

    def _once(
        self,
        method: str,
        path: str,
        body: Optional[bytes],
        headers: Mapping[str, str],
        timeout: Optional[float],
        failure: "_Failure",
    ) -> bytes:
        """Ask once; `failure` is told what else is known of a failure."""
        line = self._connection(timeout or self._timeout)
        try:
            failure.again = True  # nothing was sent yet
            line.connect()
            failure.again = False
            line.request(
                method, f"{self._at.path}/api/v1/{path}", body, self._with(headers)
            )
            answer = line.getresponse()
            data = answer.read()
        except (OSError, http.client.HTTPException) as error:
            where = f"{self._at.scheme}://{self._at.netloc}"
            kind = "unreachable" if failure.again else "no_answer"
            text = f"{where} does not answer: {error or type(error).__name__}"
            raise RQError(kind, text) from None
        finally:
            line.close()
        if 200 <= answer.status < 300:
            return data
        failure.retry_after = _seconds(answer.getheader("Retry-After"))
        raise _refusal(answer.status, data)

    def _with(self, headers: Mapping[str, str]) -> Dict[str, str]:
        own = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        return {"Accept": "application/json", **own, **headers}

    def _connection(self, timeout: float) -> http.client.HTTPConnection:
        host, port = self._at.hostname or "", self._at.port
        if self._at.scheme == "https":
            context = self._context or ssl.create_default_context()
            return http.client.HTTPSConnection(
                host, port, timeout=timeout, context=context
            )
        return http.client.HTTPConnection(host, port, timeout=timeout)


class _Failure:
    """What is known of a failure beside its kind."""

    again = False  # nothing was sent
    retry_after = 0.0  # seconds that RQ wants us to wait


def _parsed(url: str) -> urllib.parse.SplitResult:
    if not url:
        raise RQError("bad_input", "no address of RQ: say the url, or set RQ_URL")
    at = urllib.parse.urlsplit(url.rstrip("/"))
    if at.scheme not in ("http", "https") or not at.hostname:
        raise RQError("bad_input", "the address of RQ is http://HOST:PORT or https://…")
    if "@" in at.netloc:
        raise RQError("bad_input", "the address of RQ holds a login: use a token")
    return at


def _token(token: str) -> str:
    """Return a token without the end of the line of its file. One that no header can hold
    is refused here: who says so below would say the token."""
    token = token.strip()
    if re.search(r"[^!-~]", token):
        text = "the token holds a blank or control character, or is not ASCII: see RQ_TOKEN"
        raise RQError("bad_input", text)
    return token


def _queue(queue: str) -> str:
    return f"queues/{urllib.parse.quote(queue, safe='')}"


def _message(queue: str, msg_id: str) -> str:
    return f"{_queue(queue)}/messages/{urllib.parse.quote(msg_id, safe='')}"


def _flow(flow: str) -> str:
    return f"flows/{urllib.parse.quote(flow, safe='')}"


def _typed(media: str, key: str) -> Dict[str, str]:
    if not key.isascii() or not key.isprintable():
        raise RQError("bad_input", "a key is 1 to 200 printable characters of ASCII")
    return {"Content-Type": media, "Idempotency-Key": key}


def _bodies(messages: Iterable[Fields]) -> Iterator[bytes]:
    """Give messages as lines, so many as one request takes."""
    lines: List[bytes] = []
    size = 0
    for message in messages:
        line = json.dumps(message).encode() + b"\n"
        if lines and (len(lines) == _LINES or size + len(line) > _BYTES):
            yield b"".join(lines)
            lines, size = [], 0
        lines.append(line)
        size += len(line)
    if lines:
        yield b"".join(lines)


def _of_line(queue: str, answer: Object) -> Union[Sent, RQError]:
    """Return what became of one of many messages."""
    kind = answer.get("kind")
    if kind in (None, "joined"):
        return Sent(answer["msg_id"], queue, kind is not None)
    return RQError(str(kind), f"line {answer['line']}: {answer['text']}")


def _refusal(status: int, data: bytes) -> RQError:
    """Return what an answer refuses."""
    try:
        problem = json.loads(data)
        return RQError(str(problem["kind"]), str(problem["detail"]), status)
    except (ValueError, KeyError, TypeError):  # no answer of RQ
        kind = "no_answer" if status in _UNKNOWN_STATUSES else "refused"
        return RQError(kind, f"the answer is HTTP {status}, and not of RQ", status)


def _pauses(attempts: int) -> Iterator[Optional[float]]:
    """Give the pause after each attempt, in seconds; None after the last."""
    for number in range(attempts - 1):
        longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2**number)
        yield longest * random.uniform(0.5, 1.0)
    yield None


def _seconds(header: Optional[str]) -> float:
    return float(header) if header and header.isdigit() else 0.0


# ---- webhooks


def verify_webhook(
    secret: Union[str, Iterable[str]],
    headers: Mapping[str, str],
    body: Union[bytes, str],
    *,
    tolerance: float = 300.0,
    now: Optional[float] = None,
) -> Object:
    """Return the event of a webhook, `{"type", "timestamp", "data"}`, that RQ has signed.

    `secret`: one or several, or config/webhook.secret as it is, which has one a line;
    `body`: the bytes as they came, or these as UTF-8. An RQError of the kind
    `bad_signature`: it is not of RQ, or older than `tolerance` seconds, or of the future;
    `bad_input`: what you said is no secret, or no body.
    """
    keys = _keys(secret)
    lower = {name.lower(): value for name, value in headers.items()}
    webhook_id, moment = lower.get("webhook-id", ""), lower.get("webhook-timestamp", "")
    signed = _bytes(f"{webhook_id}.{moment}.") + _bytes(body)
    given = lower.get("webhook-signature", "").split()
    valid = [_signature(key, signed) for key in keys]
    if not any(hmac.compare_digest(_bytes(a), b) for a in given for b in valid):
        raise RQError("bad_signature", "this webhook is not signed with our secret")
    age = (time.time() if now is None else now) - float(moment)
    if abs(age) > tolerance:
        raise RQError("bad_signature", f"this webhook is {age:.0f} s old")
    event: Object = json.loads(body)
    return event


def _keys(secret: Union[str, Iterable[str]]) -> List[bytes]:
    """Return the keys in secrets. None is left out: with an empty key anyone could sign."""
    texts = [secret] if isinstance(secret, (str, bytes)) else list(secret or [])
    lines = [line for text in texts for line in _text(text).split("\n")]
    secrets = [line.strip() for line in lines]
    keys = [_key(each) for each in secrets if each and not each.startswith("#")]
    if not all(keys) or not keys:
        text = (
            "the secret of webhooks is wrong: it is whsec_ and base64, and the lines of"
        )
        raise RQError("bad_input", f"{text} config/webhook.secret have it")
    return keys


def _key(secret: str) -> bytes:
    """Return the key in a secret; b"": it is none."""
    try:
        key = base64.b64decode(secret[len("whsec_") :], validate=True)
    except (binascii.Error, ValueError):
        key = b""
    return key if secret.startswith("whsec_") else b""


def _text(secret: object) -> str:
    if isinstance(secret, bytes):
        return secret.decode("utf-8", "replace")
    return secret if isinstance(secret, str) else "none"


def _bytes(said: object) -> bytes:
    """Return what is signed as bytes, whatever characters a header came with."""
    if isinstance(said, str):
        return said.encode("utf-8", "surrogatepass")
    if not isinstance(said, (bytes, bytearray)):
        text = "the body of a webhook is wanted as its bytes came, before JSON is read"
        raise RQError("bad_input", text)
    return bytes(said)


def _signature(key: bytes, signed: bytes) -> bytes:
    return b"v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256))
