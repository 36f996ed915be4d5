"""Libraries of C that tests load before libc."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def compiled(source: Path, directory: Path) -> Path:
    """Make a library of a C file, in a directory; return its path."""
    missing = "apt-get install gcc libc6-dev"
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip(f"no C compiler -> {missing}")
    library = directory / source.with_suffix(".so").name
    flags = ["-shared", "-fPIC", "-O1"]
    words = [compiler, *flags, "-o", library, source, "-ldl"]
    built = subprocess.run(words, capture_output=True, text=True, check=False)
    if built.returncode:
        pytest.skip(f"{source.name} cannot be compiled -> {missing}")
    return library
