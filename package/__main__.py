"""Build what RQ is installed from: a wheel with its sdist, a Debian package.

    ./bin/package wheel     dist/rq_spool-VERSION-py3-none-any.whl, .tar.gz, constraints.txt
    ./bin/package deb       dist/rq_VERSION_ARCH.deb, for the Debian that builds it
    ./bin/package manual    dist/share/: man pages and completion alone

A last word names another directory than dist/. Nothing is published anywhere.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "bin"))  # pins.py

import deb
import manual
import staging
import wheel


def main() -> int:
    options = parse()
    options.directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="rq-package-") as place:
        for path in BUILDERS[options.what](Path(place), options.directory.resolve()):
            print(path)
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="package",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=BUILDERS)
    parser.add_argument(
        "directory", nargs="?", type=Path, default=staging.CHECKOUT / "dist"
    )
    return parser.parse_args()


def only_manual(_place: Path, into: Path) -> list[Path]:
    return manual.write(into / "share")


BUILDERS: Mapping[str, Callable[[Path, Path], list[Path]]] = {
    "wheel": wheel.build,
    "deb": deb.build,
    "manual": only_manual,
}

if __name__ == "__main__":
    sys.exit(main())
