"""The scrape configuration of the documentation, in a real Prometheus that names the targets itself."""

import re
import textwrap
from contextlib import closing
from pathlib import Path

import pytest
from processes import Engine, free_port, prometheus, query, running, start_exporter, value, wait_until

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "tests/fixtures/engines/vllm-0.32.0/page.prom").read_bytes()


def _documented_jobs() -> str:
    text = (ROOT / "docs" / "http.md").read_text(encoding="utf-8")
    found = re.search(r"```yaml\n# Prometheus\nscrape_configs:\n(.*?)```", text, re.DOTALL)
    assert found
    return textwrap.indent(textwrap.dedent(found[1]), "  ")


def test_the_documented_relabelling_gives_each_target_its_own_instance(tmp_path: Path) -> None:
    port, dead, config = free_port(), f"127.0.0.1:{free_port()}", tmp_path / "kvcache.yaml"
    with closing(Engine(Path())) as engine:
        engine.page = PAGE
        ports = [address.rpartition(":")[2] for address in (engine.address, dead)]
        config.write_text(
            "probe: {modules: [{name: vllm, engine: vllm, "
            f"allow: ['127.0.0.1:{ports[0]}', '127.0.0.1:{ports[1]}']}}]}}\n"
        )
        jobs = _documented_jobs()
        for documented, real in (
            ("10.0.0.1:8000", engine.address),
            ("10.0.0.2:8000", dead),
            ("kvcache-exporter:9409", f"127.0.0.1:{port}"),
        ):
            assert documented in jobs
            jobs = jobs.replace(documented, real)
        exporter = start_exporter(config, port, tmp_path / "log")
        with running(exporter), prometheus(tmp_path, port, jobs=jobs) as url:
            up = 'kvcache_target_up{job="kvcache-probe"}'
            wait_until("both targets being probed", lambda: len(query(url, up)) == 2)
            found = {sample["metric"]["instance"]: sample["value"][1] for sample in query(url, up)}
            assert found == {engine.address: "1", dead: "0"}
            failed = f'kvcache_probe_failed{{instance="{dead}",reason="connection"}}'
            assert value(url, failed) == 1.0
            assert value(url, f'kvcache_prompt_tokens_total{{instance="{engine.address}"}}') == 112087.0
            assert value(url, 'up{job="kvcache-probe",instance="' + dead + '"}') == 1.0
