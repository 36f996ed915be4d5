"""The broker's process: as a child of the supervisor, or alone in the foreground."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import secrets
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import SystemRandom

from rq import client, durable, helper, logs
from rq.broker.node import Node
from rq.broker.server import Server
from rq.broker.store import Place, open_store
from rq.config import broker as broker_settings
from rq.config.broker import BrokerConfig
from rq.errors import BadConfig, Damaged, Refused, RQError
from rq.logs import fields

DO_NOT_RESTART = 3  # only a person can mend it
_NODE_ID = 20  # bytes

log = logging.getLogger(__name__)


def main(argv: list[str] | None = None) -> int:
    """Run the broker of a root, as the supervisor starts it."""
    try:
        started = helper.start("broker", argv)
    except (RQError, OSError) as error:
        sys.stderr.write(f"rq-broker: {error}\n")
        return 1
    try:
        chosen = broker_settings.read(started.root.broker_config)
        place = Place(started.root.broker)
        own = client.listen(started.root.broker_socket)
        return run(place, chosen, started.say_ready, started.life_fd, own)
    except (BadConfig, Damaged) as error:
        started.refuse(str(error))
        return DO_NOT_RESTART
    except (RQError, OSError) as error:
        started.refuse(str(error))
        return 1


def run(
    place: Place,
    chosen: BrokerConfig,
    say_ready: Callable[[], None],
    life_fd: int | None = None,
    own: socket.socket | None = None,
) -> int:
    """Run a node until TERM, SHUTDOWN, or the end of whoever holds `life_fd`; `own`: a
    listening socket for our own user. RQError, OSError: it cannot run, and why."""
    broker_settings.check_door(chosen)
    place.path.mkdir(mode=0o750, parents=True, exist_ok=True)
    sockets = [*listen(chosen), *([own] if own is not None else [])]
    asyncio.run(_serve(place, chosen, sockets, say_ready, life_fd))
    return 0


async def _serve(
    place: Place,
    chosen: BrokerConfig,
    sockets: Sequence[socket.socket],
    say_ready: Callable[[], None],
    life_fd: int | None,
) -> None:
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(2, "broker") as threads:
        node = Node(node_id(place), SystemRandom())
        store = open_store(place, node, threads)
        server = Server(node, store, chosen, loop, threads)
        try:
            for sock in sockets:
                server.listen(sock)
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, _end, server)
            if life_fd is not None:
                loop.add_reader(life_fd, _end, server)
            log.info(
                "serves %s",
                fields(addr=chosen.addr, port=chosen.port, jobs=_jobs(node)),
            )
            say_ready()
            await server.stop
        finally:
            server.close()
    log.info("stopped")


def _jobs(node: Node) -> int:
    return len(node.jobs.by_id)


def _end(server: Server) -> None:
    if not server.stop.done():
        server.stop.set_result(None)


def node_id(place: Place) -> str:
    """Return the id of a node, made once and kept for ever."""
    with contextlib.suppress(FileNotFoundError):
        return place.node.read_text().strip()
    new_id = secrets.token_hex(_NODE_ID)
    durable.write_durable(place.node, f"{new_id}\n".encode())
    return new_id


def listen(chosen: BrokerConfig) -> list[socket.socket]:
    """Return the listening sockets; Refused says in a sentence why there is none."""
    where = f"{chosen.addr}:{chosen.port}"
    try:
        infos = socket.getaddrinfo(
            chosen.addr.strip("[]"), chosen.port, type=socket.SOCK_STREAM
        )
    except socket.gaierror as error:
        raise BadConfig(f"addr {chosen.addr}: {error.strerror}") from None
    family, kind, number, _, address = infos[0]
    sock = socket.socket(family, kind, number)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(2048)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        raise Refused(
            f"the broker cannot listen on {where}: {error.strerror}"
        ) from None
    return [sock]


def alone(argv: list[str] | None = None) -> int:
    """Run a node in the foreground, with a directory of its own and no supervisor; it is
    ready when its port answers."""
    parser = argparse.ArgumentParser(prog="rq broker run")
    parser.add_argument("--dir", required=True, type=Path)
    parser.add_argument("--port", type=int, default=broker_settings.PORT)
    parser.add_argument("--addr", default=broker_settings.LOOPBACK)
    args = parser.parse_args(argv)
    logs.open_log("rq-broker", None)
    try:
        chosen = BrokerConfig(addr=args.addr, port=args.port)
        return run(Place(args.dir.absolute()), chosen, lambda: None)
    except (RQError, OSError) as error:
        sys.stderr.write(f"rq broker: {error}\n")
        return 1
