"""The result of a test in its stored form: figures by phase, recovery, and the verdict."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from kvcache_exporter.coldtest.figures import Phase, Recovery
from kvcache_exporter.coldtest.load import UNIQUE, Shape
from kvcache_exporter.errors import UsageError

VERSION = 1
MAX_ERROR_RATIO = 0.01
_FEW = 100
_FOUND_AGAIN = 0.5
_MAX_RESULT_BYTES = 1 << 24
_FLAGS = {
    "vllm": "start vLLM with --enable-prompt-tokens-details",
    "sglang": "start SGLang with --enable-cache-report",
    "": "start vLLM with --enable-prompt-tokens-details, SGLang with --enable-cache-report",
}


class Objectives(msgspec.Struct, frozen=True):
    """What the cold run must meet; null if not asked for."""

    ttft_p99: float | None = None
    """Seconds."""
    max_ratio: float | None = None
    """Cold p99 / warm p99."""


class Check(msgspec.Struct):
    """One objective and whether it was met."""

    what: str
    passed: bool


class Result(msgspec.Struct):
    """One run of the command."""

    version: int
    url: str
    model: str
    engine: str
    """`vllm`, `sglang`, or "" if the server does not say."""
    load: Shape
    objectives: Objectives
    phases: dict[str, Phase]
    """Keys are `warm` and `cold`, or one of them."""
    interrupted: bool = False
    failure: str = ""
    """Why the engine did not come back."""
    restart_seconds: float | None = None
    """From the start of the restart until the engine was ready."""
    recovery: Recovery | None = None
    passed: bool | None = None
    """Null if there was nothing to judge."""
    checks: list[Check] = []
    notes: list[str] = []


def judge(result: Result) -> None:
    """Set the verdict and the notes."""
    result.checks = list(_checks(result))
    result.passed = all(check.passed for check in result.checks) if result.checks else None
    result.notes = list(_notes(result))


def _checks(result: Result) -> Iterator[Check]:
    if result.failure:
        yield Check(result.failure, passed=False)
    cold, warm, wanted = result.phases.get("cold"), result.phases.get("warm"), result.objectives
    for name, phase in result.phases.items():
        if phase.error_ratio > MAX_ERROR_RATIO:
            yield Check(
                f"{name}: {100 * phase.error_ratio:.1f} % of requests failed, at most 1 %", passed=False
            )
    if result.interrupted or cold is None:
        return
    p99 = cold.ttft_all.p99
    if wanted.ttft_p99 is not None:
        shown = "unknown, no reply had text" if p99 is None else f"{p99:.3f} s"
        fine = p99 is not None and p99 <= wanted.ttft_p99
        yield Check(f"cold TTFT p99 {shown}, objective {wanted.ttft_p99:g} s", fine)
    if wanted.max_ratio is not None:
        before = warm.ttft_all.p99 if warm else None
        ratio = p99 / before if p99 is not None and before else None
        shown = "unknown" if ratio is None else f"{ratio:.2f}"
        fine = ratio is not None and ratio <= wanted.max_ratio
        yield Check(f"cold / warm TTFT p99 {shown}, at most {wanted.max_ratio:g}", fine)


def _notes(result: Result) -> Iterator[str]:
    for name, phase in result.phases.items():
        if unknown := phase.outcomes.get("unknown"):
            flag = _FLAGS.get(result.engine, _FLAGS[""])
            yield f"{name}: {unknown} replies do not say what was cached, so no hit rate counts them: {flag}"
        if 0 < phase.ttft_all.n < _FEW:
            yield f"{name}: of {phase.ttft_all.n} requests the p99 is the slowest; more say more"
        if phase.not_sent:
            yield f"{name}: {phase.not_sent} requests were not sent or not awaited; the two runs differ"
        if phase.parts and (silent := phase.requests - phase.ttft_all.n):
            yield f"{name}: {silent} replies had no text, so no TTFT"
    cold = result.phases.get("cold")
    unique = cold.parts.get(UNIQUE) if cold and "warm" in result.phases else None
    if unique and (unique.token_hit_ratio or 0.0) > _FOUND_AGAIN:
        yield (
            "cold: prompts that only the warm run had sent were found in the cache: it was not emptied, "
            "or a tier outlived the restart"
        )


def encoded(result: Result) -> str:
    return msgspec.json.format(msgspec.json.encode(result), indent=2).decode()


def read_result(path: Path) -> Result:
    """A stored result with a warm phase; raises UsageError."""
    wrong = f"--against {path}: expected the --json output of a run that had a warm phase"
    if path.stat().st_size > _MAX_RESULT_BYTES:
        raise UsageError(wrong)
    try:
        result = msgspec.json.decode(path.read_bytes(), type=Result)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{wrong}: {error}") from None
    if result.version != VERSION or "warm" not in result.phases:
        raise UsageError(wrong)
    return result
