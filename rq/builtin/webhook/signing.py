"""Secrets and signatures as Standard Webhooks have them (v1: HMAC-SHA256)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable

from rq.errors import BadConfig

PREFIX = "whsec_"
_LEAST, _MOST = 24, 64  # bytes of a key


def key(secret: str) -> bytes:
    """Return the key in a secret `whsec_BASE64`; BadConfig when it is none."""
    try:
        data = base64.b64decode(secret.strip().removeprefix(PREFIX), validate=True)
    except binascii.Error:
        data = b""
    if not secret.strip().startswith(PREFIX) or not _LEAST <= len(data) <= _MOST:
        raise BadConfig(
            f"a webhook secret is {PREFIX} followed by the base64 of {_LEAST} to {_MOST} "
            "bytes"
        )
    return data


def secret_of(random: bytes) -> str:
    """Return random bytes as a secret."""
    return PREFIX + base64.b64encode(random).decode()


def headers(
    webhook_id: str, timestamp: int, body: bytes, secrets: Iterable[str]
) -> dict[str, str]:
    """Return the headers that let the receiver know who sent `body`, and when."""
    signed = f"{webhook_id}.{timestamp}.".encode() + body
    signatures = [_signature(key(secret), signed) for secret in secrets]
    return {
        "webhook-id": webhook_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(signatures),
    }


def _signature(key: bytes, signed: bytes) -> str:
    digest = hmac.new(key, signed, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(digest).decode()}"
