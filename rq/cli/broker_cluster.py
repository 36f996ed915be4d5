"""The settings of a broker that is a node of a cluster: the secret, and where other nodes
come in."""

from __future__ import annotations

import argparse
import dataclasses
import os
import socket
import sys
from collections.abc import Callable

from rq import names
from rq.cli import term
from rq.cli.named_files import Files
from rq.config import broker as config
from rq.config import broker_secret, files
from rq.config.broker import BUS_ABOVE, BrokerConfig
from rq.config.values import is_loopback
from rq.errors import BadInput, Refused, RQError
from rq.layout import Root
from rq.rpc.broker import questions

STDIN = "-"
_EVERYWHERE = "0.0.0.0"


def listening_options(
    into: argparse.ArgumentParser, port: Callable[[str], int]
) -> None:
    """Add where other nodes come in."""
    into.add_argument(
        "--bus-addr", metavar="A", help="where other nodes come in (all addresses)"
    )
    into.add_argument(
        "--bus-port", type=port, metavar="N", help="(10,000 above the port for clients)"
    )


# ---- where other nodes come in


def listening(
    now: BrokerConfig, args: argparse.Namespace, default: str = _EVERYWHERE
) -> BrokerConfig:
    """Return settings that say where other nodes come in: as a person says, as before,
    or by `default`. Clients need not come in there too: that would take a password."""
    addr = args.bus_addr or now.bus_addr
    if not addr and is_loopback(now.addr):
        addr = default
    port = args.bus_port or now.bus_port
    return dataclasses.replace(now, bus_addr=addr, bus_port=port)


def bus_port(chosen: BrokerConfig) -> int:
    """Return the port for other nodes, of one that has a secret."""
    return config.bus_port(chosen, has_secret=True) or 0


# ---- the secret


def with_new_secret(root: Root, now: BrokerConfig) -> BrokerConfig:
    """Return settings that name a secret, which is made unless there is one. BadConfig:
    there is one that cannot be used, or no port for nodes."""
    bus_port(now)
    if not now.secret_file:
        if not root.broker_secret.exists():
            _keep(root, broker_secret.new())
        now = _naming(root, now)
    broker_secret.read(root.path / now.secret_file)
    return now


def with_secret_of(
    root: Root, now: BrokerConfig, args: argparse.Namespace, named: Files
) -> BrokerConfig:
    """Return settings that name the secret of the cluster of `args.node`: the one that is
    given, of which a copy is kept, or the one that is there."""
    if args.secret is not None:
        return _with_given(root, now, _given(args.secret, named))
    if not now.secret_file:
        raise BadInput(
            f"there is no secret here yet: copy config/broker.secret of {args.node} to "
            "this host, and name the copy with --secret FILE"
        )
    broker_secret.read(root.path / now.secret_file)
    return now


def _given(name: str, named: Files) -> bytes:
    if name == STDIN:
        return broker_secret.given(sys.stdin.fileno(), "standard input")
    fd = named.open(name)
    try:
        return broker_secret.given(fd, name)
    finally:
        os.close(fd)


def _with_given(root: Root, now: BrokerConfig, secret: bytes) -> BrokerConfig:
    if secret == secret_of(root, now):
        return now
    _check_alone(root, now)
    _keep(root, secret)
    return _naming(root, now)


def secret_of(root: Root, now: BrokerConfig) -> bytes:
    """Return the secret that settings name; b"": none that can be used."""
    try:
        return broker_secret.read(root.path / now.secret_file)
    except RQError:
        return b""


def _check_alone(root: Root, now: BrokerConfig) -> None:
    """Refused: there are nodes that could not be reached with another secret."""
    if not now.enabled or not now.secret_file:
        return
    try:
        others = len(questions.nodes(root)) - 1
    except RQError:
        return
    if others:
        raise Refused(
            f"this node knows {term.number(others, 'other node')}, with another secret: "
            "first `rq broker leave` here, and `rq broker forget` there"
        )


def _keep(root: Root, secret: bytes) -> None:
    files.make_dir(root.broker_secret.parent)
    files.write_secret(root.broker_secret, secret.decode("latin-1") + "\n")


def _naming(root: Root, now: BrokerConfig) -> BrokerConfig:
    named = str(root.broker_secret.relative_to(root.path))
    return dataclasses.replace(now, secret_file=named)


# ---- what comes next


def tell_of_joining(root: Root, chosen: BrokerConfig) -> None:
    """Say what a person runs on the other hosts."""
    port = bus_port(chosen)
    where = names.host_port(chosen.bus_addr or chosen.addr, port)
    host = socket.gethostname()
    if port != config.PORT + BUS_ABOVE:
        host = f"{host}:{port}"
    print(f"other nodes come in at {where}; copy {root.path / chosen.secret_file}")
    print(f"to each of them, and there: rq broker join {host} --secret COPY")
