"""`python -m soak`: faults at random for hours, then every line, token and event is accounted for."""

import argparse
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from processes import free_port, wait_until

from event_publisher import Publisher
from soak.engine import SoakEngine
from soak.exporter import Exporter
from soak.faults import Disk, Faults, may_mount
from soak.logs import LogWriter
from soak.watcher import Watcher, total

_SOURCES = ("gateway", "app", "batch")
_ENGINES = 3
_MIB = 1 << 20
_MOST_RESIDENT = 300 * _MIB
_MOST_GROWTH = 24 * _MIB
"""Of the last quarter of the run, in which the exporter is not restarted."""
_DRAIN_SECONDS = 120.0


class Soak:
    def __init__(self, folder: Path, seed: int) -> None:
        self._chance = random.Random(seed)
        self._disk = Disk(folder / "state")
        self._exporter = Exporter(folder, free_port())
        self._engines = [SoakEngine(seed + number) for number in range(_ENGINES)]
        self._events_port = free_port()
        self._publisher = Publisher(self._events_port)
        self._watcher = Watcher(self._exporter.port, self._wrong_targets, self._exporter.resident_bytes)
        self._writers = [
            LogWriter(folder, name, seed + number, self._watcher.counted)
            for number, name in enumerate(_SOURCES)
        ]
        self._folder = folder
        self._restarts: dict[str, float] = {}
        self._forgiven = 0
        self._faults = Faults(
            self._chance,
            self._exporter,
            engines=self._engines,
            disk=self._disk,
            publisher=self._publisher,
            write_config=self._write_config,
        )

    def run(self, seconds: float) -> list[str]:
        """What is wrong, nothing if all is well."""
        self._write_config(True)
        self._exporter.start()
        for thread in (*self._writers, self._watcher):
            thread.start()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            last_quarter = time.monotonic() > end - seconds / 4
            self._faults.one(kills=not last_quarter)
            time.sleep(self._chance.uniform(0.2, 4.0))
            if not self._exporter.running:
                self._exporter.start()
        steady = end - seconds / 4
        self._settle()
        problems = [*self._watcher.problems, *self._account(), *self._memory(steady, seconds / 4)]
        self._close()
        return [*problems, *self._exporter.problems]

    def report(self) -> str:
        watcher, memory = self._watcher, [size for _, size in self._watcher.memory]
        rotations = {w.source: dict(sorted(w.rotations.items())) for w in self._writers}
        return "\n".join(
            (
                f"lives       {self._exporter.lives}",
                f"faults      {dict(sorted(self._faults.done.items()))}",
                f"rotations   {rotations}",
                f"lines       {sum(writer.written for writer in self._writers)}",
                f"tokens      {sum(writer.prompt_tokens for writer in self._writers)}",
                f"engines     {sum(engine.restarts for engine in self._engines)} restarts",
                f"scrapes     {watcher.scrapes}, the slowest in {watcher.slowest:.2f} s",
                f"unanswered  {watcher.failed}",
                f"resident    {max(memory, default=0) / _MIB:.1f} MiB at most",
            )
        )

    def _write_config(self, good: bool) -> None:
        """Each good file has another interval, so that a reload has something to do."""
        interval = self._chance.choice(("1s", "2s")) if good else "soon"
        targets = ", ".join(f"'{engine.address}'" for engine in self._engines)
        sources = "".join(
            f"  - {{name: {name}, format: openai_chat, start_at: beginning,"
            f" paths: ['{self._folder}/{name}.jsonl*']}}\n"
            for name in _SOURCES
        )
        self._exporter.config.write_text(
            f"scrape: {{interval: {interval}, timeout: 800ms, max_age: 500ms}}\n"
            f"state: {{path: {self._disk.folder}/state.sqlite}}\n"
            f"targets: [{{static: [{targets}]}}]\n"
            f"events: [{{target: e, endpoint: 'tcp://127.0.0.1:{self._events_port}'}}]\n"
            f"requests:\n{sources}"
        )

    def _wrong_targets(self, page: dict[str, float]) -> list[str]:
        """Tokens of an engine that it never showed, and restarts that were counted and are no more."""
        found = []
        if self._faults.killed_without_disk != self._forgiven:
            # What a target lived through is shown although it cannot be kept.
            self._forgiven = self._faults.killed_without_disk
            self._restarts.clear()
        for engine in self._engines:
            restarts = total(page, "kvcache_target_restarts_total", target=engine.address)
            asked = total(page, "kvcache_target_up", target=engine.address)
            if asked and restarts < self._restarts.get(engine.address, 0.0):
                found.append(f"restarts of {engine.address} fell to {restarts}")
            self._restarts[engine.address] = max(restarts, self._restarts.get(engine.address, 0.0))
            for series, value in page.items():
                if series.startswith(f'kvcache_prompt_tokens_total{{target="{engine.address}"'):
                    found += [] if value in engine.shown else [f"{series} is {value}, which no page said"]
        return found

    def _settle(self) -> None:
        """Mend everything, start once more, and wait until all is read."""
        self._faults.mend()
        for writer in self._writers:
            writer.stopping.set()
            writer.join()
        self._watcher.stopping.set()
        self._watcher.join()
        self._exporter.limit_files(None)

    def _account(self) -> list[str]:
        end = time.monotonic() + _DRAIN_SECONDS
        while time.monotonic() < end and not all(
            self._watcher.counted(w.source) >= w.written for w in self._writers
        ):
            time.sleep(0.5)
            self._watcher.look()
        time.sleep(3.0)
        self._watcher.look()
        return [*self._wrong_logs(), *self._wrong_engines(), *self._wrong_events()]

    def _wrong_logs(self) -> list[str]:
        page, found = self._watcher.page, []
        for writer in self._writers:
            for name, expected in (
                ("kvcache_log_lines_total", writer.written),
                ("kvcache_requests_total", writer.written),
                ("kvcache_request_prompt_tokens_total", writer.prompt_tokens),
                ("kvcache_request_cached_tokens_total", writer.cached_tokens),
                ("kvcache_log_parse_failures_total", 0),
            ):
                counted = total(page, name, source=writer.source)
                if counted != expected:
                    found.append(f"{name} of {writer.source}: counted {counted:.0f}, written {expected}")
        return found

    def _wrong_engines(self) -> list[str]:
        """Every engine is up again, with tokens that it said."""
        found = []
        self._watcher.look()
        for engine in self._engines:
            up = total(self._watcher.page, "kvcache_target_up", target=engine.address)
            prompt = total(self._watcher.page, "kvcache_prompt_tokens_total", target=engine.address)
            if up != 1.0 or prompt not in engine.shown:
                found.append(f"engine {engine.address}: up {up}, tokens {prompt}, last {engine.prompt}")
        return found

    def _wrong_events(self) -> list[str]:
        """Of 500 batches each fifth is lost on the way: exactly those are counted as lost."""
        earlier = total(self._watcher.page, "kvcache_events_total", event="stored")
        # Shows what the faults lost at the very last, too.
        self._publisher.store(0)
        wait_until("an event", lambda: self._stored() > earlier)
        before = self._watcher.page
        for number in range(1, 500):
            self._publisher.store(number, sent=number % 5 != 0 or number == 499, keep=False)
        self._publisher.store(500)
        wanted = {"stored": 401, "lost": 99}

        def gained() -> dict[str, int]:
            self._watcher.look()
            page = self._watcher.page
            stored = [total(p, "kvcache_events_total", event="stored") for p in (page, before)]
            lost = [total(p, "kvcache_events_lost_total") for p in (page, before)]
            return {"stored": int(stored[0] - stored[1]), "lost": int(lost[0] - lost[1])}

        try:
            wait_until("the events", lambda: gained() == wanted)
        except TimeoutError:
            return [f"events: counted {gained()}, expected {wanted}"]
        return []

    def _stored(self) -> float:
        self._watcher.look()
        return total(self._watcher.page, "kvcache_events_total", event="stored")

    def _memory(self, steady: float, seconds: float) -> list[str]:
        found, largest = [], max(size for _, size in self._watcher.memory)
        if largest > _MOST_RESIDENT:
            found.append(f"resident memory reached {largest / _MIB:.0f} MiB")
        growth = self._watcher.slope(steady) * seconds / 3600
        print(f"growth      {growth / _MIB:+.2f} MiB in the last {seconds:.0f} s, by least squares")
        if growth > _MOST_GROWTH:
            found.append(f"resident memory grew by {growth / _MIB:.1f} MiB in {seconds:.0f} s")
        return found

    def _close(self) -> None:
        self._exporter.end(signal.SIGTERM)
        self._publisher.__exit__()
        for engine in self._engines:
            engine.close()
        self._disk.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=7200.0)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the faults; default: the time")
    arguments = parser.parse_args()
    if not may_mount():
        print("soak: may not mount a small disk; run it as root or by `unshare -rm`", file=sys.stderr)
        return 2
    folder = Path(tempfile.mkdtemp(prefix="kvcache-soak-"))
    print(f"seed        {arguments.seed}\nfolder      {folder}", flush=True)
    soak = Soak(folder, arguments.seed)
    problems = soak.run(arguments.seconds)
    print(soak.report())
    for problem in problems[:50]:
        print(f"WRONG       {problem}")
    print(f"{len(problems)} problems")
    return 1 if problems else 0


sys.exit(main())
