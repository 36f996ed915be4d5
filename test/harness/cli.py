"""Running the tools of RQ in tests, and an RQ of the test's own."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

from harness.checkout import CHECKOUT
from harness.ports import free_port


def run(module, *words, root=None, env=None, **options):
    """Run a tool of RQ as its launcher does; return the finished process."""
    command = [sys.executable, "-m", module]
    if root is not None:
        command += ["--root", str(root)]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), **(env or {})}
    return subprocess.run(
        [*command, *map(str, words)],
        capture_output=True,
        timeout=180,
        check=False,
        env=environment,
        **{"stdin": subprocess.DEVNULL, "text": True, **options},
    )


def rq(*words, **options):
    return run("rq.cli", *words, **options)


def define(root, name, script, **config):
    """Link a definition into scandir; `script` is its program, with its first line."""
    import json

    directory = root / "definitions" / name
    directory.mkdir(parents=True)
    (directory / "run").write_text(script)
    (directory / "run").chmod(0o755)
    # Scripts that are as nice as they are by default starve on a busy machine.
    (directory / "config.json").write_text(json.dumps({"nice": 0, **config}))
    (root / "scandir").mkdir(exist_ok=True)
    (root / "scandir" / name).symlink_to(f"../definitions/{name}")


@contextlib.contextmanager
def running(root, without=()):
    """Give an RQ that runs in `root` and is ready; stop it at the end. Bundled queues in
    `without` are none of it."""
    if not (root / "config/config.json").exists():
        done = run("rq.cli.install", "--port", free_port(), root=root)
        assert done.returncode == 0, done.stderr
        for name in without:
            (root / "scandir" / name).unlink(missing_ok=True)
    try:
        done = rq("up", "--no-samples", root=root)
        assert done.returncode == 0, done.stdout + done.stderr
        yield root
    finally:
        ended = rq("down", root=root)
    assert ended.returncode == 0, ended.stderr
