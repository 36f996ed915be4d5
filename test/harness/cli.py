"""Running the tools of RQ in tests, and an RQ of the test's own."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import tempfile

from harness import forks
from harness.checkout import CHECKOUT
from harness.ports import free_port

# All queues that are linked by an install: who needs none of them starts faster.
BUNDLED = tuple(path.name for path in (CHECKOUT / "rq/bundled").iterdir())


def run(module, *words, root=None, env=None, cwd=None, text=True):
    """Run a tool of RQ as its launcher does; return the finished process."""
    command = [module]
    if root is not None:
        command += ["--root", str(root)]
    command += map(str, words)
    with (
        open(os.devnull) as null,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        process = start(command, env or {}, cwd, (null, out, err))
        try:
            code = process.wait(180)
        except BaseException:
            process.kill()
            process.wait()
            raise
        printed = [content(file, text) for file in (out, err)]
    return subprocess.CompletedProcess(command, code, *printed)


def start(command, env, cwd, files):
    """Start a tool; it is forked, where nothing asks for a Python of its own."""
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), **env}
    if forks.suffice(env):
        directory = os.fspath(cwd or os.getcwd())
        return forks.start_tool(
            command, environment, directory, [file.fileno() for file in files]
        )
    standard = dict(zip(("stdin", "stdout", "stderr"), files, strict=True))
    python = [sys.executable, "-m", *command]
    return subprocess.Popen(python, env=environment, cwd=cwd, **standard)


def content(file, text):
    file.seek(0)
    data = file.read()
    return io.TextIOWrapper(io.BytesIO(data)).read() if text else data


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
        done = rq("up", "--no-samples", "--adopt", root=root)
        assert done.returncode == 0, done.stdout + done.stderr
        yield root
    finally:
        ended = rq("down", root=root)
    assert ended.returncode == 0, ended.stderr
