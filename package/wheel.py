"""A wheel, the sdist that it is built from, and the versions that RQ is tested with."""

import shutil
import subprocess
import sys
from pathlib import Path

import pins
import staging


def build(place: Path, into: Path) -> list[Path]:
    """Build all into a directory; return them."""
    tree = staging.stage(place)
    made = place / "made"
    # The packages that build it are pinned and here: none is fetched.
    command = [sys.executable, "-I", "-m", "build", "--no-isolation"]
    subprocess.run([*command, "--outdir", made, tree], check=True, stdout=sys.stderr)
    (made / "constraints.txt").write_text(constraints())
    # dist/ may lie on another disk than what is made on the way.
    return [
        Path(shutil.move(path, into / path.name)) for path in sorted(made.iterdir())
    ]


def constraints() -> str:
    """Return what requirements.lock pins as pip takes it beside a wheel: with the hash of
    one package it would want those of all, also of the wheel."""
    lock = (staging.CHECKOUT / pins.NAME).read_text()
    wanted = {*pins.recorded(lock)}
    return "\n".join(map(pins.without_hashes, pins.pins(lock, wanted))) + "\n"
