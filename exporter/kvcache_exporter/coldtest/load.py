"""The load: the messages of each request, which are the same for the same seed on every machine."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import NamedTuple, Protocol

import msgspec

Messages = list[dict[str, str]]
SHARED, CONVERSATION, UNIQUE, FILE = "shared", "conversation", "unique", "file"
PREFIXES = 4
"""How many system prompts the shared requests use."""
TURNS = 4
_OPEN = 3
"""Conversations in progress at the same time."""
CYCLE = 20
"""Length of a run of requests that has the mix of the whole load, as nearly as possible."""

# Each is one token, its space included, to nearly every tokenizer trained on English.
WORDS = tuple(files("kvcache_exporter.coldtest").joinpath("words.txt").read_text().split())


class Request(NamedTuple):
    """One request of a load."""

    kind: str
    messages: Messages
    after: int | None = None
    """Number of the request that must be answered first: the previous turn."""


class Load(Protocol):
    """Requests by number, from 0; built on demand, so that a long load takes no memory."""

    def __len__(self) -> int: ...
    def request(self, number: int) -> Request: ...
    def estimated_tokens(self) -> int: ...


class Shape(msgspec.Struct, frozen=True):
    """Everything that determines what is sent: two runs with the same shape send the same."""

    requests: int
    """In each measured phase."""
    warm_up: int
    concurrency: int
    max_tokens: int
    seed: int
    shared_prefix: int = 0
    """Approximate length in tokens; 0 if the prompts come from a file."""
    unique_share: float = 0.0
    prompts_sha256: str = ""

    def generated(self, stream: str) -> "GeneratedLoad":
        """`stream` is `warm-up` or `measure`: they share the prefixes and differ in everything else."""
        return GeneratedLoad(self, stream, self.warm_up if stream == "warm-up" else self.requests)


@dataclass(frozen=True)
class GeneratedLoad:
    """A mix of shared system prompts, growing conversations, and prompts that are sent only once."""

    shape: Shape
    stream: str
    count: int

    def __len__(self) -> int:
        return self.count

    def request(self, number: int) -> Request:
        kind, place = self._places[number]
        if kind == CONVERSATION:
            return self._turn(place)
        if kind == UNIQUE:
            return Request(UNIQUE, [_said("user", self._words(f"unique/{place}", self._prefix_words))])
        tail = self._words(f"tail/{place}", self._tail_words(place))
        return Request(SHARED, [_said("system", self._prefixes[place % PREFIXES]), _said("user", tail)])

    def estimated_tokens(self) -> int:
        """Prompt tokens of the whole load: one per word and four per message."""
        return sum(estimate(self.request(number).messages) for number in range(self.count))

    @property
    def _prefix_words(self) -> int:
        return self.shape.shared_prefix

    def _tail_words(self, place: int) -> int:
        """Alternates between short enough for a full hit and too long for one."""
        return max(4, self._prefix_words // (64 if place // PREFIXES % 2 else 8))

    def _turn(self, place: int) -> Request:
        """Earlier answers are generated, not the engine's, so that two runs send the same."""
        conversation = place // (_OPEN * TURNS) * _OPEN + place % _OPEN
        turn = place // _OPEN % TURNS
        messages = []
        for said in range(turn + 1):
            name = f"conversation/{conversation}/{said}"
            messages.append(_said("user", self._words(name, max(8, self._prefix_words // TURNS))))
            if said < turn:
                messages.append(_said("assistant", self._words(f"{name}/answer", self.shape.max_tokens)))
        return Request(CONVERSATION, messages, self._numbers[place - _OPEN] if turn else None)

    def _words(self, name: str, count: int) -> str:
        return _words(f"{self.shape.seed}/{self.stream}/{name}", count)

    @cached_property
    def _prefixes(self) -> list[str]:
        names = (f"{self.shape.seed}/prefix/{number}" for number in range(PREFIXES))
        return [_words(name, self._prefix_words) for name in names]

    @cached_property
    def _places(self) -> list[tuple[str, int]]:
        return list(_mixed(self.count, self.shape.unique_share))

    @cached_property
    def _numbers(self) -> list[int]:
        return [number for number, (kind, _) in enumerate(self._places) if kind == CONVERSATION]


@dataclass(frozen=True)
class FileLoad:
    """Prompts of the user's own, in their order."""

    prompts: Sequence[Messages]

    def __len__(self) -> int:
        return len(self.prompts)

    def request(self, number: int) -> Request:
        return Request(FILE, self.prompts[number])

    def estimated_tokens(self) -> int:
        return sum(map(estimate, self.prompts))


def estimate(messages: Messages) -> int:
    """Approximate tokens of a prompt: one per word, or one per six characters if that is more."""
    texts = (message["content"] for message in messages)
    return sum(4 + max(text.count(" ") + 1, len(text) // 6) for text in texts)


def _mixed(count: int, unique_share: float) -> Iterator[tuple[str, int]]:
    """Pairs of a kind and a running number within it; the kind furthest behind its share comes next."""
    shares = {
        SHARED: 0.625 * (1 - unique_share),
        CONVERSATION: 0.375 * (1 - unique_share),
        UNIQUE: unique_share,
    }
    given = dict.fromkeys(shares, 0)
    for number in range(count):
        kind = max(shares, key=lambda kind: shares[kind] * (number + 1) - given[kind])
        yield kind, given[kind]
        given[kind] += 1


def _words(seed: str, count: int) -> str:
    # A text seed goes through SHA-512, so unlike hash() it is the same in every process.
    return " ".join(random.Random(seed).choices(WORDS, k=count))  # noqa: S311 -- no secret


def _said(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}
