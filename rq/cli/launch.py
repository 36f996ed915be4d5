"""Where the commands of a package begin, as those of a checkout do in bin/bootstrap.sh.

Each becomes `python -I -m MODULE`, however it was found: nothing from the caller's shell or
directory may put code into RQ or into what RQ starts. Where RQ cannot run, the first
command says so; what is imported until then exists everywhere.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import NoReturn

# Command: the module, and its first words.
PROGRAMS: Mapping[str, tuple[str, ...]] = {
    "rq": ("rq.cli",),
    "rq-init": ("rq.supervisor", "--foreground"),
    "rq-install": ("rq.cli.install",),
    "rq-mgr": ("rq.cli.mgr",),
    "rq-spark": ("rq.spark",),
    "check_rq": ("rq.cli.check_rq",),
}
_OTHER_SYSTEMS = {"Darwin": "macOS"}  # as people call them
_FIRST_WSL = "-Microsoft"  # how the release of its kernel ends; the second has a Linux
_FAILED = 1


def main() -> NoReturn:
    """Become the program that this command is for."""
    system = os.uname()
    if refusal := elsewhere(system.sysname, system.release):
        print(f"rq: {refusal}", file=sys.stderr)
        sys.exit(_FAILED)
    name = os.path.basename(sys.argv[0])
    module, *words = PROGRAMS[name]
    for variable in [word for word in os.environ if word.startswith("PYTHON")]:
        del os.environ[variable]
    command = [sys.executable, "-I", "-m", module, *words, *sys.argv[1:]]
    os.execv(sys.executable, command)


def elsewhere(system: str, release: str) -> str:
    """Return why RQ cannot run on this system, and where it can; "": it runs here."""
    if system == "Linux" and not release.endswith(_FIRST_WSL):
        return ""
    name = "WSL 1" if system == "Linux" else _OTHER_SYSTEMS.get(system, system)
    return (
        f"RQ runs on Linux, and this is {name}: run it in a container "
        "(docs/guide/install.md says how), in a virtual machine, or in WSL 2"
    )
