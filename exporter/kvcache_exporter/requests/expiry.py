"""Finds misses after a pause longer than the provider keeps a prefix: neither evicted nor changed."""

from kvcache_exporter.model import RequestRecord
from kvcache_exporter.requests.formats.minimums import kept_seconds

_TTL_SECONDS = {"5m": 300.0, "30m": 1800.0, "1h": 3600.0, "12h": 43_200.0}


class Expiry:
    """Follows one prompt group: its latest request, and how long its written prefixes are kept."""

    def __init__(self) -> None:
        self._newest: float | None = None
        self._kept = 0.0

    def expired(self, record: RequestRecord) -> bool:
        """Whether the pause before this request was longer than the provider keeps a prefix.

        False if that is not known (engines evict by need), or if the record has no timestamp. Expects records
        roughly in the order of time.
        """
        at = record.timestamp
        if at is None:
            return False
        kept = max(self._kept, kept_seconds(record.provider, record.model_name))
        silent = at - self._newest if self._newest is not None else 0.0
        self._newest = at if self._newest is None else max(at, self._newest)
        for ttl, tokens in record.written_by_ttl:
            if tokens:
                self._kept = max(self._kept, _TTL_SECONDS.get(ttl, 0.0))
        return silent > kept > 0
