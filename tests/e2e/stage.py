"""A stage for boards: the recording played through the exporter into a Prometheus with generated rules."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from processes import free_port, prometheus, running, start_exporter

from kvcache_alerts.write import files as rule_files
from kvcache_exporter.demo.playback import EngineServer, LogWriter, load_recording

_LEAD_IN = 4.0
_LAST_SCRAPES = 3.0


class Played(NamedTuple):
    """Prometheus' URL and the Unix seconds between which the recording was played."""

    url: str
    span: tuple[float, float]


@contextmanager
def played(folder: Path, speed: float, until: float | None = None) -> Iterator[Played]:
    """The recording played up to its second `until` (default: its end); everything runs on until the exit."""
    engines = load_recording()
    began = time.time()

    def clock() -> float:
        return max(0.0, time.time() - began - _LEAD_IN) * speed

    with ExitStack() as stack:
        servers = [stack.enter_context(closing(EngineServer(engine, clock, speed))) for engine in engines]
        writers = [stack.enter_context(closing(LogWriter(e, folder / e.log_name))) for e in engines]
        port = free_port()
        config = _exporter_config(folder, [server.address for server in servers])
        stack.enter_context(running(start_exporter(config, port, folder / "exporter.log")))
        (folder / "recording.yaml").write_text(rule_files({"interval": "1s"})["recording.yaml"])
        url = stack.enter_context(prometheus(folder, port, rules="recording.yaml"))
        end = until or max(engine.length for engine in engines)
        while clock() < end:
            for writer in writers:
                writer.write_until(clock())
            time.sleep(0.1)
        time.sleep(_LAST_SCRAPES)
        yield Played(url, (began, time.time()))


def _exporter_config(folder: Path, addresses: list[str]) -> Path:
    config = folder / "kvcache.yaml"
    config.write_text(
        "scrape: {interval: 500ms, timeout: 500ms, max_age: 250ms}\n"
        f"targets: [{{engine: auto, static: {addresses}}}]\n"
        "requests:\n"
        f"  - {{name: gateway, format: vllm, paths: ['{folder}/gateway.jsonl'], start_at: beginning}}\n"
        f"  - {{name: sglang, format: sglang_metrics_file, paths: ['{folder}/request-metrics.jsonl'],\n"
        "     start_at: beginning, model_name: tiny-llama}\n"
    )
    return config
