"""The broker's process: as a child of the supervisor, or alone in the foreground."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import SystemRandom

from rq import config, logs
from rq.access.tls import Certificate
from rq.broker.admin import TABLE as ADMIN
from rq.broker.bus.channel import Channel
from rq.broker.clients.door import People, people_of
from rq.broker.desks.node import Node
from rq.broker.server import Server
from rq.broker.store import place as place_of_node
from rq.broker.store.place import Place
from rq.broker.store.store import Store, open_store
from rq.config import broker as broker_settings
from rq.config import broker_secret, passwords
from rq.config.broker import BrokerConfig
from rq.config.values import is_loopback
from rq.errors import BadConfig, CannotRead, Damaged, RQError, cause_of
from rq.files import durable
from rq.layout import Root
from rq.logs import fields
from rq.proc import collector, descriptors, listening, turnlimit
from rq.proc.listening import Bound
from rq.rpc import client, helper
from rq.rpc.helper import Helper

PASSWORD = "RQ_BROKER_PASSWORD"  # in the environment of a node without a supervisor
_SOME = 10_000  # events in one sync
DO_NOT_RESTART = 3  # only a person can mend it
DISPLACED = 4  # its directory is gone, or another

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a node needs to run."""

    place: Place
    chosen: BrokerConfig
    people: People = field(default_factory=People)
    say_ready: Callable[[str], None] = lambda held: None
    life_fd: int | None = None  # readable at the end of the process that started us
    own: socket.socket | None = None  # listens for our own user
    root: Root | None = None  # whose queues its clients may use
    secret: bytes = b""  # that nodes share; b"": none


def main(argv: list[str] | None = None) -> int:
    """Run the broker of a root, as the supervisor starts it."""
    try:
        started = helper.start("broker", argv)
    except (RQError, OSError) as error:
        sys.stderr.write(f"rq-broker: {error}\n")
        return 1
    try:
        return run(_setup(started))
    except CannotRead as error:  # the next start may read it
        started.refuse(str(error))
        return 1
    except (BadConfig, Damaged) as error:
        started.refuse(str(error))
        return DO_NOT_RESTART
    except (RQError, OSError) as error:
        started.refuse(_why(error))
        return 1


def _setup(started: Helper) -> Setup:
    root = started.root
    chosen = broker_settings.read(root.broker_config)
    people = people_of(config.read_root(root))
    broker_settings.check_door(chosen, has_users=bool(people.users))
    return Setup(
        place=Place(root.broker),
        chosen=chosen,
        people=people,
        say_ready=started.say_ready,
        life_fd=started.life_fd,
        own=client.listen(root.broker_socket),
        root=root,
        secret=_secret_in(chosen, root.path),
    )


def _why(error: RQError | OSError) -> str:
    """Return why it cannot run, in a sentence."""
    if isinstance(error, RQError) or not error.filename:
        return str(error)
    return f"{error.filename} cannot be used: {cause_of(error)}"


def run(setup: Setup) -> int:
    """Run a node until TERM, SHUTDOWN, the end of the process that holds its `life_fd`, or
    the loss of its directory; return its exit status. RQError, OSError: it cannot run, and why."""
    turnlimit.watch()
    descriptors.raise_descriptor_limit()  # a client takes one
    return asyncio.run(_serve(setup, _sockets(setup)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sockets:
    """What a node listens on."""

    clients: Sequence[tuple[socket.socket, Certificate | None]]
    bus: Bound | None  # where other nodes come in, once this one is ready
    held: str  # an address for clients that another process holds


def _sockets(setup: Setup) -> Sockets:
    """Return what is listened on; BadConfig, Refused: that cannot be."""
    chosen, bus = setup.chosen, _bus_sockets(setup)
    certificate, local = _certificate(setup), _local_sockets(setup)
    # Last: whose port answers is ready.
    tcp = listening.listen(chosen.addr, chosen.port, "the broker")
    return Sockets(
        clients=[
            *((sock, certificate) for sock in tcp.socks),
            *((sock, None) for sock in local),
        ],
        bus=bus,
        held=tcp.held,
    )


def _local_sockets(setup: Setup) -> list[socket.socket]:
    """Return the Unix sockets; BadConfig, Refused: that cannot be."""
    chosen = setup.chosen
    local = [setup.own] if setup.own is not None else []
    if chosen.unixsocket:
        path = _path(setup, chosen.unixsocket)
        if path.exists() and not path.is_socket():
            raise BadConfig(f"unixsocket: {path} is there, and is no socket: remove it")
        local.append(client.listen(path))
    return local


def _bus_sockets(setup: Setup) -> Bound | None:
    """Return where other nodes come in once this one is ready; None: they do not.
    BadConfig, Refused: that cannot be."""
    chosen = setup.chosen
    port = broker_settings.bus_port(chosen, has_secret=bool(setup.secret))
    if port is None:
        return None
    addr = chosen.bus_addr or chosen.addr
    if not setup.secret:
        if chosen.bus_addr and not is_loopback(chosen.bus_addr):
            raise BadConfig(
                f"bus_addr: nodes would come in at {addr} without a secret: name one "
                "with `secret_file`, or let them come in over 127.0.0.1"
            )
        addr = chosen.bus_addr or broker_settings.LOOPBACK
    return listening.bind(addr, port, "the broker's port for other nodes")


def _secret_in(chosen: BrokerConfig, directory: Path) -> bytes:
    """Return the secret that the nodes share; BadConfig: it is none."""
    if not chosen.secret_file:
        return b""
    return broker_secret.read(directory / chosen.secret_file)


def _certificate(setup: Setup) -> Certificate | None:
    files = {name: _path(setup, text) for name, text in setup.chosen.tls.items()}
    if not files:
        return None
    return Certificate(
        files["cert"],
        files["key"],
        whose="the broker",
        speaks=(),
        clients=files.get("clients"),
    )


def _channel(setup: Setup) -> Channel | None:
    """Return how nodes talk over TLS; None: they do not. BadConfig: they cannot."""
    pair = broker_settings.bus_tls_files(setup.chosen)
    if not pair:
        return None
    return Channel(_path(setup, pair["cert"]), _path(setup, pair["key"]))


def _path(setup: Setup, text: str) -> Path:
    """Return the path in a setting, which may be relative to the root."""
    return Path(text) if setup.root is None else setup.root.path / text


async def _serve(setup: Setup, sockets: Sockets) -> int:
    loop = asyncio.get_running_loop()
    place, chosen = setup.place, setup.chosen
    with ThreadPoolExecutor(2, "broker") as threads:
        place_of_node.take(place)
        node = Node(place_of_node.node_id(place), SystemRandom())
        node.memory.limit = chosen.maxmemory
        collector.pause()
        store = open_store(place, node, threads)
        _begin(node, store, place)
        collector.collect_young()
        server = Server(node, store, chosen, setup.people, ADMIN, loop, setup.root)
        held = sockets.held
        try:
            if sockets.bus is not None:  # bound since the start, and listening only now
                bus_held = server.cluster.begin(
                    sockets.bus, setup.secret, _channel(setup)
                )
                held = held or bus_held
            for sock, certificate in sockets.clients:
                server.listen(sock, certificate)
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, _end, server)
            if setup.life_fd is not None:
                loop.add_reader(setup.life_fd, _end, server)
            log.info(
                "serves %s",
                fields(addr=chosen.addr, port=chosen.port, jobs=_jobs(node)),
            )
            setup.say_ready(held)
            await server.stop
        finally:
            server.close()
    log.info("stopped")
    return DISPLACED if store.displaced else 0


def _begin(node: Node, store: Store, place: Place) -> None:
    """Begin with what the directory of a node holds; one that was accepted as a copy
    hands out no job that comes at most once. DiskFailed: that cannot be kept."""
    now = store.clock.now()
    if place.copy.exists():
        node.desk.withhold(now)
        while node.events:
            some, node.events = node.events[:_SOME], node.events[_SOME:]
            store.append(some, now)
            store.commit()
        durable.unlink_durable(place.copy)
    node.begin(now)


def _jobs(node: Node) -> int:
    return len(node.jobs.by_id)


def _end(server: Server) -> None:
    if not server.stop.done():
        server.stop.set_result(None)


def alone(argv: list[str] | None = None) -> int:
    """Run a node in the foreground, with a directory of its own and no supervisor; it is
    ready when its port answers. Or accept a directory that was copied."""
    parser = argparse.ArgumentParser(prog="rq broker run")
    parser.add_argument("--dir", required=True, type=Path)
    parser.add_argument("--port", type=int, default=broker_settings.PORT)
    parser.add_argument("--addr", default=broker_settings.LOOPBACK)
    parser.add_argument("--bus-port", type=int, default=0)
    parser.add_argument("--bus-addr", default="")
    parser.add_argument("--secret-file", default="")
    parser.add_argument("--password-file", type=Path)
    for name in ("cert", "key", "clients"):
        parser.add_argument(f"--tls-{name}")
    parser.add_argument("--accept", choices=("same", "copy"))
    args = parser.parse_args(argv)
    logs.open_log("rq-broker", None)
    place = Place(args.dir.absolute())
    try:
        if args.accept:
            place_of_node.accept(place, copy=args.accept == "copy")
            return 0
        kept = broker_settings.read(place.settings)
        chosen = replace(
            kept,
            addr=args.addr,
            port=args.port,
            bus_port=args.bus_port,
            bus_addr=args.bus_addr,
            secret_file=args.secret_file,
            password=_password(args.password_file) or kept.password,
            tls=_tls(args),
        )
        broker_settings.check_door(chosen)
        secret = _secret_in(chosen, Path.cwd())
        return run(Setup(place=place, chosen=chosen, secret=secret))
    except (RQError, OSError) as error:
        sys.stderr.write(f"rq broker: {_why(error)}\n")
        return 1


def _password(path: Path | None) -> str:
    """Return the hash of the password of a node without a supervisor: of the first line
    of a file, or of the environment, which is not kept; "": there is none."""
    text = os.environ.pop(PASSWORD, "")
    if path is not None:
        text = path.read_text().partition("\n")[0]
        if not text:
            raise BadConfig(f"--password-file: {path} is empty")
    return passwords.make(text) if text else ""


def _tls(args: argparse.Namespace) -> dict[str, str]:
    given = {name: getattr(args, f"tls_{name}") for name in ("cert", "key", "clients")}
    files = {name: path for name, path in given.items() if path}
    if files and not {"cert", "key"} <= files.keys():
        raise BadConfig("TLS takes --tls-cert and --tls-key")
    return files
