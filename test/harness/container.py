"""An image that runs as an engine would run it: in namespaces of its own, with the words,
user and environment that it names, and files that cannot be changed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.image import PATH, Image, run
from harness.processes import lives
from harness.waiting import wait_until

ADDRESS = "192.0.2.1"  # of all containers of a network, under the name rq
USER = 963  # of the image: docs/guide/install.md

# Of an image: its files cannot be changed, /tmp is empty, a volume is where it says.
_SETTLE = f"""
files=$1 volume=$2; shift 2
mount --make-rprivate /
hostname "$(basename "$volume")"
printf '127.0.0.1 localhost\n{ADDRESS} rq\n' >"$files/etc/hosts"
mount --bind "$files" "$files"
mount --bind "$volume" "$files/var/lib/rq"
mount --bind /dev "$files/dev"
mount -t tmpfs tmpfs "$files/tmp"
mount -t proc proc "$files/proc"
mount -o remount,bind,ro "$files"
exec chroot --userspec={USER}:{USER} "$files" env -i -C /var/lib/rq "$@"
"""


@dataclass(frozen=True, slots=True)
class Container:
    """One that runs: its first process, and what it has printed."""

    pid: int
    log: Path
    env: list[str]

    def __call__(self, *words: str, code: int = 0) -> str:
        """Run a command in it, as `docker exec` does; return what it printed."""
        enter = ["nsenter", f"--target={self.pid}", "--all", "--root", "--wd"]
        enter += [f"--setuid={USER}", f"--setgid={USER}", "env", "-i", *self.env]
        done = subprocess.run(
            [*enter, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr + self.printed()
        return done.stdout + done.stderr

    def printed(self) -> str:
        return self.log.read_text()

    def stop(self) -> None:
        """As `docker stop`: TERM to the first process; all must have ended."""
        os.kill(self.pid, signal.SIGTERM)
        wait_until(lambda: not lives(self.pid), 60)


@contextlib.contextmanager
def network() -> Iterator[str]:
    """Give a network in which there is nothing but itself."""
    name = f"rq-{uuid.uuid4().hex[:8]}"
    run("ip", "netns", "add", name)
    try:
        run("ip", "-n", name, "link", "set", "lo", "up")
        run("ip", "-n", name, "address", "add", f"{ADDRESS}/32", "dev", "lo")
        yield name
    finally:
        run("ip", "netns", "del", name)


@contextlib.contextmanager
def running(image: Image, volume: Path, net: str, *words: str) -> Iterator[Container]:
    """Run an image with a volume, in a network, with these words behind its own."""
    env = [f"{name}={value}" for name, value in {"PATH": PATH, **image.env}.items()]
    log = volume.with_name(f"{volume.name}.log")
    alone = ["unshare", "--pid", "--fork", "--mount", "--ipc", "--uts"]
    entry = [*image.facts["ENTRYPOINT"], *words]
    command = ["ip", "netns", "exec", net, *alone, "sh", "-euc", _SETTLE, "sh"]
    command += [image.files, volume, *env, *entry]
    with open(log, "wb") as out:
        outer = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
    first = 0
    try:
        children = Path(f"/proc/{outer.pid}/task/{outer.pid}/children")
        first = int(wait_until(lambda: children.read_text().split())[0])
        name = Path(f"/proc/{first}/comm")
        wait_until(lambda: name.read_text().strip() == "tini")
        yield Container(first, log, env)
    finally:
        if first:  # and with it all in there
            with contextlib.suppress(ProcessLookupError):
                os.kill(first, signal.SIGKILL)
        outer.wait()
