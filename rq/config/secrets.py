"""Which values of configs and messages are secrets; hides them from who is no admin.

Three kinds. Of some settings (`env_vars`, `worker_env`, `exec_prefix`) every value may be
one, whatever its name is. The address of a webhook is one as a whole, for who knows it
may post there: its host is shown. Elsewhere names tell (`password`, `token`, …).

Of a message, `post_run_webhook` is an address of that kind, and so is what the queues
`webhook` and `notice` are sent. A door that shows messages hands what it shows to `below_admin`,
after all that it looks up by the values themselves: the journal, the folders, history and
backups hold them as they are. Leases are no such door: who works on a message gets it.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias, TypeVar, cast

import orjson

from rq import names
from rq.config.settings import API_EXEC_PREFIX
from rq.errors import NotPermitted
from rq.message import guarded
from rq.message.table import MOST_URLS

HIDDEN = "(hidden)"
_ENVIRONMENTS = ("env_vars", "worker_env")
_PREFIX = "exec_prefix"
_TELLS = re.compile("on_[a-z]+|daily")  # settings that say whom a queue tells
_TELLERS = frozenset({"webhook", "notice"})  # queues whose messages tell others
_HOOKS = "post_run_webhook"
_WEB = re.compile(r"(https?://)(?:[^/?#\s]*@)?([^/?#\\\s]*)(\S*)", re.IGNORECASE)
_OF_MESSAGE = re.compile(r"/q/([^/]+)/([^/]+)")  # the path of a message's full id

Said = TypeVar("Said")
_Hooks: TypeAlias = Mapping[str, str]  # an address, and what is shown of it
_SECRET = re.compile(
    r"pass(?:word|wd|phrase)|pwd|secret|token|credential|api_?key|private_?key"
    r"|(?:^|[^a-z])key(?:$|[^a-z])|pass(?:$|[^a-z])",
    re.IGNORECASE,
)
_LOGIN_IN_URL = re.compile(r"(://[^/@\s:]*:)[^/@\s]+(@)")


def is_secret(name: str) -> bool:
    """Return whether the value of this name is nobody's business.

    >>> [is_secret(n) for n in ("spark.authenticate.secret", "spark.authenticate")]
    [True, False]
    """
    return _SECRET.search(name) is not None


def masked(config: Mapping[str, object]) -> dict[str, object]:
    """Return a config whose secrets are hidden, in the objects that it holds too.

    >>> masked({"spark": {"AWS_SECRET_ACCESS_KEY": "x", "LANG": "C", "MONKEY": "y"}})
    {'spark': {'AWS_SECRET_ACCESS_KEY': '(hidden)', 'LANG': 'C', 'MONKEY': 'y'}}
    >>> masked({"spark": {"DB": "postgres://u:p@h/d", "KEY": ""}})
    {'spark': {'DB': 'postgres://u:(hidden)@h/d', 'KEY': ''}}
    >>> masked({"env_vars": {"A": "x", "B": ""}, "on_err": ["a@b", "https://h/T0/x"]})
    {'env_vars': {'A': '(hidden)', 'B': ''}, 'on_err': ['a@b', 'https://h/(hidden)']}
    """
    return {name: _masked(name, value) for name, value in config.items()}


def host_only(text: str) -> str:
    """Return a text whose addresses of the web show their hosts and nothing else.

    >>> host_only("https://me:p@hooks.example/T00/B00?x"), host_only("mail:a@b, c@d")
    ('https://hooks.example/(hidden)', 'mail:a@b, c@d')
    """
    return _WEB.sub(_host, text)


def hosts_only(targets: Iterable[str]) -> list[str]:
    """Return whom a queue tells, for those who are not admins."""
    return [host_only(target) for target in targets]


def below_admin(value: Said, queue: str) -> Said:
    """Return what is said of messages of a queue, for those who are not admins: hosts
    of addresses that are told how a message has ended, also where another text of the
    same answer quotes them.

    >>> hook = "https://h/T0/x"
    >>> below_admin({"post_run_webhook": [hook], "status": f"err - no {hook}", "param1": "http://i/j"}, "q")
    {'post_run_webhook': ['https://h/(hidden)'], 'status': 'err - no https://h/(hidden)', 'param1': 'http://i/j'}
    >>> below_admin([{"param1": hook, "param2": '{"src":"http://i/q","id":1}'}], "webhook")
    [{'param1': 'https://h/(hidden)', 'param2': '{"src":"http://i/(hidden)","id":1}'}]
    """
    first = dict(itertools.islice(_hooks(value), MOST_URLS))
    return cast(Said, _below(value, first, first, tells=queue in _TELLERS))


def dest_to_hide_by(queue: str, dest: str) -> dict[str, str]:
    """Return the dest of a message in `queue` as a field of its row, if what it holds is
    hidden for where it goes: by that field `below_admin` knows it.

    >>> [dest_to_hide_by("rq_router", dest) for dest in ("/q/notice", "mail")]
    [{'dest': '/q/notice'}, {}]
    """
    hides = queue not in _TELLERS and guarded.named_in(dest) in _TELLERS
    return {"dest": dest} if hides else {}


def check_leaving(queue: str, *, open_to: bool) -> None:
    """Raise NotPermitted when a message would go on in another queue, where all who look
    read the addresses that it holds, at the word of one to whom they are not open."""
    if queue in _TELLERS and not open_to:
        raise NotPermitted(
            f"the addresses in messages of {queue} are hidden, and another queue would "
            "show them: an admin may move these messages"
        )


def is_cut(value: object) -> bool:
    """Return whether a text is one that `below_admin` has made, and nothing to be sent.

    >>> is_cut(["https://h/x", "https://h/(hidden)"]), is_cut("https://h/x")
    (True, False)
    """
    if isinstance(value, list | tuple):
        return any(map(is_cut, value))
    return isinstance(value, str) and f"/{HIDDEN}" in value


def _hooks(value: object) -> Iterator[tuple[str, str]]:
    """Give the addresses in an answer that are told of ends, and what is shown of each."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _addresses(inner) if name == _HOOKS else _hooks(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _hooks(inner)


def _addresses(value: object) -> Iterator[tuple[str, str]]:
    for text in value if isinstance(value, list | tuple) else (value,):
        if isinstance(text, str):
            yield from ((address, host_only(address)) for address in text.split())


def _below(value: object, first: _Hooks, hooks: _Hooks, *, tells: bool) -> object:
    """Hide in a value, and in all that it holds. A sender chooses how many objects and
    addresses a message holds, so what each text is compared with has a bound: the
    addresses of the `first` message of an answer and those of the object that holds it."""
    if isinstance(value, str):
        return _text_below(value, first, hooks, tells=tells)
    if isinstance(value, list | tuple):
        return [_below(inner, first, hooks, tells=tells) for inner in value]
    if not isinstance(value, Mapping):
        return value
    tells = tells or _tells(value)
    if _HOOKS in value:
        own = itertools.islice(_addresses(value[_HOOKS]), MOST_URLS)
        hooks = {**first, **dict(own)}
    return {
        name: _whom(inner)
        if name == _HOOKS
        else _below(inner, first, hooks, tells=tells)
        for name, inner in value.items()
    }


def _tells(row: Mapping[str, object]) -> bool:
    """Whether an object says that it is about a message of a queue that tells others."""
    queue, dest = row.get("queue"), row.get("dest")
    if isinstance(queue, str) and queue in _TELLERS:
        return True
    return isinstance(dest, str) and guarded.named_in(dest) in _TELLERS


def _text_below(text: str, first: _Hooks, hooks: _Hooks, *, tells: bool) -> str:
    if "://" in text:
        for hook in sorted(hooks, key=len, reverse=True):
            text = text.replace(hook, hooks[hook])
    if not tells and _HOOKS not in text:
        return text
    if text[:1] in ("{", "["):  # a story: what follows an address there stays
        with contextlib.suppress(orjson.JSONDecodeError, RecursionError):
            story = _below(orjson.loads(text), first, hooks, tells=tells)
            return orjson.dumps(story).decode()
    return host_only(text)


def _host(match: re.Match[str]) -> str:
    path = _OF_MESSAGE.fullmatch(match[3])
    if path and names.is_queue_name(path[1]) and names.is_msg_id(path[2]):
        return f"{match[1]}{match[2]}{match[3]}"  # no secret: it names a message
    rest = "" if match[3] in ("", "/") else f"/{HIDDEN}"
    return f"{match[1]}{match[2]}{rest or match[3]}"


def _masked(name: str, value: object) -> object:
    if name in _ENVIRONMENTS and isinstance(value, Mapping):
        return {inner: HIDDEN if value[inner] else "" for inner in value}
    if name == _PREFIX and value and value != API_EXEC_PREFIX:
        return HIDDEN
    return _whom(value) if _TELLS.fullmatch(name) else _by_name(name, value)


def _whom(value: object) -> object:
    """Hide what follows the hosts in a setting of whom a queue tells."""
    if isinstance(value, Mapping):
        return {name: _whom(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_whom(inner) for inner in value]
    return host_only(value) if isinstance(value, str) else value


def _by_name(name: str, value: object) -> object:
    if isinstance(value, Mapping):
        return masked(value)
    if isinstance(value, list | tuple):
        return [_by_name(name, inner) for inner in value]
    if value in ("", None) or isinstance(value, bool):
        return value
    if is_secret(name):
        return HIDDEN
    return (
        _LOGIN_IN_URL.sub(rf"\1{HIDDEN}\2", value) if isinstance(value, str) else value
    )
