"""Plans a `coldtest` from its arguments: the load, the phases, and the stored run to compare with."""

import argparse
import secrets
from typing import NamedTuple, TypeVar

from kvcache_exporter.coldtest.load import CYCLE, FileLoad, Messages, Shape
from kvcache_exporter.coldtest.prompts import read_prompts
from kvcache_exporter.coldtest.result import Result, read_result
from kvcache_exporter.coldtest.sequence import COLD, WARM, WARM_UP, Loads
from kvcache_exporter.commands.coldtest_arguments import MAX_REQUESTS
from kvcache_exporter.errors import UsageError

_DEFAULTS = {"requests": 200, "concurrency": 4, "max_tokens": 16}
_UNIQUE_SHARE = 0.2
T = TypeVar("T")


class Plan(NamedTuple):
    """What is going to be sent, in which phases."""

    shape: Shape
    loads: Loads
    phases: tuple[str, ...]
    before: Result | None
    """The stored run to judge against."""

    @property
    def sent(self) -> int:
        return sum(len(self.loads.of(phase)) for phase in self.phases)


def make_plan(arguments: argparse.Namespace) -> Plan:
    """Raises UsageError for arguments that contradict each other, the stored run or the limits."""
    before = read_result(arguments.against) if arguments.against else None
    prompts, digest = read_prompts(arguments.prompts) if arguments.prompts else ([], "")
    shape = _same_shape(before.load, digest, arguments) if before else _new_shape(prompts, digest, arguments)
    if before or arguments.cold_only:
        phases: tuple[str, ...] = (COLD,)
    else:
        phases = (WARM_UP, WARM) if arguments.warm_only else (WARM_UP, WARM, COLD)
    if prompts:
        end = shape.warm_up + shape.requests
        loads = Loads(FileLoad(prompts[: shape.warm_up]), FileLoad(prompts[shape.warm_up : end]))
    else:
        loads = Loads(shape.generated(WARM_UP), shape.generated("measure"))
    plan = Plan(shape, loads, phases, before)
    if plan.sent > MAX_REQUESTS:
        raise UsageError(f"--requests {shape.requests}: {plan.sent:,} in all, at most {MAX_REQUESTS:,}")
    return plan


def _new_shape(prompts: list[Messages], digest: str, arguments: argparse.Namespace) -> Shape:
    if not prompts and not arguments.shared_prefix:
        raise UsageError("no load: give --prompts FILE, or --shared-prefix N for a generated one")
    requests = _given(arguments.requests, _DEFAULTS["requests"])
    warm_up = max(CYCLE, requests // 4)
    if prompts:
        # The warm-up must not send what is measured: that would be a cache warmed by the test itself.
        warm_up = len(prompts) // 5
        most = len(prompts) - warm_up
        if arguments.requests and arguments.requests > most:
            raise UsageError(
                f"--requests {arguments.requests}: without the warm-up the file has {most} prompts"
            )
        requests = _given(arguments.requests, most)
    return Shape(
        requests=requests,
        warm_up=warm_up,
        concurrency=_given(arguments.concurrency, _DEFAULTS["concurrency"]),
        max_tokens=_given(arguments.max_tokens, _DEFAULTS["max_tokens"]),
        seed=_given(arguments.seed, secrets.randbelow(1_000_000)),
        shared_prefix=_given(arguments.shared_prefix, 0),
        unique_share=0.0 if prompts else _given(arguments.unique_share, _UNIQUE_SHARE),
        prompts_sha256=digest,
    )


def _same_shape(shape: Shape, digest: str, arguments: argparse.Namespace) -> Shape:
    for name in (*_DEFAULTS, "unique_share", "seed", "shared_prefix"):
        stored, given = getattr(shape, name), getattr(arguments, name)
        if given not in (None, stored):
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} {given}: --against has {stored}; leave it out to send the same")
    if digest != shape.prompts_sha256:
        wanted = "the file of prompts that the run of --against had" if shape.prompts_sha256 else "no file"
        raise UsageError(f"--prompts: expected {wanted}")
    return shape


def _given(value: T | None, default: T) -> T:
    return default if value is None else value
