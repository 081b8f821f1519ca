"""The load: which request has which messages, the same for the same seed on every machine."""

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
"""System prompts that all shared requests have among them."""
TURNS = 4
_OPEN = 3
"""Conversations that go on at the same time."""
CYCLE = 20
"""Any so many requests in a row have the same mix, as near as whole requests can."""

# Each is one token, its space included, to nearly every tokenizer trained on English.
WORDS = tuple(files("kvcache_exporter.coldtest").joinpath("words.txt").read_text().split())


class Request(NamedTuple):
    """One request of a load."""

    kind: str
    messages: Messages
    after: int | None = None
    """Number of the request that must be answered first: the turn before."""


class Load(Protocol):
    """Requests by number, from 0; made when asked for, so that a long load costs no memory."""

    def __len__(self) -> int: ...
    def request(self, number: int) -> Request: ...
    def estimated_tokens(self) -> int: ...


class Shape(msgspec.Struct, frozen=True):
    """Everything that decides what is sent: two runs of one shape send the same."""

    requests: int
    """In each measured phase."""
    warm_up: int
    concurrency: int
    max_tokens: int
    seed: int
    shared_prefix: int = 0
    """Tokens, about; 0 where the prompts come from a file."""
    unique_share: float = 0.0
    prompts_sha256: str = ""

    def generated(self, stream: str) -> "GeneratedLoad":
        """`stream` is `warm-up` or `measure`: one has other texts than the other except for the prefixes."""
        return GeneratedLoad(self, stream, self.warm_up if stream == "warm-up" else self.requests)


@dataclass(frozen=True)
class GeneratedLoad:
    """Shared system prompts, conversations whose turns grow, and prompts that nobody sends twice, mixed."""

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
        """Prompt tokens of the whole load: a token for each word, and four around each message."""
        return sum(estimate(self.request(number).messages) for number in range(self.count))

    @property
    def _prefix_words(self) -> int:
        return self.shape.shared_prefix

    def _tail_words(self, place: int) -> int:
        """Turn about so short that a full hit is possible, and so long that it is not."""
        return max(4, self._prefix_words // (64 if place // PREFIXES % 2 else 8))

    def _turn(self, place: int) -> Request:
        """Answers in it are made up, not the engine's: else no two runs would send the same."""
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
    """Tokens of a prompt, about: one for each word, one for each four characters of long words."""
    texts = (message["content"] for message in messages)
    return sum(4 + max(text.count(" ") + 1, len(text) // 6) for text in texts)


def _mixed(count: int, unique_share: float) -> Iterator[tuple[str, int]]:
    """Kind and its own running number: always the kind that lags furthest behind its share."""
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
    # A seed that is text goes through SHA-512, not through the process' hash.
    return " ".join(random.Random(seed).choices(WORDS, k=count))  # noqa: S311 -- no secret


def _said(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}
