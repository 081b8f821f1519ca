"""Basic authentication with bcrypt hashes, made cheap for a scraper that comes every few seconds."""

import base64
import binascii
import hmac
import secrets
from collections.abc import Mapping

import bcrypt


class BasicAuth:
    """The users of one web configuration file.

    `known` never runs bcrypt and may return None; `check` then takes tens of milliseconds, the same for an
    unknown user as for a wrong password.
    """

    def __init__(self, users: Mapping[str, str]) -> None:
        self.hashes = users
        self._users = {name.encode(): value.encode() for name, value in users.items()}
        self._slowest = max(self._users.values(), key=lambda value: int(value[4:6]))
        self._key = secrets.token_bytes(32)
        self._accepted: dict[bytes, bytes] = {}

    def known(self, header: str) -> bool | None:
        """Whether the Authorization header is right; None if that needs `check`."""
        credentials = _credentials(header)
        if credentials is None:
            return False
        user, password = credentials
        return True if hmac.compare_digest(self._accepted.get(user, b""), self._digest(password)) else None

    def check(self, header: str) -> bool:
        user, password = _credentials(header) or (b"", b"")
        right = bcrypt.checkpw(password, self._users.get(user, self._slowest)) and user in self._users
        if right:
            self._accepted[user] = self._digest(password)
        return right

    def _digest(self, password: bytes) -> bytes:
        return hmac.digest(self._key, password, "sha256")


def _credentials(header: str) -> tuple[bytes, bytes] | None:
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
    except (binascii.Error, ValueError):
        return None
    # bcrypt uses the first 72 bytes only; newer versions of the library raise for longer passwords.
    return (user, password[:72]) if colon else None
