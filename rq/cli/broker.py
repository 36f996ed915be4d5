"""`rq broker`: queues without scripts, which programs pull from in the Redis protocol."""

from __future__ import annotations

import argparse
import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Collection

from rq import passwords
from rq.cli import FAILED, OK, broker_views, passwd, place, term
from rq.config import broker as config
from rq.config import files
from rq.config.broker import BrokerConfig
from rq.layout import Root
from rq.replies import ChildView
from rq.states import Child

_SETTLED = (Child.UP, Child.FATAL, Child.BACKOFF)
_PASSED_ON = (
    "bus_port bus_addr secret_file password_file tls_cert tls_key tls_clients accept"
)
_ENDED = (Child.DOWN, Child.FATAL)
_PATIENCE = 60.0  # seconds until it says how far the start is


def broker(root: Root, words: list[str]) -> int:
    args = _parser().parse_args(words)
    if args.what == "enable":
        return _enable(root, args)
    if args.what == "disable":
        return _disable(root)
    if args.what == "run":
        return _run(args)
    if args.what == "accept":
        return _accept(root, copy=args.copy)
    if args.what in broker_views.VERBS:
        return broker_views.show(root, args)
    return _status(root, as_json=args.json)


def _parser() -> argparse.ArgumentParser:
    parser = term.parser(
        "broker", "Queues without scripts: programs pull from them with Redis clients."
    )
    kinds = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    enable = kinds.add_parser(
        "enable", help="start the broker, now and whenever RQ starts"
    )
    enable.add_argument("--port", type=_port, metavar="N", help=f"({config.PORT})")
    enable.add_argument("--addr", metavar="A", help=f"({config.LOOPBACK})")
    enable.add_argument(
        "--password",
        action="store_true",
        help="clients have to give a password, which is asked for, or read from "
        "standard input",
    )
    kinds.add_parser("disable", help="stop the broker; its jobs stay on disk")
    status = kinds.add_parser("status", help="whether it runs, and where")
    term.json_option(status)
    broker_views.options(kinds)
    accept = kinds.add_parser(
        "accept", help="let it use its directory, which was copied or restored"
    )
    accept.add_argument(
        "--copy",
        action="store_true",
        help="as a copy, or a backup older than what has run since: it gets new ids",
    )
    run = kinds.add_parser(
        "run", help="run one node in the foreground, without a supervisor"
    )
    run.add_argument("--dir", required=True, metavar="DIR", help="what it keeps")
    run.add_argument("--port", type=_port, default=config.PORT, metavar="N")
    run.add_argument("--addr", default=config.LOOPBACK, metavar="A")
    run.add_argument(
        "--bus-port", type=_port, metavar="N", help="where other nodes come in"
    )
    run.add_argument("--bus-addr", metavar="A", help="(that of --addr)")
    run.add_argument(
        "--secret-file", metavar="FILE", help="holds the secret that the nodes share"
    )
    run.add_argument(
        "--password-file",
        metavar="FILE",
        help="its first line is the password; or RQ_BROKER_PASSWORD in the environment",
    )
    run.add_argument(
        "--accept",
        choices=("same", "copy"),
        help="only accept DIR, which was copied or restored",
    )
    run.add_argument("--tls-cert", metavar="PEM", help="the port speaks TLS alone")
    run.add_argument("--tls-key", metavar="PEM", help="the key of the certificate")
    run.add_argument("--tls-clients", metavar="PEM", help="who signs clients' ones")
    return parser


def _port(text: str) -> int:
    number = term.at_least(1)(text)
    if number > 65535:
        raise argparse.ArgumentTypeError(f"{text} is no port: 65535 is the last")
    return number


def _enable(root: Root, args: argparse.Namespace) -> int:
    now = config.read(root.broker_config)
    given = {"port": args.port, "addr": args.addr}
    if args.password:
        given["password"] = passwords.make(passwd.read_password())
    changes = {name: value for name, value in given.items() if value is not None}
    wanted = dataclasses.replace(now, enabled=True, **changes)
    config.check_door(wanted)
    return _use(root, wanted)


def _disable(root: Root) -> int:
    now = config.read(root.broker_config)
    return _use(root, dataclasses.replace(now, enabled=False))


def _use(root: Root, wanted: BrokerConfig) -> int:
    files.write_secret_state(root.broker_config, wanted.to_json())
    where = f"{wanted.addr}:{wanted.port}"
    if not place.is_running(root):
        does = f"will serve {where}" if wanted.enabled else "stays down"
        print(f"the broker {does} when RQ is up")
        return OK
    place.ask_supervisor(root, "broker")
    if not wanted.enabled:
        child = _until(root, _ENDED)
        if child is not None and child["state"] not in _ENDED:
            place.note(f"the broker is still {child['state']}")
            return FAILED
        print("the broker is down; its jobs are kept")
        return OK
    child = _until(root, _SETTLED)
    if child is None or child["state"] != Child.UP:
        why = (child or {}).get("reason") or "see log/broker.log"
        place.note(f"the broker does not run: {why}")
        return FAILED
    print(f"the broker serves {where}; try: redis-cli -p {wanted.port} PING")
    return OK


def _until(root: Root, states: Collection[str]) -> ChildView | None:
    """Return the supervisor's child when it is in one of some states, or has not come
    there for long; None: there is none."""
    end = time.monotonic() + _PATIENCE
    while True:
        child = _child(root)
        is_there = child is None or child["state"] in states
        if is_there or time.monotonic() > end:
            return child
        time.sleep(0.05)


def _child(root: Root) -> ChildView | None:
    children = place.supervisor_status(root).get("children") or []
    return next((child for child in children if child["kind"] == "broker"), None)


def _status(root: Root, *, as_json: bool) -> int:
    chosen = config.read(root.broker_config)
    child = _child(root) if place.is_running(root) else None
    state = "DOWN" if child is None else str(child["state"])
    if as_json:
        facts = {"enabled": chosen.enabled, "state": state}
        door = {"addr": chosen.addr, "port": chosen.port}
        term.print_json({**facts, **door, "password": bool(chosen.password)})
    else:
        enabled = "enabled" if chosen.enabled else "not enabled: `rq broker enable`"
        why = (child or {}).get("reason") or ""
        where = f"{chosen.addr}:{chosen.port} {why}".rstrip()
        print(f"broker {term.state(state)}, {enabled}, {where}")
    return OK if state == Child.UP or not chosen.enabled else FAILED


def _accept(root: Root, *, copy: bool) -> int:
    how = "copy" if copy else "same"
    words = ["--dir", str(root.broker), "--accept", how]
    done = subprocess.run(
        [sys.executable, "-I", "-m", "rq.broker", *words], check=False
    )
    if done.returncode:
        return FAILED
    if place.is_running(root):
        place.ask_supervisor(root, "broker")
    print("the broker's directory is accepted; `rq broker enable` starts it")
    return OK


def _run(args: argparse.Namespace) -> int:
    words = ["--dir", args.dir, "--port", str(args.port), "--addr", args.addr]
    for name in _PASSED_ON.split():
        if (value := getattr(args, name)) is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
    os.execv(sys.executable, [sys.executable, "-I", "-m", "rq.broker", *words])
