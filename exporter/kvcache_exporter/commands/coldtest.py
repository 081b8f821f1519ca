"""`coldtest`: drives a test endpoint before and after a restart and judges the cold run."""

import argparse
import sys

from kvcache_exporter.coldtest.drive import Pace
from kvcache_exporter.coldtest.endpoint import Endpoint, Model, choose_model
from kvcache_exporter.coldtest.figures import Counting, absent_is_zero, phase_figures, recovery
from kvcache_exporter.coldtest.restart import await_ready, run_command
from kvcache_exporter.coldtest.result import VERSION, Objectives, Result, encoded, judge
from kvcache_exporter.coldtest.sequence import COLD, WARM, WARM_UP, Sequence
from kvcache_exporter.commands.arguments import Subparsers
from kvcache_exporter.commands.coldtest_arguments import add_arguments
from kvcache_exporter.commands.coldtest_plan import Plan, make_plan
from kvcache_exporter.commands.coldtest_text import result_text, shape_text
from kvcache_exporter.commands.progress import Progress
from kvcache_exporter.errors import UsageError
from kvcache_exporter.requests.formats.minimums import provider_caching

_ENGINES = ("vllm", "sglang")


def add(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "coldtest",
        help="measure what a restart of an engine costs its users",
        epilog="Example: kvcache-exporter coldtest --url http://127.0.0.1:8000 --shared-prefix 1000",
        description="Sends a bounded load to a TEST endpoint (OpenAI-compatible chat completions), has it "
        "restarted, sends the same load again, and compares how long users of the cold replica would wait. "
        "It announces what it will send and asks first. Exit codes: 0 passed, 1 failed, 2 bad usage. See "
        "docs/coldtest.md.",
    )
    add_arguments(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask before sending")
    parser.add_argument(
        "--json", action="store_true", help="print the result as one JSON object, which --against reads"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    endpoint = Endpoint.at(arguments.url, arguments.api_key_file, plain_http=arguments.allow_plain_http)
    plan = make_plan(arguments)
    _refuse_unasked(arguments, plan)
    model = choose_model(endpoint, arguments.model or (plan.before.model if plan.before else ""))
    _say(_announcement(endpoint, model, plan, arguments))
    if not arguments.yes and not _agreed():
        _say("nothing was sent")
        return 2
    pace = Pace(
        model.id, plan.shape.concurrency, plan.shape.max_tokens, arguments.duration, arguments.timeout
    )
    sequence = Sequence(
        endpoint,
        pace,
        plan.loads,
        lambda: _restart(arguments, endpoint),
        lambda n: Progress(n, "requests", 1),
    )
    sequence.run(plan.phases)
    result = _result(endpoint, model, plan, sequence, arguments)
    print(encoded(result) if arguments.json else "\n".join(result_text(result)))
    return 130 if result.interrupted else int(result.passed is False)


def _refuse_unasked(arguments: argparse.Namespace, plan: Plan) -> None:
    if sys.stdin.isatty():
        return
    if not arguments.yes:
        raise UsageError("cannot ask: standard input is not a terminal; give --yes to send without asking")
    if WARM in plan.phases and COLD in plan.phases and not arguments.restart_command:
        instead = "give --restart-command, or make two runs: --warm-only --json, then --against"
        raise UsageError(f"cannot ask for the restart: standard input is not a terminal; {instead}")


def _announcement(endpoint: Endpoint, model: Model, plan: Plan, arguments: argparse.Namespace) -> str:
    tokens = sum(plan.loads.of(phase).estimated_tokens() for phase in plan.phases)
    counts = ", ".join(f"{phase} {len(plan.loads.of(phase)):,}" for phase in plan.phases)
    lines = [
        f"To {endpoint.url}, model {model.id}: a test endpoint, not one that serves users?",
        f"  {plan.sent:,} requests ({counts}), {plan.shape.concurrency} at a time",
        f"  about {tokens:,} prompt tokens, at most {plan.sent * plan.shape.max_tokens:,} output tokens",
        f"  {shape_text(plan.shape)}",
        f"  at most {arguments.duration:g} s of sending in each phase",
    ]
    if arguments.restart_command:
        lines.append(f"  restart by: {arguments.restart_command}")
    return "\n".join(lines)


def _agreed() -> bool:
    return _asked("Send this? [y/N] ").strip().lower() in {"y", "yes"}


def _asked(question: str) -> str:
    print(question, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _restart(arguments: argparse.Namespace, endpoint: Endpoint) -> None:
    if arguments.restart_command:
        _say(f"restarting: {arguments.restart_command}")
        run_command(arguments.restart_command, arguments.ready_timeout)
    else:
        _asked("Restart the engine now; once the old process is gone, press Enter. ")
    _say("waiting for the engine")
    await_ready(endpoint, arguments.ready_timeout)


def _result(
    endpoint: Endpoint, model: Model, plan: Plan, sequence: Sequence, arguments: argparse.Namespace
) -> Result:
    engine = model.owned_by if model.owned_by in _ENGINES else ""
    caching = provider_caching(engine)
    granule = arguments.granule or caching.granule
    minimum = granule if caching.minimum_tokens else 0
    counting = Counting(granule, minimum, absent_is_zero(sequence.runs.values()))
    phases = {WARM: plan.before.phases[WARM]} if plan.before else {}
    phases |= {
        name: phase_figures(found, counting) for name, found in sequence.runs.items() if name != WARM_UP
    }
    result = Result(
        VERSION, endpoint.url, model.id, engine, plan.shape,
        Objectives(arguments.objective_ttft_p99, arguments.max_ratio), phases,
        interrupted=sequence.interrupted,
        failure=sequence.failure, restart_seconds=sequence.restart_seconds,
    )  # fmt: skip
    if COLD in sequence.runs and WARM in phases:
        result.recovery = recovery(sequence.runs[COLD], counting, phases[WARM].token_hit_ratio)
    judge(result)
    return result
