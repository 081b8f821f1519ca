"""Every query of every board on a page that has every metric there is: what no recording can show, too."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from pathlib import Path
from threading import Thread

import pytest
from processes import prometheus, wait_until
from test_boards import Asked, asked, has_data

from kvcache_alerts.write import files as rule_files
from kvcache_exporter import catalogue as c
from kvcache_exporter.catalogue import CATALOGUE, Metric
from kvcache_exporter.exposition import Renderer, exposition
from kvcache_exporter.model import OUTCOMES, Distribution, Sample

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

SECONDS = 12.0
COLD, WARM = "cold:8000", "warm:8000"
THRESHOLD = 16.0
VALUES = {
    "target": (COLD, WARM),
    "outcome": OUTCOMES,
    "tier": c.TIERS,
    "phase": c.PHASES,
    "window": tuple(c.WINDOWS),
    "event": c.EVENT_KINDS,
    "hit_basis": ("prompt", "lookup"),
}
# Parts of a whole grow more slowly than the whole, or their ratio is none.
WHOLES = {
    c.PROMPT_TOKENS, c.PREFIX_QUERY_TOKENS, c.REQUEST_PROMPT_TOKENS, c.STORED_BLOCKS,
    c.REQUEST_COST_WITHOUT_CACHE,
}  # fmt: skip


def _samples(seconds: float) -> Iterator[Sample]:
    for metric in CATALOGUE:
        for labels in product(*(VALUES.get(name, (f"a-{name}",)) for name in metric.labels)):
            yield Sample(metric, labels, _value(metric, labels, seconds))


def _value(metric: Metric, labels: tuple[str, ...], seconds: float) -> float | Distribution:
    grown = seconds * (100.0 if metric in WHOLES else 10.0)
    if metric.kind == "histogram":
        short = grown if metric is c.ENGINE_COMPUTED_PROMPT_TOKENS else grown / 2
        return Distribution((0.1, 1.0, THRESHOLD, 1024.0), (grown / 4, short, short, grown, grown), grown)
    if metric is c.WARM:
        return float(labels == (WARM,))
    if metric is c.REQUEST_HIT_THRESHOLD:
        return THRESHOLD
    return grown if metric.kind == "counter" else 1.0


@contextmanager
def _page_of_everything() -> Iterator[int]:
    """A port that serves all metrics; counters grow with time."""
    begin = time.monotonic()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            samples = list(_samples(time.monotonic() - begin))
            page = exposition(samples).encode()
            # A page writes this one itself, where it has dropped something.
            page += Renderer().block(samples)[c.DROPPED_SERIES].text.encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def test_every_query_has_data_where_its_metrics_are(tmp_path: Path) -> None:
    (tmp_path / "recording.yaml").write_text(rule_files({"interval": "1s"})["recording.yaml"])
    begin = time.time()
    with _page_of_everything() as port, prometheus(tmp_path, port, rules="recording.yaml") as url:
        time.sleep(SECONDS)

        def missing() -> list[Asked]:
            return [one for one in asked() if not has_data(url, one.expr, begin, time.time())]

        try:
            wait_until("data in every panel", lambda: not missing(), 30)
        except TimeoutError:
            pytest.fail("\n".join(f"{one.board}: {one.panel} {one.ref_id}: {one.expr}" for one in missing()))
