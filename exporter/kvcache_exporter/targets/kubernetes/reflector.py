"""Keeps a store in sync with a collection of the API server: one list, then a watch from its version on.

lightkube reads kubeconfigs and authenticates. Its own watch does not list again after 410, does not request
bookmarks, and splits events at every Unicode line end, some of which may occur in annotations.
"""

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable

import httpx2
import msgspec

from kvcache_exporter.targets.base import DiscoveryError
from kvcache_exporter.targets.kubernetes.objects import ObjectList, Status, Versioned, WatchEvent
from kvcache_exporter.targets.kubernetes.session import (
    ANSWER_SECONDS,
    Collection,
    RequestError,
    check_status,
    explained,
    keep_alive,
    open_client,
    refusal,
)
from kvcache_exporter.targets.kubernetes.store import Entry, Key, Store

log = logging.getLogger(__name__)

PAGE_LIMIT = 500
_WATCH_SECONDS = (300, 600)
_MAX_LINE_BYTES = 16 << 20
_QUICK_SECONDS = 1.0
"""Seconds; a watch that ends sooner is not repeated at once."""
_PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
_PAUSES_WHEN_GONE = (0.0, *_PAUSES)
_CALM_SECONDS = 30.0
_RESUMABLE = ("timeout", "connection", "truncated", "throttled", "http_status", "credentials", "forbidden")


class Pauses:
    """Increasing pauses between retries, reset after half a minute without a failure.

    Load balancers cut connections after a minute: each such cut should only cost a moment.
    """

    def __init__(self, seconds: tuple[float, ...]) -> None:
        self._seconds = seconds
        self._number = 0
        self._ends = float("-inf")

    def next(self) -> float:
        now = time.monotonic()
        if now - self._ends > _CALM_SECONDS:
            self._number = 0
        pause = self._seconds[min(self._number, len(self._seconds) - 1)]
        pause *= random.uniform(0.8, 1.2)  # noqa: S311 - spreads requests, hides nothing
        self._ends, self._number = now + pause, self._number + 1
        return pause


class Reflector:
    """Follows one collection; `run` ends only when cancelled."""

    def __init__(
        self,
        collection: Collection,
        store: Store,
        kubeconfig: str | None,
        *,
        failed: Callable[[DiscoveryError, str], None],
        listed: Callable[[], None],
    ) -> None:
        """`failed` takes the error and the problem before it; `listed` is called after every list."""
        self.problem = ""
        """The current problem, "" if there is none."""
        self._collection = collection
        self._store = store
        self._kubeconfig = kubeconfig
        self._failed = failed
        self._listed = listed
        self._version = ""
        """Resource version to watch from; "" to list first."""
        self._in_row = 0
        self._pauses = Pauses(_PAUSES)
        self._pauses_when_gone = Pauses(_PAUSES_WHEN_GONE)

    async def run(self) -> None:
        while True:
            try:
                # A new client for each watch, as tokens are rotated while it runs.
                async with open_client(self._kubeconfig) as client:
                    await self._follow(client)
            except Exception as error:
                explanation = explained(error, self._collection)
                if explanation.reason == "internal":
                    log.exception("discovery: unexpected fault; please report it")
                await asyncio.sleep(self._pause(explanation))

    async def _follow(self, client: httpx2.AsyncClient) -> None:
        """List if needed, and watch until the server ends the watch as requested."""
        if not self._version:
            await self._list(client)
        began = time.monotonic()
        await self._watch(client)
        if time.monotonic() - began < _QUICK_SECONDS:
            await asyncio.sleep(self._pauses.next())

    def _pause(self, error: DiscoveryError) -> float:
        """Record the failure; returns the seconds to wait before the next try."""
        if isinstance(error, RequestError) and error.is_gone:
            # Part of the protocol: the server keeps a short history.
            log.info("discovery: %s: listing again", self._collection)
            self._version = ""
            return self._pauses_when_gone.next()
        before, self.problem = self.problem, str(error)
        self._failed(error, before)
        self._in_row += 1
        # A first cut connection is resumed; after a second failure or an unknown one, list again.
        if self._in_row > 1 or error.reason not in _RESUMABLE:
            self._version = ""
        asked = error.retry_after if isinstance(error, RequestError) else 0.0
        return max(asked, self._pauses.next())

    async def _list(self, client: httpx2.AsyncClient) -> None:
        try:
            entries, version = await self._pages(client, str(PAGE_LIMIT))
        except RequestError as error:
            if not error.is_gone:
                raise
            # Paging took longer than the server keeps a version: list everything at once.
            entries, version = await self._pages(client, "")
        self._store.replace(entries)
        self._version = version
        self._listed()

    async def _pages(self, client: httpx2.AsyncClient, limit: str) -> tuple[dict[Key, Entry], str]:
        parameters = self._collection.parameters | ({"limit": limit} if limit else {})
        entries: dict[Key, Entry] = {}
        while True:
            async with asyncio.timeout(2 * ANSWER_SECONDS):
                response = await client.get(self._collection.path, params=parameters)
            check_status(response, "list", self._collection)
            page = msgspec.json.decode(response.content, type=ObjectList)
            # Page by page, so that only one is in memory.
            entries |= self._store.read(page.items or ())
            if not page.metadata.continue_:
                return entries, page.metadata.resource_version
            parameters["continue"] = page.metadata.continue_

    async def _watch(self, client: httpx2.AsyncClient) -> None:
        seconds = random.randint(*_WATCH_SECONDS)  # noqa: S311 - as above
        parameters = self._collection.parameters | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(seconds),
        }
        stream = client.stream(
            "GET", self._collection.path, params=parameters, timeout=httpx2.Timeout(ANSWER_SECONDS, read=None)
        )
        async with asyncio.timeout(seconds + ANSWER_SECONDS), stream as response:
            check_status(response, "watch", self._collection)
            keep_alive(response)
            # Not sooner: if only `list` is allowed, the same problem would be reported as new each time.
            self.problem, self._in_row = "", 0
            async for line in split_lines(response.aiter_bytes()):
                self._take(msgspec.json.decode(line, type=WatchEvent))

    def _take(self, event: WatchEvent) -> None:
        if event.type == "ERROR":
            # Resuming at this version may fail for ever, although every watch starts well.
            self._version = ""
            raise refusal(msgspec.json.decode(event.object, type=Status).code, "watch", self._collection)
        version = msgspec.json.decode(event.object, type=Versioned).metadata.resource_version
        if event.type in ("ADDED", "MODIFIED"):
            self._store.put(event.object)
        elif event.type == "DELETED":
            self._store.drop(event.object)
        elif event.type != "BOOKMARK":
            raise RequestError(f'{self._collection}: unknown kind of event "{event.type[:40]}"', "invalid")
        self._version = version


async def split_lines(chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Lines without their line end; raises RequestError for an incomplete one."""
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > _MAX_LINE_BYTES:
            raise RequestError(f"an event is larger than {_MAX_LINE_BYTES} bytes", "invalid")
        for line in lines:
            if line.strip():
                yield line
    if rest.strip():
        raise RequestError("the watch ended in the middle of an event", "truncated")
