"""Examples of requests, as the document of the API shows them: one for each operation that
takes JSON. Tests send each of them."""

from __future__ import annotations

from collections.abc import Mapping

from rq.message.fields import JsonObject

_ERR_OF_TODAY: JsonObject = {
    "action": "retry",
    "filter": {"state": "err", "older": "10m", "text": "timeout"},
}
_TOKENS: JsonObject = {"tokens": ["0123456789abcdef0123456789abcdef"]}
EXAMPLES: Mapping[str, JsonObject] = {
    "createQueue": {
        "name": "mail",
        "script": "/srv/mail/run",
        "num_workers": 4,
        "timeout": "10m",
    },
    "changeQueue": {"num_workers": 8, "timeout": None},
    "pauseQueue": {"why": "the provider is down", "until": 4102444800},
    "sendMessage": {
        "param1": "order 4711",
        "param2": {"to": "ann@example.com"},
        "priority": 5,
        "due": 4102444800,
    },
    "sendMessages": {
        "messages": [{"param1": "order 4711"}, {"param1": "order 4712", "priority": 9}]
    },
    "prepareMessage": {"param1": "scan of 2 January"},
    "editMessage": {"changes": {"param1": "order 4712", "param2": None}},
    "holdMessage": {"why": "asked the customer"},
    "setMessage": {"priority": 9, "due": 4102444800},
    "moveMessage": {"to": "done"},
    "beginBulk": _ERR_OF_TODAY,
    "countBulk": _ERR_OF_TODAY,
    "openTransaction": {"key": "orders of 2 January", "ttl": 600},
    "prepareMessages": {"param1": "order 4711"},
    "addRows": {"param1": "order 4711"},
    "commitTransaction": {"ids": ["20260102.0304.05.006.7"]},
    "sendFlow": {
        "name": "nightly",
        "messages": [
            {"name": "fetch", "dest": "fetch"},
            {"name": "pack", "dest": "pack", "after": ["fetch"], "param1": "zip"},
        ],
    },
    "rerunFlow": {"from": "pack"},
    "retryFlow": {"cancelled": True},
    "lease": {"count": 5, "seconds": 60, "label": "build host 7"},
    "startLeases": _TOKENS,
    "renewLeases": {**_TOKENS, "seconds": 60},
    "finishLeases": {"finishes": [{"token": "0123456789abcdef", "word": "done"}]},
    "releaseLeases": {**_TOKENS, "why": "the host stops"},
    "goOn": {"seconds": 60, "text": "page 3 of 9", "fraction": 0.33},
    "finishLease": {"word": "done", "text": "9 pages"},
}
