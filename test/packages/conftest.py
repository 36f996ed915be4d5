"""In CI the Debian and its images are made with every third commit: they take a minute."""

from __future__ import annotations

from harness import extent

if extent.FULL and 0 not in extent.share(range(3), 1, ci=3):
    collect_ignore = ["test_debian.py"]
