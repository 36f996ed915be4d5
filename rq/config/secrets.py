"""Which values of a config are secrets; hides them from those who are not admins.

Three kinds. Of some settings (`env_vars`, `worker_env`, `exec_prefix`) every value may be
one, whatever its name is. The address of a webhook is one as a whole, for who knows it
may post there: its host is shown. Elsewhere names tell (`password`, `token`, …).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from rq.config.settings import API_EXEC_PREFIX

HIDDEN = "(hidden)"
_ENVIRONMENTS = ("env_vars", "worker_env")
_PREFIX = "exec_prefix"
_TELLS = re.compile("on_[a-z]+")  # settings that say whom a queue tells
_WEB = re.compile(r"(https?://)(?:[^/?#\s]*@)?([^/?#\s]*)(\S*)", re.IGNORECASE)
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


def _host(match: re.Match[str]) -> str:
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
