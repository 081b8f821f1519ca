"""The text that `coldtest` prints: the warm and the cold run side by side, and the verdict."""

from collections.abc import Callable, Iterator

from kvcache_exporter.coldtest.figures import RECOVERED_RATIO, Part, Phase
from kvcache_exporter.coldtest.load import CYCLE, Shape
from kvcache_exporter.coldtest.result import Result
from kvcache_exporter.model import OUTCOMES

_ROWS: tuple[tuple[str, Callable[[Phase], str]], ...] = (
    ("requests answered", lambda phase: f"{phase.requests:,}"),
    ("requests failed", lambda phase: f"{sum(phase.errors.values()):,}"),
    ("hit rate by tokens", lambda phase: _percent(phase.token_hit_ratio)),
    ("hit rate by requests", lambda phase: _percent(phase.request_hit_ratio)),
    ("TTFT p50 (s)", lambda phase: _seconds(phase.ttft_all.p50)),
    ("TTFT p95 (s)", lambda phase: _seconds(phase.ttft_all.p95)),
    ("TTFT p99 (s)", lambda phase: _seconds(phase.ttft_all.p99)),
    ("requests/s", lambda phase: _number(phase.requests_per_second)),
    ("prompt tokens/s", lambda phase: _number(phase.prompt_tokens_per_second)),
    ("lasted (s)", lambda phase: f"{phase.seconds:.1f}"),
)


def result_text(result: Result) -> Iterator[str]:
    """Lines to print."""
    engine = f" of {result.engine}" if result.engine else ""
    yield f"{result.url}, model {result.model}{engine}"
    yield shape_text(result.load)
    yield ""
    names = list(result.phases)
    yield f"{'':24}" + "".join(f"{name:>12}" for name in names)
    for label, value in _ROWS:
        yield f"{label:24}" + "".join(f"{value(result.phases[name]):>12}" for name in names)
    yield ""
    yield from _by_outcome(result)
    yield from _by_kind(result)
    yield from _errors(result)
    yield from _restart(result)
    yield from (f"note: {note}" for note in result.notes)
    yield ""
    yield from _verdict(result)


def shape_text(shape: Shape) -> str:
    """The load in one line."""
    what = (
        f"prefixes of about {shape.shared_prefix:,} tokens, {100 * shape.unique_share:.0f} % unique prompts"
        if shape.shared_prefix
        else "prompts from a file"
    )
    return f"{shape.requests:,} requests a run, {shape.concurrency} at a time, {what}, seed {shape.seed}"


def _by_outcome(result: Result) -> Iterator[str]:
    yield f"TTFT by outcome (s)       {'requests':>12}{'p50':>10}{'p95':>10}{'p99':>10}"
    for outcome in OUTCOMES:
        for name, phase in result.phases.items():
            if outcome in phase.outcomes:
                found = phase.ttft.get(outcome)
                values = (found.p50, found.p95, found.p99) if found else (None, None, None)
                cells = "".join(f"{_seconds(value):>10}" for value in values)
                yield f"  {outcome:14}{name:10}{phase.outcomes[outcome]:>12,}{cells}"
    yield ""


def _by_kind(result: Result) -> Iterator[str]:
    yield f"By kind of request        {'requests':>12}{'by tokens':>10}{'TTFT p50':>10}{'p99':>10}"
    for kind in sorted({kind for phase in result.phases.values() for kind in phase.parts}):
        for name, phase in result.phases.items():
            if kind in phase.parts:
                yield f"  {kind:14}{name:10}{_part(phase.parts[kind])}"
    yield ""


def _part(part: Part) -> str:
    ttft = "".join(f"{_seconds(value):>10}" for value in (part.ttft_all.p50, part.ttft_all.p99))
    return f"{part.requests:>12,}{_percent(part.token_hit_ratio):>10}{ttft}"


def _errors(result: Result) -> Iterator[str]:
    for name, phase in result.phases.items():
        if phase.errors:
            yield f"{name} failures: " + ", ".join(f"{n:,} x {reason}" for reason, n in phase.errors.items())


def _restart(result: Result) -> Iterator[str]:
    if result.restart_seconds is not None and not result.failure:
        yield f"restart: {result.restart_seconds:.1f} s until the engine answered"
    found = result.recovery
    if found is None:
        return
    aim = f"{100 * RECOVERED_RATIO:.0f} % of the warm hit rate ({_percent(found.target_token_hit_ratio)})"
    if found.seconds is None:
        yield f"recovery: the last {CYCLE} answers never came to {aim}"
    else:
        took = f"{found.seconds:.1f} s and {found.requests} answers"
        yield f"recovery: {took} until the last {CYCLE} came to {aim}"


def _verdict(result: Result) -> Iterator[str]:
    for check in result.checks:
        yield f"{'pass' if check.passed else 'FAIL'}: {check.what}"
    if result.interrupted:
        yield "INTERRUPTED: the figures are of what was answered until then"
    elif result.passed is None:
        yield "nothing was judged: give --objective-ttft-p99 or --max-ratio"
    else:
        yield "PASSED" if result.passed else "FAILED"


def _percent(ratio: float | None) -> str:
    return "unknown" if ratio is None else f"{100 * ratio:.1f} %"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"
