"""TLS of the links between nodes: it hides what they say. Who a node is, the secret proves,
and the proof holds for the certificate of this very connection: a program between two
nodes has another one, and fails."""

from __future__ import annotations

import hashlib
import re
import ssl
from pathlib import Path

from rq.access.tls import Certificate

_FIRST = re.compile(
    r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL
)


class Channel:
    """How connections are made and taken over TLS."""

    def __init__(self, cert: Path, key: Path) -> None:
        """BadConfig: they are no pair that can be used."""
        self._cert = cert
        self._certificate = Certificate(cert, key, whose="the bus", speaks=())
        self._context = self._certificate.context()
        self._print = self._printed()
        self.client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.client.minimum_version = ssl.TLSVersion.TLSv1_2
        self.client.check_hostname = False
        self.client.verify_mode = ssl.CERT_NONE  # the proof names the certificate

    def server(self) -> tuple[ssl.SSLContext, bytes]:
        """Return what the next connection is taken with, and the fingerprint of its
        certificate: that of a file that has changed, once it is taken."""
        context = self._certificate.context()
        if context is not self._context:
            self._context, self._print = context, self._printed()
        return self._context, self._print

    def _printed(self) -> bytes:
        """Return the fingerprint of the first certificate in the file, which is the one
        that is shown. One that changes meanwhile is looked at again in a moment."""
        match = _FIRST.search(self._cert.read_text(errors="replace"))
        return b"" if match is None else fingerprint(ssl.PEM_cert_to_DER_cert(match[0]))


def fingerprint(certificate: bytes) -> bytes:
    """Return what stands for a certificate (DER) in a proof."""
    return hashlib.sha256(certificate).digest()
