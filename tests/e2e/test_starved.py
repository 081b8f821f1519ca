"""The exporter without disk or file descriptors: it recovers, and no line is lost or counted twice."""

import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from processes import Engine, free_port, running, scrape, start_exporter, wait_until

pytestmark = pytest.mark.e2e

PAGE = (Path(__file__).parents[1] / "fixtures/engines/vllm-0.32.0/page.prom").read_bytes()
LINE = (
    b'{"ts":"2026-11-29T10:00:01Z","model":"m","status":200,'
    b'"usage":{"prompt_tokens":2000,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":0}}}\n'
)
LINES = 'kvcache_log_lines_total{source="app"}'
SAYS = "check that the volume has space left and is writable"


def write(folder: Path, lines: int) -> None:
    with (folder / "usage.jsonl").open("ab") as file:
        file.write(LINE * lines)


def counted(port: int) -> tuple[float, float]:
    """Lines, and requests."""
    page = scrape(port)
    return page[LINES], sum(v for name, v in page.items() if name.startswith("kvcache_requests_total{"))


def configure(folder: Path, state: Path, more: str = "") -> Path:
    config = folder / "kvcache.yaml"
    config.write_text(
        f"state: {{path: {state}}}\n"
        "requests:\n  - {name: app, format: openai_chat, start_at: beginning,"
        f" paths: ['{folder}/usage.jsonl']}}\n" + more
    )
    return config


class SmallDisk:
    """A disk of 300 KiB that only the exporter sees, in a mount namespace of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "disk"
        self.folder.mkdir()
        self._holder = subprocess.Popen(
            ["unshare", "-rm", "sh", "-c", f"mount -t tmpfs -o size=300k soak {self.folder} && echo && cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._holder.stdout is not None
        self.mounted = bool(self._holder.stdout.readline())

    def enter(self, *command: str) -> list[str]:
        return ["nsenter", "-t", str(self._holder.pid), "-U", "-m", "--preserve-credentials", *command]

    def run(self, script: str) -> None:
        subprocess.run(self.enter("sh", "-c", script), check=False, cwd="/", stderr=subprocess.DEVNULL)

    def close(self) -> None:
        self._holder.communicate()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with closing(SmallDisk(tmp_path)) as made:
        if not made.mounted:
            pytest.skip("no right to mount a disk in a namespace of one's own")
        yield made


def serve(disk: SmallDisk, config: Path, port: int, log: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "kvcache_exporter", "serve", "--config.file", str(config)]
    with log.open("ab") as out:
        listen = ["--web.listen-address", f"127.0.0.1:{port}"]
        return subprocess.Popen(disk.enter(*command, *listen), stdout=out, stderr=out)


def test_on_a_full_disk_nothing_new_is_shown_and_nothing_is_lost(tmp_path: Path, disk: SmallDisk) -> None:
    port, log, written = free_port(), tmp_path / "log", 1000
    config = configure(tmp_path, disk.folder / "state.sqlite")
    with running(serve(disk, config, port, log)):
        write(tmp_path, written)
        wait_until("the first lines", lambda: scrape(port).get(LINES) == 1000)
        disk.run(f"cat /dev/zero > {disk.folder}/filler")
        end = time.monotonic() + 60
        # A little room is left in the write-ahead log: some commits use it up.
        while SAYS not in log.read_text():
            assert time.monotonic() < end, "the disk must get full"
            write(tmp_path, 10)
            written += 10
            time.sleep(0.2)
        write(tmp_path, 10)
        written += 10
        assert scrape(port)[LINES] < written, "what is not committed is not shown"
        disk.run(f"rm {disk.folder}/filler")
        wait_until("all lines", lambda: scrape(port)[LINES] >= written)
        assert counted(port) == (written, written)


_COMMITS = """
import sys
from pathlib import Path
from kvcache_exporter.state import StateStore

store = StateStore(Path(sys.argv[1]))
for number in range(60):
    store.commit({("a", "x"): bytes([number]) * 40_000})
print(store.load("a")["x"][0])
"""


def test_the_write_ahead_log_does_not_fill_a_small_disk_by_itself(disk: SmallDisk) -> None:
    """Of 2.4 MB that are committed one after the other, 300 KiB hold the last."""
    command = disk.enter(sys.executable, "-c", _COMMITS, str(disk.folder / "state.sqlite"))
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "59\n"


def test_on_a_read_only_disk_it_ends_with_advice_and_goes_on_where_it_was(
    tmp_path: Path, disk: SmallDisk
) -> None:
    port, log = free_port(), tmp_path / "log"
    config = configure(tmp_path, disk.folder / "state.sqlite")
    write(tmp_path, 1000)
    with running(serve(disk, config, port, log)):
        wait_until("the first lines", lambda: scrape(port).get(LINES) == 1000)
    disk.run(f"mount -o remount,ro {disk.folder}")
    write(tmp_path, 50)
    assert serve(disk, config, port, log).wait(20) == 1
    assert "Read-only file system; state.path must be a file in an existing folder" in log.read_text()
    disk.run(f"mount -o remount,rw {disk.folder}")
    with running(serve(disk, config, port, log)):
        wait_until("all lines", lambda: scrape(port).get(LINES) == 1050)
        assert counted(port) == (1050, 1050)


def test_without_file_descriptors_targets_and_logs_wait_and_come_back(tmp_path: Path) -> None:
    port = free_port()
    with closing(Engine(Path())) as engine:
        engine.page = PAGE
        more = (
            "scrape: {interval: 1s, timeout: 900ms, max_age: 300ms}\n"
            f"targets: [{{static: ['{engine.address}']}}]\n"
        )
        config = configure(tmp_path, tmp_path / "state.sqlite", more)
        up = f'kvcache_target_up{{target="{engine.address}",engine="vllm"}}'
        process = start_exporter(config, port, tmp_path / "log")
        with running(process):
            wait_until("the target", lambda: scrape(port).get(up) == 1.0)
            hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)[1]
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (3, hard))
            write(tmp_path, 500)
            wait_until("the log being told", lambda: "Too many open files" in (tmp_path / "log").read_text())
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
            wait_until("all lines", lambda: scrape(port).get(LINES) == 500)
            wait_until("the target again", lambda: scrape(port).get(up) == 1.0)
            assert counted(port) == (500, 500)


def test_a_damaged_state_file_is_kept_and_told_on_the_page(tmp_path: Path) -> None:
    port, state = free_port(), tmp_path / "state.sqlite"
    config = configure(tmp_path, state)
    write(tmp_path, 100)
    with running(start_exporter(config, port, tmp_path / "log")):
        wait_until("the lines", lambda: scrape(port).get(LINES) == 100)
    data = bytearray(state.read_bytes())
    data[200:] = b"\xa5" * (len(data) - 200)
    state.write_bytes(data)
    with running(start_exporter(config, port, tmp_path / "log")):
        wait_until("the lines, counted from zero", lambda: scrape(port).get(LINES) == 100)
        assert scrape(port)["kvcache_exporter_state_lost_timestamp_seconds"] > 1.7e9
    (aside,) = tmp_path.glob("state.sqlite.damaged-*")
    assert aside.read_bytes() == bytes(data)
