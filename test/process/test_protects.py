"""The commands that the guide's page on protection gives, and what it says they do."""

import os
import re
import shutil
import subprocess

import pytest
from harness import guide, web_server
from harness.checkout import CHECKOUT

PAGE = CHECKOUT / "docs/guide/protects.md"
BLOCK = PAGE.read_text().partition("```sh tried\n")[2].partition("```")[0]
COMMANDS = [re.split(r"\s+# ", line) for line in BLOCK.splitlines()]
NEEDED = ("curl", "runuser", "bash")

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(os.geteuid() != 0, reason="asks as another user -> run as root"),
]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        pytest.skip(f"no {missing[0]} -> apt-get install {missing[0]}")
    with web_server.served(tmp_path_factory.mktemp("root") / "rq") as found:
        found.queue("echo done >&3", "kept")
        yield found


def test_there_are_five():
    assert [wanted for _, wanted in COMMANDS] == [
        "no warning",
        "403",
        "400",
        "421",
        "nothing",
    ]


@pytest.mark.parametrize(("command", "wanted"), COMMANDS)
def test_a_command_does_what_the_page_says(served, command, wanted, tmp_path):
    root = served.daemon.root.path
    env = {**os.environ, "PORT": str(served.port), "RQ_ROOT": str(root)}
    env["PATH"] = f"{guide.launcher(tmp_path)}:{env['PATH']}"
    command = command.replace("sudo -u daemon", "runuser -u daemon --")
    if wanted.isdigit():
        command += " -o /dev/null -w '%{http_code}'"
    done = subprocess.run(
        ["bash", "-c", command],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    if wanted == "no warning":
        assert "RQ" in done.stdout
        assert "warning" not in done.stdout + done.stderr
    else:
        assert done.stdout == ("" if wanted == "nothing" else wanted), done.stderr
