"""A wheel is whole, and runs where only its code is: roots elsewhere, nothing written."""

from __future__ import annotations

import json
import os
import tarfile
import zipfile
from pathlib import Path

import pytest
from harness.checkout import CHECKOUT
from harness.installation import USER, as_user, call, give, place_for_all
from harness.packages import build, clean_venv, pip_install
from harness.ports import free_port
from harness.waiting import wait_until

from rq.cli import launch, verbs


@pytest.fixture(scope="module")
def place():
    with place_for_all("rq-wheel-") as path:
        path.chmod(0o755)
        yield path


@pytest.fixture(scope="module")
def built(place) -> list[Path]:
    return build("wheel", place / "dist")


@pytest.fixture(scope="module")
def venv(place, built) -> Path:
    """A venv of root's that nobody may write."""
    path = clean_venv(place)
    wheel = next(one for one in built if one.suffix == ".whl")
    pip_install(path, "-c", place / "dist/constraints.txt", wheel)
    call(["chmod", "-R", "a-w,a+rX", path])
    return path


class Installed:
    """The commands of a venv, asked by a user about a root."""

    def __init__(self, venv: Path, root: Path, user: int = USER):
        self.bin = venv / "bin"
        self.root, self.user = root, user

    def __call__(self, *words, program="rq", code=0, **options):
        command = [self.bin / program, "--root", self.root, *words]
        done = call(command, **{**as_user(self.user), **options})
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def sent(self) -> str:
        """Send the sample that ends at once, in its second attempt."""
        told = json.loads(self("send", "demo", "-p1", "retry", "--json"))
        return str(told["msg_id"])


def root_of(place: Path, name: str, user: int = USER) -> Path:
    """Make a directory for a root, of a user, with a free port and nothing else."""
    path = place / name
    (path / "config").mkdir(parents=True)
    settings = {"host": "127.0.0.1", "port": free_port()}
    (path / "config/config.json").write_text(json.dumps(settings))
    give(path, user)
    return path


def test_the_wheel_holds_all_that_the_code_does_with_its_modes(built):
    wheel = next(one for one in built if one.suffix == ".whl")
    with zipfile.ZipFile(wheel) as archive:
        inside = {
            info.filename: bool(info.external_attr >> 16 & 0o100)
            for info in archive.infolist()
        }
    code = [one for one in (CHECKOUT / "rq").rglob("*") if one.is_file()]
    wanted = {
        str(one.relative_to(CHECKOUT)): os.access(one, os.X_OK)
        for one in code
        if "__pycache__" not in one.parts
    }
    assert wanted.items() <= inside.items()
    assert {name for name in inside if name.startswith("rq/")} == set(wanted)
    shared = {name.partition(".data/data/")[2] for name in inside}
    assert {f"share/man/man1/rq-{verb}.1" for verb in verbs.VERBS} <= shared
    assert "share/bash-completion/completions/rq" in shared


def test_the_sdist_holds_what_the_wheel_is_built_from(built):
    sdist = next(one for one in built if one.suffix == ".gz")
    with tarfile.open(sdist) as archive:
        inside = {one.name.partition("/")[2]: one.mode for one in archive.getmembers()}
    for name in ("share/man/man1/rq.1", "docs/guide/start.md", "requirements.lock"):
        assert name in inside
    assert inside["rq/bundled/demo/run"] & 0o100


def test_all_commands_of_a_checkout_are_those_of_a_package(venv):
    """And each runs the same module with the same words."""
    commands = {}
    for launcher in (CHECKOUT / "bin").iterdir():
        if launcher.is_file() and not launcher.suffix:
            last = launcher.read_text().splitlines()[-1].split()
            if last[0] == "launch":
                commands[launcher.name] = tuple(last[1:-1])
    assert commands == dict(launch.PROGRAMS)
    assert all((venv / "bin" / name).exists() for name in commands)


def test_rq_runs_with_code_that_none_may_write_and_roots_elsewhere(place, venv):
    """Two roots of one code, one with blanks and letters in its name."""
    roots = [root_of(place, name) for name in ("one", "zwei mit blank, ö und 'q'")]
    before = state_of(venv)
    for path in roots:
        rq = Installed(venv, path)
        rq("up", "--no-samples")
        msg_id = rq.sent()
        rq("wait", f"demo/{msg_id}", "--timeout", "60")
        assert os.readlink(path / "scandir/demo").startswith(str(venv))
        port = json.loads((path / "config/config.json").read_text())["port"]
        checked = [venv / "bin/check_rq", "-p", port, "--root", path]
        assert call(checked, **as_user(USER)).returncode in (0, 1)
    for path in roots:
        Installed(venv, path)("down")
    assert state_of(venv) == before


def state_of(venv: Path) -> dict[str, int]:
    return {str(one): one.lstat().st_mtime_ns for one in venv.rglob("*")}


def test_what_is_said_can_be_typed(place, venv):
    path = root_of(place, "typed and said")
    rq = Installed(venv, path)
    told = rq("up", "--no-samples")
    command = next(line for line in told.splitlines() if " status` shows" in line)
    typed = command.partition("`")[2].partition("`")[0]
    assert call(["sh", "-c", typed], **as_user(USER)).returncode == 0
    assert "--spark" not in told
    assert "WHEEL.whl[spark]" in rq("up", "--spark", code=4)
    rq("down")


def test_nothing_of_the_callers_shell_gets_into_it(place, venv):
    planted = place / "planted"
    planted.mkdir(mode=0o755)
    (planted / "orjson.py").write_text("raise SystemExit('planted')")
    (planted / "usercustomize.py").write_text("print('planted')")
    env = {**as_user(USER)["env"], "PYTHONPATH": str(planted)}
    done = call(
        [venv / "bin/check_rq", "-p", "1"],
        **{**as_user(USER), "env": env, "cwd": planted},
    )
    assert done.returncode == 2
    assert "CRITICAL" in done.stdout


@pytest.mark.slow
def test_a_root_follows_the_code_that_starts_it(place, venv):
    """Made by the checkout, with a message that waits; then the package, and back."""
    path = root_of(place, "moved", user=0)
    checkout = Installed(CHECKOUT, path, 0)
    installed = Installed(venv, path, 0)
    for code in (checkout, installed, checkout):
        code("up", "--no-samples")
        code("queue", "resume", "demo")
        assert Path(os.readlink(path / "scandir/demo")).is_relative_to(code.bin.parent)
        code("wait", f"demo/{code.sent()}", "--timeout", "60")
        code("queue", "pause", "demo")
        waits = code.sent()
        code("down")
        config = json.loads((path / "queue/demo/config.json").read_text())
        assert config["script"].startswith(str(code.bin.parent))
    checkout("up", "--no-samples")
    checkout("queue", "resume", "demo")
    checkout("wait", f"demo/{waits}", "--timeout", "60")
    checkout("down")


@pytest.mark.slow
def test_an_upgrade_under_a_root_that_runs_loses_nothing(place, built):
    """The code is replaced while messages run; `rq up` then starts the new one."""
    at = place / "upgraded"
    at.mkdir()
    venv = clean_venv(at)
    wheel = next(one for one in built if one.suffix == ".whl")
    pip_install(venv, wheel)
    path = root_of(place, "upgraded root", user=0)
    rq = Installed(venv, path, 0)
    rq("up", "--no-samples")
    pid = (path / "config/queuemgr.pid").read_text()
    sent = [rq.sent() for _ in range(5)]
    pip_install(venv, "--force-reinstall", "--no-deps", wheel)
    sent += [rq.sent() for _ in range(5)]
    assert "older code" in rq("up")
    assert (path / "config/queuemgr.pid").read_text() != pid
    wait_until(lambda: ended(rq, "demo") == {*sent})
    rq("down")


def ended(rq: Installed, queue: str) -> set[str]:
    return {one.name for one in (rq.root / "queue" / queue / "done").glob("*/*/*/*")}


@pytest.mark.slow
def test_pipx_installs_it_with_its_commands_and_pages(place, built):
    home = place / "pipx home"
    wheel = next(one for one in built if one.suffix == ".whl")
    env = {
        **os.environ,
        "PIPX_HOME": str(home / "venvs"),
        "PIPX_BIN_DIR": str(home / "bin"),
        "PIPX_MAN_DIR": str(home / "man"),
    }
    done = call(["pipx", "install", wheel], env=env, timeout=300)
    assert done.returncode == 0, done.stderr
    path = root_of(place, "of pipx", user=0)
    told = call([home / "bin/rq", "--root", path, "up"], env=env)
    assert told.returncode == 0, told.stderr
    assert "8 queues are ready" in told.stdout
    assert call([home / "bin/rq", "--root", path, "down"], env=env).returncode == 0
