"""The config files as values, checked once; the only writer of config and state files."""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import pwd
import shlex
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

import orjson

from rq import durable, names
from rq.errors import BadConfig, BadInput
from rq.layout import QUEUE_DIRS, QueueDir, Root

DEFAULT_PORT = 3333
API_EXEC_PREFIX = "bash -lc "
ONCE, PERSISTENT = "once", "persistent"  # kinds of workers
_SECRET_BYTES = 32
WORKER_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


# Per kind of what has ended: `days`, `count` and `bytes` of the newest that are kept.
# Errors that nobody has acknowledged are none of these. A relay's receiver remembers
# for 30 days by its history.
RETENTION: Mapping[str, Mapping[str, float]] = {
    "done": {"days": 7},
    "relayed": {"days": 7},
    "dismissed": {"days": 30},
    "history": {"days": 35},
}
_KEPT_BY = ("days", "count", "bytes")


class Admin(StrEnum):
    """What the operator wants of a queue."""

    UP = "UP"
    PAUSE = "PAUSE"
    DOWN = "DOWN"


@dataclass(frozen=True, slots=True, kw_only=True)
class RootConfig:
    """config/config.json."""

    env: str = "development"  # exported as RQ_ENV
    host: str = "127.0.0.1"  # host part of full message ids
    port: int = DEFAULT_PORT  # of full message ids and of the web
    addr: str = "127.0.0.1"  # address the web listens on
    tmpdir: str | None = None  # becomes TMPDIR of workers
    relative_root: str = "/"  # URL prefix, one slash at each end
    allow_new_queue: bool = False  # queues may be made by web
    basic_auth: Mapping[str, Any] | None = None
    allowed_ips: tuple[str, ...] = ()
    open_without_auth: bool = False
    web: bool = True  # the web is started
    web_workers: int = 1  # processes that serve it
    worker_env: Mapping[str, str] = field(default_factory=dict)  # PATH, HOME, …
    grace: float = 10.0  # seconds between TERM and KILL of a worker
    min_free_bytes: int = 64 * 1024 * 1024  # below it nothing new is accepted
    min_free_inodes: int = 2000

    @property
    def base_url(self) -> str:
        """`http://HOST:PORT/` with the relative root, ending in a slash."""
        return f"http://{self.host}:{self.port}{self.relative_root}"

    @property
    def page_url(self) -> str:
        """Where a browser on this machine finds the web."""
        everywhere = self.addr in ("", "0.0.0.0", "::")
        name = self.host if everywhere else self.addr
        shown = f"[{name}]" if ":" in name and not name.startswith("[") else name
        return f"http://{shown}:{self.port}{self.relative_root}"

    def full_id(self, queue: str, msg_id: str) -> str:
        return f"{self.base_url}q/{queue}/{msg_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConfig:
    """queue/NAME/config.json."""

    name: str = ""
    script: str = ""  # path; relative to the root
    num_workers: int = 1  # messages that run at the same time
    exec_prefix: str = API_EXEC_PREFIX  # put before the script, split like a shell
    env_vars: Mapping[str, str] = field(default_factory=dict)
    coalesce_params: tuple[int, ...] = ()  # equal waiting messages run once
    blocking_params: tuple[int, ...] = ()  # equal messages not at the same time
    nice: int = 19
    clone: str = "link"  # or "copy": attachments of clones are files of their own
    leave_children: bool = False  # processes that outlive their script are left alone
    worker: str = ONCE  # a process for each message; or "persistent"
    worker_messages: int = 10_000  # a persistent one is renewed after so many
    worker_seconds: float = 3600.0  # and when it has lived so long
    worker_dir: bool = True  # each message of a persistent one gets its directory
    batch: Mapping[str, Any] = field(default_factory=dict)  # many messages, one process
    spark: Mapping[str, Any] = field(default_factory=dict)  # where its jobs run
    retention: Mapping[str, Mapping[str, float]] = field(
        default_factory=lambda: dict(RETENTION)
    )

    @property
    def argv_prefix(self) -> list[str]:
        return shlex.split(self.exec_prefix)

    def to_json(self) -> dict[str, Any]:
        """Return the keys the ancestor shows, and the others that are not default."""
        shown: dict[str, Any] = {}
        plain = QueueConfig()
        for one in fields(self):
            value = getattr(self, one.name)
            if one.name in _ANCESTOR_KEYS or value != getattr(plain, one.name):
                shown[one.name] = list(value) if isinstance(value, tuple) else value
        return shown


_ANCESTOR_KEYS = frozenset(
    {
        "name",
        "script",
        "num_workers",
        "exec_prefix",
        "env_vars",
        "coalesce_params",
        "blocking_params",
    }
)
# What these are in a queue whose messages run in batches.
_NOT_WITH_BATCH: Mapping[str, object] = {
    "coalesce_params": (),
    "blocking_params": (),
    "worker": ONCE,
}
# Keys of old config files that mean nothing any more.
_IGNORED = frozenset({"schedule", "schedules", "admin_status", "oper_status", "url"})

# ---- reading


def read_json(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file; BadConfig in one sentence if there is none."""
    try:
        data = orjson.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise BadConfig(f"{path} is missing") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfig(f"{path} cannot be read: {error}") from None
    except orjson.JSONDecodeError as error:
        raise BadConfig(f"{path} is not JSON: {error}") from None
    if not isinstance(data, dict):
        raise BadConfig(f"{path} does not hold a JSON object")
    return data


def find_root(option: str | None) -> Root:
    """Return the root: the option, else $RQ_ROOT, else the checkout this code lies in."""
    chosen = option or os.environ.get("RQ_ROOT")
    if chosen:
        return Root(Path(chosen).absolute())
    checkout = Path(__file__).resolve().parent.parent
    if (checkout / "bin" / "rq").exists():
        return Root(checkout)
    raise BadConfig("no root: say --root DIR or set RQ_ROOT to the directory of RQ")


def read_root(root: Root) -> RootConfig:
    """Return the main config; BadConfig names the file and the key."""
    return root_config(read_json(root.config), root.config)


def root_config(data: Mapping[str, Any], path: Path) -> RootConfig:
    for name in ("host", "port"):
        if name not in data:
            raise BadConfig(f"{path}: the mandatory key {name!r} is missing")
    config = RootConfig(**_checked(data, RootConfig, _ROOT_CHECKS, path))
    if config.tmpdir and not os.access(config.tmpdir, os.W_OK | os.X_OK):
        raise BadConfig(f"{path}: tmpdir {config.tmpdir} is not a writable directory")
    return config


def read_queue(queue: QueueDir) -> QueueConfig:
    """Return a queue's config; BadConfig names the file and the key."""
    return queue_config(read_json(queue.config), queue.config)


def queue_config(data: Mapping[str, Any], path: Path) -> QueueConfig:
    """Return a checked queue config from JSON; `path` is for the error text."""
    known = _checked(_without_legacy(data), QueueConfig, _QUEUE_CHECKS, path)
    if not known.get("script"):
        raise BadConfig(f"{path}: the mandatory key 'script' is missing")
    for name, unlike in _NOT_WITH_BATCH.items():
        if known.get("batch") and known.get(name, unlike) != unlike:
            raise BadConfig(
                f"{path}: a queue has batch or {name}, not both; take one of them out"
            )
    return QueueConfig(**known)


def _without_legacy(data: Mapping[str, Any]) -> dict[str, Any]:
    """Turn `coalesce` with `coalesce_param1` … into `coalesce_params`."""
    kept = {k: v for k, v in data.items() if k not in _IGNORED}
    on = kept.pop("coalesce", False) in _TRUE
    old = [n for n in range(1, 5) if kept.pop(f"coalesce_param{n}", None) in _TRUE]
    if on and old and "coalesce_params" not in kept:
        kept["coalesce_params"] = old
    return kept


_TRUE: tuple[object, ...] = (True, "true", "yes", "1")


def _checked(
    data: Mapping[str, Any],
    kind: type[RootConfig] | type[QueueConfig],
    checks: Mapping[str, Callable[[Any], Any]],
    path: Path,
) -> dict[str, Any]:
    known = [one.name for one in fields(kind)]
    checked: dict[str, Any] = {}
    for name, value in data.items():
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise BadConfig(f"{path}: unknown key {name!r}{hint}")
        if value is None:
            continue
        try:
            checked[name] = checks[name](value)
        except (TypeError, ValueError, BadInput) as error:
            raise BadConfig(f"{path}: {name}: {error}") from None
    return checked


def _text(value: Any) -> str:
    if isinstance(value, str) and "\0" not in value:
        return value
    raise ValueError(f"{value!r:.60} is not text")


def _whole(low: int, high: int) -> Callable[[Any], int]:
    def check(value: Any) -> int:
        if isinstance(value, str) and value.strip().lstrip("-").isdigit():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"{value!r:.60} is not a whole number")
        if not low <= value <= high:
            raise ValueError(f"{value} is not between {low} and {high}")
        return value

    return check


def _seconds(value: Any) -> float:
    number = float(value)
    if not 0 <= number <= 86400:
        raise ValueError(f"{value!r:.60} is not between 0 and 86400 seconds")
    return number


def _flag(value: Any) -> bool:
    if value in _TRUE:
        return True
    if value in (False, "false", "no", "0", ""):
        return False
    raise ValueError(f"{value!r:.60} is not true or false")


def _environment(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError("it is not an object of names and values")
    for name, one in value.items():
        if not name or "=" in name or "\0" in name or "\0" in str(one):
            raise ValueError(f"{name!r:.60} cannot be an environment variable")
        if not isinstance(one, str | int | float) or isinstance(one, bool):
            raise ValueError(f"the value of {name} is not text")
    return {name: str(one) for name, one in value.items()}


def _param_numbers(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise ValueError(f"{value!r:.60} is not a list of param numbers")
    one_to_four = _whole(1, 4)
    return tuple(sorted({one_to_four(one) for one in value if one not in ("", None)}))


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, list):
        return tuple(_text(one) for one in value)
    raise ValueError(f"{value!r:.60} is not a list of texts")


def _relative_root(value: Any) -> str:
    text = _text(value)
    if not text.startswith("/"):
        raise ValueError("it must start with /")
    inner = text.strip("/")
    return f"/{inner}/" if inner else "/"


def _object(value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    raise ValueError("it is not a JSON object")


def _prefix(value: Any) -> str:
    shlex.split(_text(value))
    return str(value)


def _retention(value: Any) -> dict[str, dict[str, float]]:
    """Return the defaults with what `value` says in their place; null: for ever."""
    found = {kind: dict(kept) for kind, kept in RETENTION.items()}
    for kind, kept in _object(value).items():
        if kind not in RETENTION:
            known = ", ".join(RETENTION)
            raise ValueError(f"{kind!r:.60} is not one of {known}")
        found[kind] = _kept({} if kept is None else _object(kept))
    if "count" in found["history"]:
        raise ValueError("history is kept by days and bytes, not by count")
    return found


def _kept(value: Mapping[str, Any]) -> dict[str, float]:
    kept = {}
    for name, number in value.items():
        if name not in _KEPT_BY:
            raise ValueError(f"{name!r:.60} is not one of {', '.join(_KEPT_BY)}")
        is_number = isinstance(number, int | float) and not isinstance(number, bool)
        if not is_number or not 0 <= number <= 2**62:
            raise ValueError(f"{name}: {number!r:.60} is not a number from 0 up")
        kept[name] = number
    return kept


_UNITS = {"s": 1, "m": 60, "h": 3600}
_BATCH_WAIT = 60.0
_BATCH_KEYS = ("max", "wait", "by", "complete")


def _batch(value: Any) -> dict[str, Any]:
    """Return the setting `batch` whole; nothing for a queue without."""
    given = _object(value)
    for name in given:
        if name not in _BATCH_KEYS:
            raise ValueError(f"{name!r:.60} is not one of {', '.join(_BATCH_KEYS)}")
    if not given:
        return {}
    if "max" not in given:
        raise ValueError("it lacks max, how many messages go into one")
    if given.get("complete") and not given.get("by"):
        raise ValueError("complete counts the messages of one value: it needs by")
    known: dict[str, Any] = {"max": _whole(1, 10_000)(given["max"])}
    known["wait"] = _duration(given.get("wait", _BATCH_WAIT))
    return {
        **known,
        **{k: _param(given[k]) for k in ("by", "complete") if given.get(k)},
    }


def _spark(value: Any) -> dict[str, Any]:
    """Return the setting `spark`: `master`, and `conf` with settings of Spark."""
    found = _object(value)
    for name in found:
        if name not in ("master", "conf"):
            raise ValueError(f"{name}: must be master or conf")
    known: dict[str, Any] = {}
    if "master" in found:
        known["master"] = _text(found["master"])
    if "conf" in found:
        known["conf"] = _environment(found["conf"])
    for name in known.get("conf", {}):
        if not name.startswith("spark."):
            raise ValueError(f"conf: {name} does not begin with spark.")
    return known


def _duration(value: Any) -> float:
    """Return seconds, said as a number or as `90s`, `5m`, `1h`."""
    text = str(value).strip()
    if text[-1:] in _UNITS and text[:-1].isdecimal():
        return _seconds(int(text[:-1]) * _UNITS[text[-1]])
    return _seconds(value)


def _param(value: Any) -> str:
    if value in ("param1", "param2", "param3", "param4"):
        return str(value)
    raise ValueError(f"{value!r:.60} is not one of param1 to param4")


def _clone(value: Any) -> str:
    if value in ("link", "copy"):
        return str(value)
    raise ValueError(f"{value!r:.60} is neither 'link' nor 'copy'")


def _worker(value: Any) -> str:
    if value in (ONCE, PERSISTENT):
        return str(value)
    raise ValueError(f"{value!r:.60} is neither {ONCE!r} nor {PERSISTENT!r}")


_ROOT_CHECKS: dict[str, Callable[[Any], Any]] = {
    "env": _text,
    "host": _text,
    "port": _whole(1, 65535),
    "addr": _text,
    "tmpdir": _text,
    "relative_root": _relative_root,
    "allow_new_queue": _flag,
    "basic_auth": _object,
    "allowed_ips": _texts,
    "open_without_auth": _flag,
    "web": _flag,
    "web_workers": _whole(1, 64),
    "worker_env": _environment,
    "grace": _seconds,
    "min_free_bytes": _whole(0, 2**62),
    "min_free_inodes": _whole(0, 2**62),
}
_QUEUE_CHECKS: dict[str, Callable[[Any], Any]] = {
    "name": _text,
    "script": _text,
    "num_workers": _whole(0, 1024),
    "exec_prefix": _prefix,
    "env_vars": _environment,
    "coalesce_params": _param_numbers,
    "blocking_params": _param_numbers,
    "nice": _whole(-20, 19),
    "clone": _clone,
    "leave_children": _flag,
    "worker": _worker,
    "worker_messages": _whole(1, 2**31),
    "worker_seconds": _seconds,
    "worker_dir": _flag,
    "batch": _batch,
    "spark": _spark,
    "retention": _retention,
}

# ---- what the operator wants


def admin_status(root: Root, name: str) -> Admin:
    """Return what the files `config/NAME.down` and `.pause` say; down beats pause."""
    if os.path.lexists(root.down(name)):
        return Admin.DOWN
    if os.path.lexists(root.pause(name)):
        return Admin.PAUSE
    return Admin.UP


def set_down(root: Root, name: str, wanted: bool) -> None:
    """Make or remove `config/NAME.down`, durably."""
    _set_flag(root.down(names.queue_name(name)), wanted)


def set_pause(root: Root, name: str, wanted: bool) -> None:
    """Make or remove `config/NAME.pause`, durably."""
    _set_flag(root.pause(names.queue_name(name)), wanted)


def _set_flag(path: Path, wanted: bool) -> None:
    if wanted:
        durable.touch_durable(path)
    else:
        durable.unlink_durable(path)


# ---- routing

_NOT_ROUTED = frozenset({"rq_router", "relay", "cleaner", "webhook"})


def addressed(root: Root, name: str) -> str:
    """Return the queue that the web's routes about messages of queue `name` mean: the
    router, while there are rules for it."""
    routed = name not in _NOT_ROUTED and root.router.exists()
    return "rq_router" if routed else name


# ---- writing


def write_state(path: Path, data: object) -> None:
    """Replace a JSON file durably."""
    text = json.dumps(data, indent=1, ensure_ascii=False)
    durable.write_durable(path, text.encode() + b"\n")


def secret(root: Root) -> bytes:
    """Return the secret of this installation's web; made when there is none."""
    with contextlib.suppress(FileNotFoundError):
        found = root.web_secret.read_bytes()
        if len(found) >= _SECRET_BYTES:
            return found
    made = os.urandom(_SECRET_BYTES)
    durable.write_durable(root.web_secret, made, 0o600)
    return made


def write_secret(path: Path, text: str) -> None:
    """Replace a file that nobody else may read, durably."""
    durable.write_durable(path, text.encode(), 0o600)


def write_cache(path: Path, data: object) -> None:
    """Replace a JSON file, so that a reader sees the old or the new one; it may be lost
    with the power."""
    durable.replace(str(path), json.dumps(data, ensure_ascii=False).encode())


def write_text(path: Path, text: str) -> None:
    """Replace a small file, so that a reader sees the old or the new one."""
    durable.replace(str(path), text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Replace a small file that is no text; as `write_text`."""
    durable.replace(str(path), data)


def write_link(target: str, path: Path) -> None:
    """Make or replace a symlink, durably."""
    durable.symlink_durable(target, path)


def remove_link(path: Path) -> None:
    """Remove a file or symlink, durably."""
    durable.unlink_durable(path)


def remove_upload(path: Path) -> None:
    """Remove a file under `config/tmp`; it need not be gone for good."""
    durable.unlink(str(path))


def make_queue(queue: QueueDir, config: Mapping[str, Any], mark: object) -> None:
    """Make or complete a queue directory, durably; config.json last, it makes a queue."""
    for name in QUEUE_DIRS:
        durable.make_dirs(str(queue.path / name))
    write_state(queue.scandir_mark, mark)
    write_state(queue.config, config)
    durable.sync_path(queue.path.parent)


def move_queue(source: Path, target: Path) -> None:
    """Rename a queue directory, durably; the caller holds its lock."""
    durable.make_dirs(str(target.parent))
    durable.rename_durable(source, target)


def remove_queue(path: Path) -> None:
    """Remove a queue directory with all its messages; the caller holds its lock."""
    durable.remove_tree(str(path))


def make_dir(path: Path) -> None:
    """Make a directory, and those above it that are missing."""
    durable.make_dirs(str(path))


def remove_dir(path: Path) -> None:
    """Remove a directory, whatever is in it; none is fine."""
    durable.remove_tree(str(path))


def make_root(root: Root) -> None:
    """Make the directories of a root that are missing."""
    for path in (root.path, root.config_dir, root.scandir, root.timers, root.queues):
        durable.make_dirs(str(path))
    for path in (root.trash, root.log, root.uploads):
        durable.make_dirs(str(path))


def default_worker_env() -> dict[str, str]:
    """Return the environment that workers start with, kept in the config for good."""
    user = pwd.getpwuid(os.getuid())
    zone = Path("/etc/timezone")
    return {
        "PATH": WORKER_PATH,
        "HOME": user.pw_dir,
        "USER": user.pw_name,
        "LOGNAME": user.pw_name,
        "LANG": "C.UTF-8",
        "TZ": zone.read_text().strip() if zone.is_file() else "UTC",
        "TMPDIR": tempfile.gettempdir(),
    }
