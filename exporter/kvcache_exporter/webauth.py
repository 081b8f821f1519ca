"""Basic authentication against bcrypt hashes, cheap for the scraper that asks every few seconds."""

import base64
import binascii
import hmac
import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Mapping

import bcrypt

HASH_PATTERN = re.compile(r"\$2[aby]\$(\d\d)\$[./A-Za-z0-9]{53}")
MAX_COST = 18
CACHE_SIZE = 256


class BasicAuth:
    """Knows the users of one web configuration file.

    `known` never hashes with bcrypt and may say None; `check` then costs tens of milliseconds, the same for
    a user who does not exist as for a wrong password.
    """

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = {name.encode(): value.encode() for name, value in users.items()}
        self._slowest = max(self._users.values(), key=_cost)
        self._key = secrets.token_bytes(32)
        self._lock = threading.Lock()
        self._accepted: OrderedDict[bytes, None] = OrderedDict()
        # Apart from the accepted, so that guessing cannot push a scraper's entry out.
        self._refused: OrderedDict[bytes, None] = OrderedDict()

    def known(self, header: str) -> bool | None:
        """Whether the Authorization header is right, or None if only `check` can tell."""
        credentials = _credentials(header)
        if credentials is None:
            return False
        digest = self._digest(*credentials)
        with self._lock:
            if digest in self._accepted:
                self._accepted.move_to_end(digest)
                return True
            return False if digest in self._refused else None

    def check(self, header: str) -> bool:
        credentials = _credentials(header)
        if credentials is None:
            return False
        user, password = credentials
        right = _matches(password, self._users.get(user, self._slowest)) and user in self._users
        self._remember(self._accepted if right else self._refused, self._digest(user, password))
        return right

    def _digest(self, user: bytes, password: bytes) -> bytes:
        expected = self._users.get(user, b"")
        parts = b"%d:%s%d:%s%s" % (len(user), user, len(password), password, expected)
        return hmac.digest(self._key, parts, "sha256")

    def _remember(self, cache: OrderedDict[bytes, None], digest: bytes) -> None:
        with self._lock:
            cache[digest] = None
            if len(cache) > CACHE_SIZE:
                cache.popitem(last=False)


def _credentials(header: str) -> tuple[bytes, bytes] | None:
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
    except (binascii.Error, ValueError):
        return None
    return (user, password) if colon else None


def _matches(password: bytes, expected: bytes) -> bool:
    try:
        # bcrypt looks at 72 bytes only; newer versions of the library raise instead of cutting.
        return bcrypt.checkpw(password[:72], expected)
    except ValueError:
        return False


def _cost(value: bytes) -> int:
    return int(value[4:6])
