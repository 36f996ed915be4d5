"""A tree to build from: what the checkout holds of RQ, and what is made of it.

Never the checkout itself: builders leave files beside what they read, and one that is long
gone from the code would be in the next wheel.
"""

import shutil
from pathlib import Path

import manual

CHECKOUT = Path(__file__).resolve().parent.parent
_FILES = (
    "CHANGELOG.md",
    "LICENSE",
    "MANIFEST.in",
    "README.md",
    "pyproject.toml",
    "pyspark_rq.py",
    "requirements.lock",
)
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc", "*.egg-info")


def stage(place: Path) -> Path:
    """Make the tree below `place`; return it."""
    tree = place / "rq"
    tree.mkdir()
    for name in _FILES:
        shutil.copy2(CHECKOUT / name, tree)
    for name in ("rq", "docs", "examples"):
        shutil.copytree(CHECKOUT / name, tree / name, ignore=_LEFT_OUT)
    manual.write(tree / "share")
    return tree
