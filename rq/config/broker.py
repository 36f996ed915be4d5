"""config/broker.json: whether the broker runs, where it listens, who may come in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from rq.config import passwords, read_json
from rq.config.settings import Check, setting, setting_of
from rq.config.values import is_loopback, one_of
from rq.errors import BadConfig

PORT = 7711
BUS_ABOVE = 10_000  # how far the port for other nodes is above that for clients
LOOPBACK = "127.0.0.1"
MAXMEMORY = 1024**3
EVICTS = "acks"  # what nobody will be handed again goes when memory is short
FSYNC = ("always", "everysec", "no")


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise ValueError(f"{value!r:.60} is neither true nor false")


def _text(value: object) -> str:
    if isinstance(value, str) and value and "\0" not in value:
        return value
    raise ValueError(f"{value!r:.60} is not text")


def _whole(least: int, most: int) -> Callable[[object], int]:
    def check(value: object) -> int:
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if is_number and least <= int(str(value)) <= most:
            return int(str(value))
        raise ValueError(
            f"{value!r:.60} is not a whole number from {least} up to {most}"
        )

    return check


def _password(value: object) -> str:
    text = _text(value)
    if not passwords.is_hash(text) or not passwords.is_whole(text):
        raise ValueError(
            "it is no hash, or a damaged one; `rq broker enable --password` makes one"
        )
    return text


def _tls(value: object) -> dict[str, str]:
    given = value if isinstance(value, dict) else {"": value}
    if given and not {"cert", "key"} <= set(given) <= {"cert", "key", "clients"}:
        raise ValueError('it takes {"cert": PATH, "key": PATH}, and "clients": PATH')
    return {name: _text(path) for name, path in given.items()}


def _policy(value: object) -> str:
    if value in (EVICTS, "noeviction"):
        return str(value)
    raise ValueError(f"{value!r:.60} is neither {EVICTS} nor noeviction")


def _bus_tls(value: object) -> Mapping[str, str] | bool:
    if isinstance(value, bool):
        return value
    if not isinstance(value, dict) or set(value) != {"cert", "key"}:
        raise ValueError(
            'it is true, for the files of `tls`, or {"cert", "key"}: paths'
        )
    return {name: _text(path) for name, path in value.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """How one node runs."""

    enabled: bool = setting(False, _flag, "flag")
    addr: str = setting(LOOPBACK, _text, "text")
    port: int = setting(PORT, _whole(1, 65535), "whole")
    # a hash; "": none
    password: str = setting("", _password, "text")
    # cert, key, clients: PEM files
    tls: Mapping[str, str] = setting_of(dict, _tls, "object")
    # where other nodes come in; "": at `addr`
    bus_addr: str = setting("", _text, "text")
    # 0: 10,000 above `port` with a secret, else nowhere
    bus_port: int = setting(0, _whole(1, 65535), "whole")
    # cert, key: PEM files; True: as in `tls`
    bus_tls: Mapping[str, str] | bool = setting(False, _bus_tls, "object")
    # a path; "": no secret that nodes share
    secret_file: str = setting("", _text, "text")
    # milliseconds of silence until a node is suspected
    node_timeout: int = setting(15_000, _whole(100, 3_600_000), "whole")
    # a path; "": there is none
    unixsocket: str = setting("", _text, "text")
    # bytes of jobs
    maxmemory: int = setting(MAXMEMORY, _whole(1, 2**50), "whole")
    maxmemory_policy: str = setting(EVICTS, _policy, "text")
    maxclients: int = setting(10_000, _whole(1, 1_000_000), "whole")
    # seconds until who has not logged in is closed; 0: never
    login_timeout: int = setting(10, _whole(0, 86_400), "whole")
    appendfsync: str = setting(FSYNC[0], one_of(FSYNC), "text")
    # microseconds; below 0: none is slow
    slowlog_slower: int = setting(10_000, _whole(-1, 2**50), "whole")
    # slow commands that are kept
    slowlog_length: int = setting(128, _whole(0, 10_000), "whole")
    # milliseconds of a spike; 0: none is kept
    latency_threshold: int = setting(0, _whole(0, 2**50), "whole")

    def to_json(self) -> dict[str, object]:
        """Return the settings that are not default."""
        default = BrokerConfig()
        return {
            name: getattr(self, name)
            for name in _CHECKS
            if getattr(self, name) != getattr(default, name)
        }


_CHECKS: Mapping[str, Check] = {
    row.name: row.metadata["check"] for row in fields(BrokerConfig)
}


def read(path: Path) -> BrokerConfig:
    """Return the settings in a file; BadConfig says what is wrong with it."""
    return checked(read_json(path), str(path)) if path.exists() else BrokerConfig()


def checked(given: Mapping[str, object], where: str) -> BrokerConfig:
    """Return settings; BadConfig names the one that is wrong."""
    values: dict[str, object] = {}
    for name, value in given.items():
        if name not in _CHECKS:
            names = ", ".join(_CHECKS)
            raise BadConfig(f"{where}: {name!r:.60} is not one of {names}")
        try:
            values[name] = _CHECKS[name](value)
        except ValueError as error:
            raise BadConfig(f"{where}: {name}: {error}") from None
    return BrokerConfig(**values)  # type: ignore[arg-type]


def check_door(settings: BrokerConfig, *, has_users: bool = False) -> None:
    """BadConfig when anybody who reaches the port could do anything."""
    has_passwords = bool(settings.password) or has_users
    if not has_passwords and not is_loopback(settings.addr):
        raise BadConfig(
            f"the broker would listen on {settings.addr} without a password: set one "
            "with `rq broker enable --password`, or let it listen on 127.0.0.1"
        )


def bus_port(settings: BrokerConfig, *, has_secret: bool) -> int | None:
    """Return the port for other nodes; None: there is none. BadConfig: there is none so
    far above that for clients."""
    if settings.bus_port or not has_secret:
        return settings.bus_port or None
    if (port := settings.port + BUS_ABOVE) <= 65535:
        return port
    raise BadConfig(
        f"bus_port: {port} is no port for other nodes: name one, for `port` is too high"
    )


def bus_tls_files(settings: BrokerConfig) -> Mapping[str, str]:
    """Return the certificate and key with which nodes talk over TLS; empty: they do not.
    BadConfig: there are none."""
    if settings.bus_tls is not True:
        return settings.bus_tls or {}
    if not settings.tls:
        raise BadConfig(
            'bus_tls: there is no `tls` whose files it could take: name {"cert": PATH, '
            '"key": PATH}'
        )
    return settings.tls
