"""Which values of a config are secrets, by their names; hides them from viewers."""

from __future__ import annotations

import re
from collections.abc import Mapping

HIDDEN = "(hidden)"
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

    >>> masked({"env_vars": {"AWS_SECRET_ACCESS_KEY": "x", "LANG": "C", "MONKEY": "y"}})
    {'env_vars': {'AWS_SECRET_ACCESS_KEY': '(hidden)', 'LANG': 'C', 'MONKEY': 'y'}}
    >>> masked({"env_vars": {"DB": "postgres://u:p@h/d", "KEY": ""}})
    {'env_vars': {'DB': 'postgres://u:(hidden)@h/d', 'KEY': ''}}
    """
    return {name: _masked(name, value) for name, value in config.items()}


def _masked(name: str, value: object) -> object:
    if isinstance(value, Mapping):
        return masked(value)
    if isinstance(value, list | tuple):
        return [_masked(name, inner) for inner in value]
    if value in ("", None) or isinstance(value, bool):
        return value
    if is_secret(name):
        return HIDDEN
    return (
        _LOGIN_IN_URL.sub(rf"\1{HIDDEN}\2", value) if isinstance(value, str) else value
    )
