"""fdatasync of a zero-filled journal, quiet and while another process makes 5,000 folders a second.

The rule that it proves: on a file system with a journal, p99 beside thousands of folders
a second stays near that of a quiet disk, which a growing file's does not.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import bench

FOLDERS = (
    "import os,sys,time\n"
    "n=0; begun=time.time(); end=time.time()+float(sys.argv[2])\n"
    "while time.time()<end:\n"
    "    d=f'{sys.argv[1]}/f{n}'; os.mkdir(d); n+=1\n"
    "    open(d+'/msg','wb').write(b'x'*300)\n"
    "    if n % 50 == 0: time.sleep(max(0, begun + n / 5000 - time.time()))\n"
    "print(n)\n"
)


def syncs(path: Path, filled: bool, seconds: float) -> list[float]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    if filled:
        os.pwrite(fd, bytes(64 * 1024 * 1024), 0)
    os.fsync(fd)
    took, at, until = [], 0, time.perf_counter() + seconds
    while time.perf_counter() < until:
        begun = time.perf_counter()
        os.pwrite(fd, b"x" * 350, at)
        os.fdatasync(fd)
        took.append(time.perf_counter() - begun)
        at += 350
    os.close(fd)
    path.unlink()
    return took


def main() -> None:
    only = sys.argv[1] if len(sys.argv) > 1 else None
    with bench.disks(only) as disks:
        for disk in disks:
            print(f"\n{disk.name}")
            for filled in (True, False):
                show(disk.path, filled)


def show(where: Path, filled: bool) -> None:
    name = "zero-filled" if filled else "growing"
    quiet = syncs(where / "journal", filled, 3)
    folders = where / f"folders-{name}"
    folders.mkdir()
    command = [sys.executable, "-c", FOLDERS, str(folders), "4"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as maker:
        time.sleep(0.3)
        busy = syncs(where / "journal", filled, 3)
        made, _ = maker.communicate()
    p99s = [bench.percentile(took, 0.99) * 1e3 for took in (quiet, busy)]
    print(
        f"  {name:12s} quiet {len(quiet) / 3:6.0f}/s p99 {p99s[0]:.2f} ms   beside "
        f"{int(made) / 4:.0f} folders/s {len(busy) / 3:6.0f}/s p99 {p99s[1]:.2f} ms "
        f"({p99s[1] / p99s[0]:.1f} ×)",
        flush=True,
    )


if __name__ == "__main__":
    main()
