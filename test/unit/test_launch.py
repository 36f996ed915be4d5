"""Where RQ cannot run, the first command says where it does, of a checkout and of a package."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from harness.checkout import CHECKOUT

from rq.cli.launch import elsewhere

# uname -s, uname -r: how people call it; "": RQ runs there.
SYSTEMS = (
    ("Linux", "6.1.0-13-amd64", ""),
    ("Linux", "5.15.153.1-microsoft-standard-WSL2", ""),
    ("Linux", "4.4.0-19041-Microsoft", "WSL 1"),
    ("Darwin", "23.4.0", "macOS"),
    ("FreeBSD", "14.0-RELEASE", "FreeBSD"),
    ("OpenBSD", "7.5", "OpenBSD"),
)


@pytest.mark.parametrize(("system", "release", "name"), SYSTEMS)
def test_the_first_command_says_where_rq_runs(system, release, name):
    text = elsewhere(system, release)
    assert bool(text) == bool(name)
    if name:
        assert f"RQ runs on Linux, and this is {name}: run it in a container" in text
        page = text.partition("(")[2].partition(" says")[0]
        assert Path(CHECKOUT, page).exists()


@pytest.mark.parametrize(("system", "release", "name"), SYSTEMS)
def test_a_checkout_says_the_same(tmp_path, system, release, name):
    """Its launcher, before it looks for a Python: here `uname` is that of the system."""
    uname = tmp_path / "uname"
    uname.write_text(
        f"#!/bin/sh\ncase $1 in -s) echo {system};; *) echo {release};; esac\n"
    )
    uname.chmod(0o755)
    lines = 'here=$0; . "$1"; PATH=$2:$PATH; demand_linux; echo runs'
    shell = ["sh", "-euc", lines, f"{CHECKOUT}/bin/rq", f"{CHECKOUT}/bin/bootstrap.sh"]
    done = subprocess.run(
        [*shell, tmp_path], capture_output=True, text=True, check=False
    )
    said = elsewhere(system, release)
    assert done.stdout == ("" if name else "runs\n")
    assert done.stderr == (f"rq: {said}\n" if name else "")
    assert done.returncode == (1 if name else 0)


def test_what_is_imported_until_then_exists_everywhere():
    """Modules of Python that only Linux has would end the command before it can say it."""
    code = "import sys; sys.modules.update(fcntl=None, select=None, resource=None, pwd=None)"
    code += "; import rq.cli.launch"
    python = [Path(CHECKOUT, ".venv/bin/python"), "-I", "-c", code]
    assert subprocess.run(python, check=False).returncode == 0
