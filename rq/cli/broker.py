"""`rq broker`: queues without scripts, which programs pull from in the Redis protocol."""

from __future__ import annotations

import argparse
import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable, Mapping

from rq.cli import (
    FAILED,
    OK,
    broker_cluster,
    broker_health,
    broker_join,
    broker_switch,
    broker_views,
    place,
    term,
    token,
)
from rq.cli.named_files import FRESH, Files
from rq.config import broker as config
from rq.config import displaced, passwords
from rq.config.begun import Begun
from rq.config.broker import BrokerConfig
from rq.errors import Refused
from rq.layout import Root
from rq.words.states import Child

_PASSED_ON = (
    "bus_port bus_addr secret_file password_file tls_cert tls_key tls_clients accept"
)


def named(words: list[str]) -> list[str]:
    """Return the files that the words name."""
    return broker_join.named(_parser().parse_args(words))


def broker(root: Root, words: list[str], files: Files = FRESH) -> int:
    args = _parser().parse_args(words)
    match args.what:
        case "run":
            return _run(args)
        case "join":
            return broker_join.join(root, args, files)
        case "status":
            return _status(root, as_json=args.json)
        case what if what in broker_views.VERBS:
            return broker_views.show(root, args)
    return _CHANGES[args.what](root, args)


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
    term.flag(
        enable,
        "--password",
        "clients have to give a password, which is asked for, or read from "
        "standard input",
    )
    term.flag(
        enable,
        "--cluster",
        "other nodes may come in, with the secret in config/broker.secret",
    )
    broker_cluster.listening_options(enable, _port)
    join = kinds.add_parser("join", help="become a node of the cluster of another host")
    broker_join.options(join)
    broker_cluster.listening_options(join, _port)
    join.add_argument("--port", type=_port, metavar="N", help=f"({config.PORT})")
    term.json_option(join)
    broker_join.leaving_options(
        kinds.add_parser(
            "leave",
            help="take no new jobs, and wait until what only this node has is done",
        ),
        kinds.add_parser("forget", help="let all nodes forget one"),
    )
    kinds.add_parser("disable", help="stop the broker; its jobs stay on disk")
    status = kinds.add_parser("status", help="whether it runs, and where")
    term.json_option(status)
    broker_views.options(kinds)
    accept = kinds.add_parser(
        "accept", help="let it use its directory, which was copied or restored"
    )
    term.flag(
        accept,
        "--copy",
        "as a copy, or a backup older than what has run since: it gets new ids",
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
        given["password"] = passwords.make(token.read_password())
    changes = {name: value for name, value in given.items() if value is not None}
    wanted = dataclasses.replace(now, enabled=True, **changes)
    if args.cluster or args.bus_addr or args.bus_port:
        wanted = broker_cluster.listening(wanted, args)
    config.check_door(wanted)
    if not args.cluster:
        return _use(root, wanted)
    wanted = broker_cluster.with_new_secret(root, wanted)
    done = _use(root, wanted)
    if done == OK:
        broker_cluster.tell_of_joining(root, wanted)
    return done


def _disable(root: Root, args: argparse.Namespace) -> int:
    now = config.read(root.broker_config)
    return _use(root, dataclasses.replace(now, enabled=False))


def _use(root: Root, wanted: BrokerConfig) -> int:
    broker_switch.keep(root, wanted)
    where = f"{wanted.addr}:{wanted.port}"
    if not place.is_running(root):
        does = f"will serve {where}" if wanted.enabled else "stays down"
        print(f"the broker {does} when RQ is up")
        return OK
    try:
        if not wanted.enabled:
            broker_switch.stop(root)
            print("the broker is down; its jobs are kept")
            return OK
        broker_switch.start(root)
    except Refused as error:
        term.note(str(error))
        return FAILED
    print(f"the broker serves {where}; try: redis-cli -p {wanted.port} PING")
    return OK


def _status(root: Root, *, as_json: bool) -> int:
    chosen = config.read(root.broker_config)
    child = broker_switch.child(root) if place.is_running(root) else None
    state = "DOWN" if child is None else str(child["state"])
    trouble = broker_health.serious(root) if state == Child.UP else ""
    if as_json:
        facts = {"enabled": chosen.enabled, "state": state, "trouble": trouble}
        door = {"addr": chosen.addr, "port": chosen.port}
        term.print_json({**facts, **door, "password": bool(chosen.password)})
    else:
        enabled = "enabled" if chosen.enabled else "not enabled: `rq broker enable`"
        why = (child or {}).get("reason") or ""
        where = f"{chosen.addr}:{chosen.port} {why}".rstrip()
        print(f"broker {term.state(state)}, {enabled}, {where}")
        if trouble:
            print(trouble)
    is_well = state == Child.UP and not trouble
    return OK if is_well or not chosen.enabled else FAILED


def _accept(root: Root, args: argparse.Namespace) -> int:
    how = "copy" if args.copy else "same"
    words = ["--dir", str(root.broker), "--accept", how]
    done = subprocess.run(
        [sys.executable, "-I", "-m", "rq.broker", *words], check=False
    )
    if done.returncode:
        return FAILED
    if place.is_running(root):
        place.ask_supervisor(root, "broker", "accept")
    else:
        Begun(root).forget(displaced.BROKER)
        displaced.release(root, displaced.BROKER)
    print("the broker's directory is accepted; `rq broker enable` starts it")
    return OK


def _run(args: argparse.Namespace) -> int:
    words = ["--dir", args.dir, "--port", str(args.port), "--addr", args.addr]
    for name in _PASSED_ON.split():
        if (value := getattr(args, name)) is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
    os.execv(sys.executable, [sys.executable, "-I", "-m", "rq.broker", *words])


_CHANGES: Mapping[str, Callable[[Root, argparse.Namespace], int]] = {
    "enable": _enable,
    "disable": _disable,
    "accept": _accept,
    "leave": broker_join.leave,
    "forget": broker_join.forget,
}
