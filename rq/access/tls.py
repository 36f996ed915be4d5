"""The certificate of a server, taken anew when its files change."""

from __future__ import annotations

import logging
import os
import ssl
import stat
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rq import config
from rq.errors import BadConfig, CannotRead, is_busy

LOOK = 3.0  # seconds between two looks at the files, at least

log = logging.getLogger(__name__)

Stamps = tuple[config.Stamp | None, ...]


HTTP = ("http/1.1",)  # what the web speaks


class Certificate:
    """A certificate and its key, in two PEM files."""

    def __init__(
        self,
        cert: Path,
        key: Path,
        *,
        whose: str = "the web",
        speaks: Sequence[str] = HTTP,
        clients: Path | None = None,
    ) -> None:
        """`whose` it is, for the log; `clients`: who signs certificates of clients, which
        they have to show then."""
        self._cert = cert
        self._key = key
        self._whose = whose
        self._speaks = speaks
        self._clients = clients
        self._seen = self._stamps()
        self._context = self._load()
        self._look_at = 0.0

    def _load(self) -> ssl.SSLContext:
        context = load(self._cert, self._key)
        if self._speaks:
            context.set_alpn_protocols(list(self._speaks))
        if self._clients is not None:
            trust(context, self._clients)
        return context

    def context(self) -> ssl.SSLContext:
        """Return what the next connection is to use.

        Files that changed are loaded into a context of their own, so that a pair that is
        half written or wrong never takes the place of the one that serves.
        """
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + LOOK
            stamps = self._stamps()
            if stamps != self._seen:
                self._renew(stamps)
        return self._context

    def _renew(self, stamps: Stamps) -> None:
        try:
            renewed = self._load()
        except BadConfig as error:
            log.warning(
                "%s goes on with the certificate it has: %s", self._whose, error
            )
            if not isinstance(error, CannotRead):  # else the next look tries again
                self._seen = stamps
            return
        self._seen = stamps
        self._context = renewed
        log.warning("%s takes the new certificate %s", self._whose, self._cert)

    def _stamps(self) -> Stamps:
        files = (self._cert, self._key, self._clients)
        return tuple(None if file is None else config.stamp(file) for file in files)


def of(setting: Mapping[str, str], root: Path) -> Certificate | None:
    """Return the certificate of the setting `tls`; BadConfig says why it cannot be."""
    if not setting:
        return None
    return Certificate(root / setting["cert"], root / setting["key"])


def load(cert: Path, key: Path) -> ssl.SSLContext:
    """Return a context that serves TLS 1.2 and later; BadConfig in one sentence."""
    _check_file("cert", cert)
    if _check_file("key", key) & 0o007:
        raise BadConfig(
            f"tls: key {key} can be used by every user of this machine: chmod 600 it"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= (
        ssl.OP_NO_RENEGOTIATION
    )  # it costs the server more than the client
    try:
        context.load_cert_chain(cert, key, lambda: _refuse_password(key))
    except (ssl.SSLError, ValueError) as error:
        why = getattr(error, "reason", None) or "it holds no PEM"
        raise BadConfig(
            f"tls: cert {cert} and key {key} do not make a pair: "
            f"{str(why).lower().replace('_', ' ')}"
        ) from None
    except OSError as error:
        raise _kind(error)(f"tls: {cert} or {key}: {error.strerror}") from None
    return context


def trust(context: ssl.SSLContext, clients: Path) -> None:
    """Let in whoever shows a certificate that these have signed; BadConfig says why they
    cannot be read."""
    _check_file("clients", clients)
    try:
        context.load_verify_locations(clients)
    except (ssl.SSLError, ValueError):
        raise BadConfig(f"tls: clients {clients} holds no certificates") from None
    context.verify_mode = ssl.CERT_REQUIRED


def _check_file(name: str, path: Path) -> int:
    """Return the mode of a file that we can read."""
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise BadConfig(f"tls: {name} {path} is not a regular file")
        with path.open("rb"):
            return mode
    except OSError as error:
        raise _kind(error)(
            f"tls: {name} {path} cannot be read by user {os.getuid()}: {error.strerror}"
        ) from None


def _kind(error: OSError) -> type[BadConfig]:
    """Return what a file that cannot be read is: wrong, or only not known for now."""
    return CannotRead if is_busy(error) else BadConfig


def _refuse_password(key: Path) -> str:
    """OpenSSL would ask the terminal."""
    raise BadConfig(
        f"tls: key {key} is encrypted and nobody is there to say its password: "
        "decrypt it with `openssl pkey`"
    )
