"""The Debian package and the container, each in a Debian made for it."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import stat
import subprocess

import pytest
import yaml
from harness.checkout import CHECKOUT
from harness.container import network, running
from harness.image import Builder, Image, debian_root, run, within
from harness.waiting import wait_until

_NEEDED = ("mmdebstrap", "ip", "nsenter", "systemd-analyze")
_MISSING = [name for name in _NEEDED if shutil.which(name) is None]
pytestmark = pytest.mark.skipif(
    bool(_MISSING) or os.geteuid() != 0,
    reason="root with mmdebstrap alone can -> sudo ./test/run_tests.sh packages",
)
ID = re.compile(r"\d{8}\.\d{4}\.\d\d\.\d{3}\.\d+")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """In memory: what dpkg and cp write there need not outlast the tests, nor be kept."""
    path = tmp_path_factory.mktemp("debian")
    run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", path)
    yield path
    run("umount", "--lazy", path)


@pytest.fixture(scope="module")
def builder(place) -> Builder:
    """Containerfile, with all its steps done."""
    done = Builder(place, debian_root(place))
    done.build()
    return done


@pytest.fixture(scope="module")
def image(builder) -> Image:
    return builder.image


@pytest.fixture
def system(place, builder):
    """A Debian of a test's own, with the package in its /root."""
    copied = place / "system"
    run("cp", "-a", builder.base, copied)
    package = next((builder.stages["build"].files / "out").glob("*.deb"))
    shutil.copy(package, copied / "root/rq.deb")
    yield copied
    run("rm", "-rf", copied)


# ---- the Debian package


def test_it_asks_nothing_and_a_purge_keeps_the_messages(system):
    within(system, "dpkg", "-i", "/root/rq.deb")
    assert (system / "var/lib/rq/scandir/demo").is_symlink()
    config = json.loads((system / "var/lib/rq/config/config.json").read_text())
    assert (config["addr"], config["port"]) == ("127.0.0.1", 3333)
    owner = (system / "var/lib/rq/config").stat().st_uid
    assert f"rq:x:{owner}:" in (system / "etc/passwd").read_text()
    assert "rq 4" in within(system, "rq", "version")
    sends = "rq up --no-samples && rq send demo -p1 retry --wait; rq down"
    ended = ID.search(within(system, "sh", "-c", sends))
    assert ended
    kept = list((system / "var/lib/rq/queue/demo/done").rglob(ended[0]))
    assert kept
    assert kept[0].stat().st_uid == owner
    told = within(system, "dpkg", "--purge", "rq-spool")
    assert "the messages in /var/lib/rq stay" in told
    assert kept[0].exists()
    left = [system / "usr/lib/rq", system / "usr/bin/rq", system / "etc/rq"]
    assert [path for path in left if os.path.lexists(path)] == []


def test_an_update_keeps_what_the_operator_changed(system):
    within(system, "dpkg", "-i", "/root/rq.deb")
    (system / "etc/rq/environment").write_text("RQ_ROOT=/srv/jobs\n")
    config = system / "var/lib/rq/config/config.json"
    text = config.read_text().replace("3333", "4444")
    config.write_text(text)
    (system / "srv/jobs").mkdir()
    within(system, "dpkg", "-i", "/root/rq.deb")
    assert (system / "etc/rq/environment").read_text() == "RQ_ROOT=/srv/jobs\n"
    assert config.read_text() == text
    assert not (system / "srv/jobs/config").exists()
    assert "/srv/jobs" in within(system, "sh", "-c", "rq status 2>&1 || [ $? = 6 ]")


def test_its_unit_is_one_that_systemd_reads(system):
    within(system, "dpkg", "-i", "/root/rq.deb")
    unit = system / "usr/lib/systemd/system/rq.service"
    text = unit.read_text()
    # systemd looks for what it names on the machine that asks.
    there = text.replace("=/usr/bin/rq-init", f"={system}/usr/lib/rq/bin/rq-init")
    copied = system / "root/rq.service"
    copied.write_text(there)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", copied],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    wrong = [line for line in done.stderr.splitlines() if "rq.service" in line]
    # The one key that the unit says is of systemd 254.
    assert [line for line in wrong if "DelegateSubgroup" not in line] == []
    assert "/opt/rq" not in text
    assert "/var/lib/rq" not in text
    assert "EnvironmentFile=/etc/rq/environment" in text


def test_its_pages_and_completion_lie_where_debian_looks(system):
    within(system, "dpkg", "-i", "/root/rq.deb")
    for name in ("man/man1/rq-send.1.gz", "bash-completion/completions/rq"):
        assert (system / "usr/share" / name).exists()
    writable = [
        path
        for path in (system / "usr/lib/rq").rglob("*")
        if not path.is_symlink() and path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    ]
    assert writable == []


# ---- the container


@pytest.fixture
def volume(tmp_path):
    path = tmp_path / "volume"
    path.mkdir()
    os.chown(path, 963, 963)
    return path


@pytest.fixture
def net():
    with network() as name:
        yield name


WEB = "http://127.0.0.1:3333"
SHOWN = re.compile(r"the token of the admin, which is shown this once: (\S+)")
# In an image there is no curl; Python is.
ASK = """
import sys, urllib.request
headers = {"Authorization": "Bearer " + sys.argv[2]} if len(sys.argv) > 2 else {}
try:
    with urllib.request.urlopen(urllib.request.Request(sys.argv[1], headers=headers)) as it:
        print(it.status, it.read().decode())
except urllib.error.HTTPError as error:
    print(error.code)
"""


def asked(box, path: str, *token: str) -> str:
    return box("/usr/lib/rq/bin/python", "-I", "-c", ASK, f"{WEB}{path}", *token)


def wait_ready(box) -> str:
    """Wait until it serves; return the token that it has shown, once."""
    wait_until(lambda: "rq-mgr" in box.printed())
    wait_until(lambda: is_ready(box))
    shown = SHOWN.findall(box.printed())
    return shown[0] if shown else ""


def is_ready(box) -> bool:
    try:
        return asked(box, "/readyz").startswith("200")
    except AssertionError:  # nothing listens yet
        return False


def test_the_image_says_who_runs_where_and_what_health_is(image):
    lines = (image.files / "etc/passwd").read_text().splitlines()
    assert "rq:x:963:963::/var/lib/rq:/bin/sh" in lines
    assert image.facts["USER"] == "rq"
    assert image.facts["VOLUME"] == image.facts["WORKDIR"] == "/var/lib/rq"
    assert list((image.files / "var/lib/rq").iterdir()) == []
    assert image.facts["STOPSIGNAL"] == "SIGTERM"
    health = str(image.facts["HEALTHCHECK"]).partition(" CMD ")[2]
    assert os.access(image.files / json.loads(health)[0].lstrip("/"), os.X_OK)
    assert not (image.files / "src").exists()


def buildah_builds_the_same_image(builder, tmp_path):
    """The steps above are read as an engine reads them."""
    store = [f"--root={builder.place}/images", f"--runroot={tmp_path}/run"]
    ask = functools.partial(run, "buildah", *store, "--storage-driver=vfs")
    made = ask("from", "scratch").strip()
    ask("add", "--quiet", made, builder.base, "/")
    ask("commit", "--quiet", made, "localhost/base")
    words = ["--isolation=chroot", "--pull-never", "--format=docker"]
    words += [
        "--build-arg=BASE=localhost/base",
        "--volume=/etc/ssl/certs:/etc/ssl/certs:ro",
    ]
    ask("bud", *words, "-f", "Containerfile", "-t", "localhost/rq", ".")
    told = json.loads(ask("inspect", "--type=image", "localhost/rq"))["Docker"][
        "config"
    ]
    facts = builder.image.facts
    assert told["Entrypoint"] == facts["ENTRYPOINT"]
    assert (told["User"], told["WorkingDir"]) == (facts["USER"], facts["WORKDIR"])
    assert list(told["Volumes"]) == [facts["VOLUME"]]
    assert {*told["Env"]} >= {f"{name}={it}" for name, it in builder.image.env.items()}
    assert told["Healthcheck"]["Test"] == ["CMD", "/usr/lib/rq/bin/health"]


if shutil.which("buildah"):
    test_buildah = buildah_builds_the_same_image


def test_a_container_starts_on_an_empty_volume_and_again(image, volume, net):
    """It shows its token once, knows nobody without one, is healthy, ends at once."""
    with running(image, volume, net) as box:
        token = wait_ready(box)
        assert len(SHOWN.findall(box.printed())) == 1
        assert asked(box, "/api/v1/verdict").strip() == "401"
        assert asked(box, "/api/v1/verdict", token).startswith("200")
        box("rq", "send", "demo", "-p1", "fail", "--wait", code=8)
        box("/usr/lib/rq/bin/health")
        box.stop()
    assert token not in "".join(
        path.read_text(errors="replace")
        for path in (volume / "config").rglob("*")
        if path.is_file()
    )
    with running(image, volume, net) as box:
        assert wait_ready(box) == ""
        assert asked(box, "/api/v1/verdict", token).startswith("200")
        box.stop()


def test_what_scripts_leave_is_reaped_and_a_kill_loses_nothing(image, volume, net):
    with running(image, volume, net) as box:
        wait_ready(box)
        box("sh", "-c", "(setsid sh -c 'exit 0' &)")
        wait_until(lambda: "<defunct>" not in box_processes(box))
        waits = "until [ -e /var/lib/rq/go ]; do sleep 0.1; done"
        box("rq", "queue", "new", "slow", "--", "sh", "-c", waits)
        sent = ID.search(box("rq", "send", "slow"))
        wait_until(lambda: list((volume / "queue/slow/run").iterdir()))
    (volume / "go").touch()
    with running(image, volume, net) as box:
        wait_ready(box)
        box("rq", "wait", f"slow/{sent[0]}", "--timeout", "60")
        box.stop()


def box_processes(box) -> str:
    """Return the states of all processes in a container, as /proc tells."""
    lines = box("sh", "-c", "cat /proc/[0-9]*/stat 2>/dev/null || :").splitlines()
    return " ".join(
        "<defunct>" for line in lines if line.rpartition(")")[2].split()[0] == "Z"
    )


def test_a_container_that_cannot_answer_is_not_healthy(image, volume, net):
    with running(image, volume, net, "sleep", "600") as box:
        box("/usr/lib/rq/bin/health", code=1)


def test_the_two_agents_of_the_compose_file_work_on_its_queue(image, volume, net):
    """With the words of the file; the secret lies in the volume."""
    services = yaml.safe_load((CHECKOUT / "compose.yml").read_text())["services"]
    agents = [name for name in services if name.startswith("agent")]
    assert len(agents) == 2
    with running(image, volume, net) as box:
        wait_ready(box)
        box("rq", "queue", "new", "work", "--pull", "--", "sleep", "1")
        token = box("rq", "token", "create", "agents", "--role", "worker")
        homes = [volume.with_name(name) for name in agents]
        for home in homes:
            home.mkdir()
            (home / "token").write_text(token.splitlines()[0])
            (home / "token").chmod(0o600)
            run("chown", "-R", "963:963", home)
        words = [
            [
                word.replace("/run/secrets/agents", "/var/lib/rq/token")
                for word in services[name]["command"]
            ]
            for name in agents
        ]
        with (
            running(image, homes[0], net, *words[0]),
            running(image, homes[1], net, *words[1]),
        ):
            sent = [ID.search(box("rq", "send", "work"))[0] for _ in range(4)]
            for one in sent:
                box("rq", "wait", f"work/{one}", "--timeout", "60")
            workers = json.loads(box("rq", "worker", "ls", "--json"))
            assert len(workers) >= 2
        box.stop()
