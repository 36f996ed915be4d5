"""A wheel, and the sdist that it is built from."""

import subprocess
import sys
from pathlib import Path

import staging


def build(place: Path, into: Path) -> list[Path]:
    """Build both into a directory; return them."""
    tree = staging.stage(place)
    made = place / "made"
    # The packages that build it are pinned and here: none is fetched.
    command = [sys.executable, "-I", "-m", "build", "--no-isolation"]
    subprocess.run([*command, "--outdir", made, tree], check=True, stdout=sys.stderr)
    return [path.rename(into / path.name) for path in sorted(made.iterdir())]
