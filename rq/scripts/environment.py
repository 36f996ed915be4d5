"""The environment a script is started with, whole: nothing is inherited."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import rq
from rq import names
from rq.config.settings import QueueConfig, RootConfig, default_worker_env
from rq.layout import BATCH_FILE
from rq.message.fields import param_text
from rq.message.message import Message
from rq.message.table import PARAMS

SHARE = str(Path(rq.__file__).parent / "share")  # helpers for long-lived workers
_BIN = Path(rq.__file__).resolve().parent.parent / "bin"
# Where `rq` and `rq-spark` are: in the checkout, or beside the Python of an installed one.
COMMANDS = str(_BIN if (_BIN / "rq").exists() else Path(sys.executable).parent)
_REMOVED = ("RUBYOPT",)
_OF_THE_QUEUE = ("RQ_JAVA_HOME", "RQ_JVM_DIR")  # which RQ itself never sets
_PARAMS = tuple((param, f"RQ_{param.upper()}") for param in PARAMS)


def fixed(root: Path, config: RootConfig, queue: QueueConfig) -> dict[str, str]:
    """Return what is the same for every message of a queue."""
    env = dict(config.worker_env) or default_worker_env()
    # Last, so that a script's first line may name a command of RQ.
    env["PATH"] = ":".join(place for place in (env.get("PATH"), COMMANDS) if place)
    if config.tmpdir:
        env["TMPDIR"] = config.tmpdir
    for name, value in queue.env_vars.items():
        if not name.startswith("RQ_") or name in _OF_THE_QUEUE:
            env[name] = value
    for name in _REMOVED:
        env.pop(name, None)
    env.update(_of_spark(queue.spark))
    env.update(
        RQ_ROOT=str(root),
        RQ_VER=rq.__version__,
        RQ_ENV=config.env,
        RQ_HOST=config.base_url,
        RQ_PORT=str(config.port),
        RQ_SCRIPT=queue.script,
        RQ_WRITE="3",
        RQ_READ="4",
        RQ_PIPE="3",
        RQ_PYTHON=sys.executable,
        RQ_SHARE=SHARE,
    )
    return env


def _of_spark(setting: Mapping[str, object]) -> dict[str, str]:
    """Return what tells a job where it runs; what is no text or number goes as JSON."""
    return {
        f"RQ_SPARK_{name.upper()}": (
            str(value) if isinstance(value, str | int | float) else json.dumps(value)
        )
        for name, value in setting.items()
    }


def for_script(base: Mapping[str, str], script: str, lease: str) -> dict[str, str]:
    """Return the environment of one start, but for what tells of a message."""
    return {**base, "RQ_REALSCRIPT": script, "RQ_LEASE": lease}


def of_message(
    config: RootConfig, name: str, message: Message, directory: str | None
) -> dict[str, str]:
    """Return what tells of one message; a name that is not in it is not set."""
    full_id = config.full_id(name, message.msg_id)
    values = {
        "RQ_MSG_ID": message.msg_id,
        "RQ_FULL_MSG_ID": full_id,
        "RQ_ORIG_MSG_ID": message.orig_msg_id or full_id,
        "RQ_COUNT": str(message.count),
        **_dest(config, message.dest),
    }
    if directory is not None:
        values["RQ_MSG_DIR"] = directory
    for param, variable in _PARAMS:
        value = message.params.get(param)
        values[variable] = "" if value is None else param_text(value)
    if message.parent_result is not None:
        values["RQ_PARENT_RESULT"] = message.parent_result
    if message.force_remote:
        values["RQ_FORCE_REMOTE"] = "1"
    return values


def of_batch(batch_id: str, directory: str) -> dict[str, str]:
    """Return what tells of a batch; its messages are in a file."""
    return {
        "RQ_BATCH": "1",
        "RQ_BATCH_ID": batch_id,
        "RQ_BATCH_FILE": f"{directory}/{BATCH_FILE}",
        "RQ_MSG_DIR": directory,
    }


def _dest(config: RootConfig, dest: str) -> dict[str, str]:
    if not names.is_remote(dest):
        return {"RQ_DEST": f"{config.base_url}q/{dest}/", "RQ_DEST_QUEUE": dest}
    rest = dest.partition("/q/")[2]
    queue = rest.partition("/")[0]
    return {"RQ_DEST": dest, **({"RQ_DEST_QUEUE": queue} if queue else {})}
