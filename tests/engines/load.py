"""Requests as a client sends them, and what it sees of each: usage, and the time of the first token."""

import json
import random
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import requests

from engines.server import BLOCK, MODEL
from engines.tiny_model import VOCABULARY
from kvcache_exporter.model import Outcome


class Seen(NamedTuple):
    """One request by the client's own clock and the reply's usage."""

    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    ttft: float
    duration: float

    @property
    def outcome(self) -> Outcome:
        """The documented rule, written out once more."""
        computed = self.prompt_tokens - self.cached_tokens
        if self.cached_tokens == 0:
            return "miss" if self.prompt_tokens > BLOCK else "uncacheable"
        return "full" if computed <= max(BLOCK, 0.05 * self.prompt_tokens) else "partial"


def words(chance: random.Random, count: int) -> list[int]:
    return [chance.randrange(4, VOCABULARY) for _ in range(count)]


def prompts() -> list[list[int]]:
    """Shared prefixes with tails of their own, exact repeats, unique and very short prompts."""
    chance = random.Random(11)
    prefixes = [words(chance, 1000), words(chance, 700)]
    made: list[list[int]] = []
    for number in range(64):
        kind = number % 8
        if kind < 3:
            made.append(prefixes[number % 2] + words(chance, chance.randint(60, 200)))
        elif kind == 3:
            made.append(prefixes[number % 2] + words(chance, chance.randint(2, 20)))
        elif kind == 4 and number > 8:
            made.append(made[number - 8])
        elif kind == 5:
            made.append(words(chance, chance.randint(4, BLOCK)))
        else:
            made.append(words(chance, chance.randint(200, 1200)))
    return made


def ask(address: str, prompt: Sequence[int], *, output: int = 8, **more: Any) -> Seen:
    """One streamed completion."""
    body = {
        "model": MODEL,
        "prompt": prompt,
        "max_tokens": output,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
        **more,
    }
    begin, first, usage = time.perf_counter(), 0.0, None
    with requests.post(f"http://{address}/v1/completions", json=body, stream=True, timeout=120) as reply:
        reply.raise_for_status()
        for data in _events(reply.iter_lines()):
            if data["choices"] and not first:
                first = time.perf_counter() - begin
            usage = data.get("usage") or usage
    if usage is None:
        raise AssertionError("vLLM sent no usage at the end of its stream")
    # Up to 0.23 a miss has no details at all.
    details = usage.get("prompt_tokens_details") or {}
    cached = details.get("cached_tokens") or 0
    whole = time.perf_counter() - begin
    return Seen(usage["prompt_tokens"], cached, usage["completion_tokens"], first, whole)


def ask_all(
    address: str, wanted: Iterable[Sequence[int]], *, parallel: int = 3, output: int = 8
) -> list[Seen]:
    with ThreadPoolExecutor(parallel) as pool:
        return list(pool.map(lambda prompt: ask(address, prompt, output=output), wanted))


def leave_after_first_token(address: str, prompt: Sequence[int]) -> None:
    """A client that goes away."""
    body = {"model": MODEL, "prompt": prompt, "max_tokens": 400, "ignore_eos": True, "stream": True}
    with requests.post(f"http://{address}/v1/completions", json=body, stream=True, timeout=120) as reply:
        next(iter(_events(reply.iter_lines())))


def _events(lines: Iterable[bytes]) -> Iterable[dict[str, Any]]:
    for line in lines:
        if line.startswith(b"data: {"):
            yield json.loads(line.removeprefix(b"data: "))
