"""The example weblogs, end to end: S3, Spark, sftp, and the plot on the page."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import os
import shutil
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import asyncssh
import pytest
from harness import cli
from harness.checkout import CHECKOUT
from harness.ports import free_port
from harness.spark_cluster import cluster_at
from harness.spark_jobs import job_settings
from harness.waiting import wait_until
from moto.server import ThreadedMotoServer
from pyarrow import fs

from rq.layout import Root
from rq.rpc import client

EXAMPLE = CHECKOUT / "examples" / "weblogs"
PATIENCE = 300.0  # seconds for the whole way, a JVM's start in it, on a busy machine
SECRET = {
    "AWS_ACCESS_KEY_ID": "tests",
    "AWS_SECRET_ACCESS_KEY": "tests",
    "AWS_DEFAULT_REGION": "us-east-1",
}


@pytest.fixture
def store():
    """Give an S3 of the test's own: the end of its URLs."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    try:
        _, port = server.get_host_and_port()
        yield f"?endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"
    finally:
        server.stop()


class Sftp:
    """A server that writes into a directory."""

    def __init__(self, directory: Path) -> None:
        self.inside = directory / "inside"
        (self.inside / "in").mkdir(parents=True)
        self._key = asyncssh.generate_private_key("ssh-ed25519")
        user = asyncssh.generate_private_key("ssh-ed25519")
        self.user_key = directory / "key"
        user.write_private_key(str(self.user_key))
        self.user_key.chmod(0o600)
        self._users = directory / "users"
        self._users.write_bytes(user.export_public_key())
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._server = self._run(self._listen())
        self.port = self._server.get_port()
        self.known = directory / "known_hosts"
        public = self._key.export_public_key().decode()
        self.known.write_text(f"[127.0.0.1]:{self.port} {public}")

    async def _listen(self):
        return await asyncssh.listen(
            "127.0.0.1",
            0,
            server_host_keys=[self._key],
            authorized_client_keys=str(self._users),
            sftp_factory=lambda line: asyncssh.SFTPServer(
                line, chroot=str(self.inside)
            ),
        )

    def _run(self, coroutine):
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)

    async def _end(self):
        self._server.close()
        await self._server.wait_closed()

    def close(self) -> None:
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture
def sftp(tmp_path):
    with contextlib.closing(Sftp(tmp_path / "sftp")) as server:
        yield server


def install(root, name, **changes):
    """Copy a queue of the example into a root, with other settings, and link it."""
    place = root / "definitions" / name
    shutil.copytree(EXAMPLE / name, place)
    path = place / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    (root / "scandir").mkdir(exist_ok=True)
    (root / "scandir" / name).symlink_to(place)


def put_logs(directory, end):
    """Put the sample logs into a bucket; return how many server errors are in them."""
    command = [sys.executable, EXAMPLE / "make_logs.py", directory, "2", "600"]
    subprocess.run(command, check=True)
    system, path = fs.FileSystem.from_uri(
        f"s3://logs/incoming/{end}&allow_bucket_creation=true"
    )
    system.create_dir("logs")
    errors = 0
    for file in directory.glob("*/*.gz"):
        inner = f"{path.rstrip('/')}/{file.parent.name}/{file.name}"
        with system.open_output_stream(inner, compression=None) as stream:
            stream.write(file.read_bytes())
        lines = gzip.decompress(file.read_bytes()).decode().splitlines()
        errors += sum('" 50' in line for line in lines)
    return errors


def test_logs_go_from_s3_through_spark_to_sftp_and_the_plot_is_on_the_page(
    tmp_path, spark_env, store, sftp, monkeypatch
):
    if shutil.which("sftp") is None:
        pytest.skip("there is no sftp -> apt-get install openssh-client")
    for name, value in SECRET.items():
        monkeypatch.setenv(name, value)
    errors = put_logs(tmp_path / "logs", store)
    assert errors > 0
    root = tmp_path / "root"
    root.mkdir()
    job = job_settings(root, spark_env)
    to = f"sftp://ops@127.0.0.1:{sftp.port}/in/"
    install(root, "retrieve", env_vars={**job["env_vars"], **SECRET})
    install(
        root,
        "weblogs",
        batch={"max": 2, "wait": 3600},
        env_vars={**job["env_vars"], "WEBLOGS_TO": to},
        spark=job["spark"],
    )
    options = f"-i {sftp.user_key} -o UserKnownHostsFile={sftp.known} -F none"
    install(root, "deliver", env_vars={"SFTP_OPTIONS": options})
    with cli.running(root):
        timer = json.loads((EXAMPLE / "timer.json").read_text())
        timer["msg"]["param1"] += store
        (root / "timers/weblogs.json").write_text(json.dumps(timer))
        found = wait_until(lambda: ended(Root(root)), PATIENCE)
        assert found["status"].startswith("done - 3 files"), found
        msg_id = found["msg_id"]
        names = {"errors.csv.gz", "errors.svg", "rejects.jsonl"}
        files = {path.name: path for path in (sftp.inside / "in").iterdir()}
        assert files.keys() == {f"{msg_id}-{name}" for name in names}
        rows = gzip.decompress(files[f"{msg_id}-errors.csv.gz"].read_bytes())
        counts = [
            int(line.rpartition(",")[2]) for line in rows.decode().splitlines()[1:]
        ]
        assert sum(counts) == errors
        page = page_of(root, msg_id)
    assert f'<img src="/q/deliver/{msg_id}/attach/errors.svg"' in page


def test_a_store_that_does_not_answer_is_asked_again_later(tmp_path, monkeypatch):
    for name, value in SECRET.items():
        monkeypatch.setenv(name, value)
    end = f"?endpoint_override=127.0.0.1:{free_port()}&scheme=http&region=us-east-1"
    reader, writer = os.pipe()
    # A script writes to descriptor 3; the shell puts it there.
    command = f'exec "{sys.executable}" "{EXAMPLE}/retrieve/retrieve.py" 3>&{writer}'
    env = {"RQ_ROOT": str(tmp_path), "RQ_PARAM1": f"s3://logs/incoming/{end}"}
    ended = subprocess.run(
        ["bash", "-c", command],
        env={**os.environ, "PYTHONPATH": str(CHECKOUT), **env},
        pass_fds=(writer,),
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    with open(reader) as pipe:
        said = pipe.read()
    assert ended.returncode == 0, ended.stderr
    assert said.startswith("resend 60-")
    assert said.count("\n") == 1


@pytest.mark.stress
def test_the_same_script_runs_on_a_cluster(java_home, tmp_path):
    make = [sys.executable, EXAMPLE / "make_logs.py", tmp_path / "logs", "2", "600"]
    subprocess.run(make, check=True)
    script = EXAMPLE / "weblogs" / "run"
    words = [script, "--messages", tmp_path / "logs", "--out", tmp_path / "out"]
    (tmp_path / "cluster").mkdir()
    with cluster_at(tmp_path / "cluster") as cluster:
        ended = subprocess.run(
            [sys.executable, "-m", "rq.cli", "spark", "try", *words],
            env=cluster.environment(tmp_path / "root"),
            capture_output=True,
            text=True,
            check=False,
        )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-1] == "done, 2 messages"
    rows = (tmp_path / "out/results/rejects.jsonl").read_text().splitlines()
    assert len(rows) == 2


def ended(root):
    """Return the message that was delivered, or the first that has failed."""
    for name in ("retrieve", "weblogs", "deliver"):
        queue = root.queue(name)
        folders = [*queue.path.glob("err/*/msg")]
        folders += queue.path.glob("done/*/*/*/*/msg") if name == "deliver" else []
        for one in folders:
            about = {"msg_id": one.parent.name}
            return client.demanded(client.ask(queue.socket, "get_message", about))
    return None


def page_of(root, msg_id):
    """Return the page of a message, from the web that serves this root."""
    port = json.loads((root / "config/config.json").read_text())["port"]
    address = f"http://127.0.0.1:{port}/q/deliver/{msg_id}"
    with urllib.request.urlopen(address, timeout=60) as answer:
        return answer.read().decode()
