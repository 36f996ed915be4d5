"""Certificates that sign themselves, by the program openssl."""

from __future__ import annotations

import subprocess
from pathlib import Path


def certify(path: Path, serial: int, *words: str) -> dict[str, str]:
    """Write a certificate and its key, each by a rename; return the setting."""
    new = ("openssl", "req", "-x509", "-newkey", "ec", "-days", "2", "-subj", "/CN=rq")
    curve = ("-pkeyopt", "ec_paramgen_curve:prime256v1", "-set_serial", str(serial))
    names = ("-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost")
    out = ("-keyout", str(path / "new.key"), "-out", str(path / "new.pem"))
    subprocess.run(
        [*new, *curve, *names, *out, *(words or ("-nodes",))],
        check=True,
        capture_output=True,
    )
    (path / "new.pem").rename(path / "cert.pem")
    (path / "new.key").rename(path / "key.pem")
    return {"cert": str(path / "cert.pem"), "key": str(path / "key.pem")}
