"""RQ beside its peers: same disk, same run, every accepted message on disk.

    PYTHONPATH=.:test/bench .venv/bin/python test/bench/peers [--quick] [--disk DISK]

prints each figure as it comes, and one table in the end, also when it is stopped before.
Each figure of a peer stands with its ratio to RQ's; absolute figures of another machine
or another day mean little. Needs the network once, to install peers
into --env; as root Debian's redis-server and beanstalkd are installed, too, and the disk
is a loop image with a journaled ext4.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import bench
import peers
import table
from peers import Peer
from rounds import Sizes, everything

QUICK = Sizes(burst=2000, seconds=3, cycle=300, starts=20, queued=10_000, rounds=1)
WHOLE = Sizes(
    burst=20_000, seconds=15, cycle=2000, starts=100, queued=1_000_000, rounds=3
)


def main() -> None:
    options = parse()
    begun = time.monotonic()
    sizes = QUICK if options.quick else WHOLE
    if options.queued:
        sizes = Sizes(**{**vars(sizes), "queued": options.queued})
    options.env.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with bench.disks(options.disk) as disks:
        if not disks:
            sys.exit("peers: no image can be mounted here: --disk disk")
        found = table.Table(disk=disks[-1].name, queued=sizes.queued)
        try:
            everything(chosen(options), disks[-1].path, sizes, found)
        finally:  # also of what was stopped half way
            print(found.text(time.monotonic() - begun), flush=True)


def chosen(options: argparse.Namespace) -> list[Peer]:
    return [
        one
        for one in peers.every(options.env)
        if not options.only or one.name.split()[0] in options.only
    ]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="small numbers, ~2 minutes"
    )
    parser.add_argument(
        "--disk",
        choices=["loop", "disk"],
        default="loop" if os.getuid() == 0 else "disk",
    )
    parser.add_argument("--queued", type=int, help="instead of a million")
    parser.add_argument("--only", nargs="+", help="first words of peers' names")
    parser.add_argument(
        "--env", type=Path, default=Path(tempfile.gettempdir(), "rq-peers")
    )
    return parser.parse_args()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
