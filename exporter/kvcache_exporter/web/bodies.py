"""Reads request bodies within a size, a time, and a total size of all bodies."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from uvicorn._types import ASGIReceiveCallable

from kvcache_exporter.web.endpoints import Request

SECONDS = 20.0
"""For one whole body, however slowly it arrives."""
ALL_BYTES = 64 << 20
"""Of all bodies that are being read or processed."""


class Bodies:
    """To be used from the event loop only."""

    def __init__(self, seconds: float = SECONDS, all_bytes: int = ALL_BYTES) -> None:
        self._seconds, self._all_bytes = seconds, all_bytes
        self._held = 0

    @asynccontextmanager
    async def read(
        self, request: Request, receive: ASGIReceiveCallable, max_bytes: int
    ) -> AsyncIterator[Request]:
        """The request with its body or the body's problem; its bytes count until the context ends."""
        parts: list[bytes] = []
        try:
            problem = await self._fill(parts, request, receive, max_bytes)
            yield request._replace(body=b"" if problem else b"".join(parts), body_problem=problem)
        finally:
            self._held -= sum(map(len, parts))

    async def _fill(
        self, parts: list[bytes], request: Request, receive: ASGIReceiveCallable, max_bytes: int
    ) -> str:
        announced = request.headers.get("content-length", "")
        if announced.isdecimal() and len(announced) < 20 and int(announced) > max_bytes:
            return "too_large"
        size = 0
        try:
            async with asyncio.timeout(self._seconds):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        return "slow"  # the client went away: nobody reads the answer
                    part = message["body"]
                    parts.append(part)
                    size, self._held = size + len(part), self._held + len(part)
                    if size > max_bytes:
                        return "too_large"
                    if self._held > self._all_bytes:
                        return "busy"
                    if not message["more_body"]:
                        return ""
        except TimeoutError:
            return "slow"
