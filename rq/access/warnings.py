"""What an operator should know of access to this RQ, a sentence each."""

from __future__ import annotations

from rq.access import logins, tokens
from rq.config import passwords
from rq.config.settings import RootConfig
from rq.config.values import is_loopback
from rq.layout import Root


def of_config(config: RootConfig) -> list[str]:
    """Return what is to be said of the settings; they were checked before."""
    sentences = []
    users = logins.users(config)
    plain = [name for name, user in users.items() if not passwords.is_hash(user.stored)]
    if plain:
        sentences.append(
            f"basic_auth holds plain passwords ({', '.join(sorted(plain))}): replace "
            "them by the hashes that `rq passwd` makes"
        )
    if config.open_without_auth:
        sentences.append(_open(config))
    is_near = is_loopback(config.addr) or bool(config.tls)
    if not is_near and not config.open_without_auth:
        what = "basic_auth" if users else "tokens"
        sentences.append(
            f"{what} over plain HTTP on {config.addr}:{config.port}: anybody on the "
            "network path can read passwords and tokens; set tls, or set addr to "
            "127.0.0.1 behind a proxy that speaks TLS"
        )
    return sentences


def _open(config: RootConfig) -> str:
    if config.basic_auth:
        return "open_without_auth means nothing beside basic_auth: take it out"
    who = (
        "whoever can connect on this machine"
        if is_loopback(config.addr)
        else f"whoever reaches {config.addr}:{config.port}"
    )
    return f"open_without_auth: {who} can run programs here"


def of_root(root: Root, config: RootConfig, now: float) -> list[str]:
    """Return what is to be said of the settings and of the tokens now."""
    return [*of_config(config), *tokens.warnings(root, now)]
