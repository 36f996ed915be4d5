"""What the supervisor's helper programs share: how they start, and that they end with it."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from dataclasses import dataclass
from types import TracebackType

from rq import config, logs
from rq.config import files
from rq.errors import Refused
from rq.layout import Root
from rq.proc import daemon, descriptors, locks

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Helper:
    """A helper program that has started."""

    name: str
    root: Root
    ready_fd: int | None
    life_fd: int | None  # readable at its end: the supervisor is gone

    def say_ready(self, held: str = "") -> None:
        """`held`: an address on which it should listen, and another process does."""
        if self.ready_fd is not None:
            os.write(self.ready_fd, f"HELD {held}\n".encode() if held else b"\n")
            os.close(self.ready_fd)
            self.ready_fd = None

    def refuse(self, why: str) -> None:
        """Say in a sentence why it cannot serve: to the supervisor, who shows it, or to
        the terminal."""
        log.error("%s", why)
        if self.ready_fd is not None:
            os.write(self.ready_fd, f"FATAL {why}\n".encode())
        else:
            sys.stderr.write(f"rq-{self.name}: {why}\n")


def start(name: str, argv: list[str] | None) -> Helper:
    """Start a helper program; Refused when another one serves this root."""
    options = _options(name, argv)
    given = [fd for fd in (options.ready_fd, options.life_fd) if fd is not None]
    descriptors.own_descriptors()
    if given:
        daemon.die_with_parent()
    root = config.find_root(options.root)
    files.make_root(root)
    os.chdir("/")
    os.umask(0o027)
    daemon.title(f"rq-{name}")
    logs.open_log(f"rq-{name}", root.log / f"{name}.log" if given else None)
    sys.excepthook = _log_fault
    # Held until the process ends.
    if locks.lock(root.config_dir / f"{name}.lock") is None:
        raise Refused(
            f"another {name} process serves {root.path}, and only one can: end that first"
        )
    return Helper(name, root, options.ready_fd, options.life_fd)


def _log_fault(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    log.critical("it ends by a fault of its own", exc_info=(kind, error, trace))


def _options(name: str, argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"rq-{name}")
    parser.add_argument("--root", metavar="DIR", help="the root; else $RQ_ROOT")
    parser.add_argument("--ready-fd", type=int, metavar="N", help=argparse.SUPPRESS)
    parser.add_argument("--life-fd", type=int, metavar="N", help=argparse.SUPPRESS)
    return parser.parse_args(argv)
