"""Which exporter is responsible for a name: all together for all, evenly, and with few moves."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcache_exporter.app import App
from kvcache_exporter.errors import ConfigError
from kvcache_exporter.settings import read_config
from kvcache_exporter.shard import Shard, owner, parse_index

NAMES = [f"llm/vllm-{number}" for number in range(10_000)]


@given(names=st.lists(st.text(max_size=30), max_size=20, unique=True), count=st.integers(1, 16))
def test_every_name_has_exactly_one_owner(names: list[str], count: int) -> None:
    shards = [{name for name in names if Shard(index, count).owns(name)} for index in range(count)]
    assert set().union(*shards) == set(names)
    assert sum(map(len, shards)) == len(names)


@pytest.mark.parametrize("count", [2, 3, 8])
def test_names_are_shared_evenly(count: int) -> None:
    shares = Counter(owner(name, count) for name in NAMES)
    fair = len(NAMES) / count
    deviation = sum((shares[shard] - fair) ** 2 / fair for shard in range(count))
    # Chi-square with at most 7 degrees of freedom lies above 24.3 once in a thousand times.
    assert deviation < 24.3


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_shard_more_takes_its_share_and_nothing_else_moves(count: int) -> None:
    moved = [name for name in NAMES if owner(name, count) != owner(name, count + 1)]
    assert {owner(name, count + 1) for name in moved} == {count}
    assert len(moved) / len(NAMES) == pytest.approx(1 / (count + 1), rel=0.05)


def test_the_owner_is_the_same_in_every_process_and_version() -> None:
    assert [owner(name, 5) for name in ("10.0.0.1:8000", "llm/vllm-0", "gateway", "caf\u00e9")] == [
        4,
        4,
        1,
        3,
    ]


@pytest.mark.parametrize(
    ("text", "index"),
    [
        ("0", 0),
        ("12", 12),
        ("kvcache-exporter-2", 2),
        ("a-0", 0),
        ("my.release-kvcache-exporter-11", 11),
        ("1023", 1023),
    ],
)
def test_an_index_is_a_number_or_ends_the_name_of_a_pod(text: str, index: int) -> None:
    assert parse_index(text) == index


@pytest.mark.parametrize(
    "text", ["", "x", "x-", "-1", "1024", "pod-99999", "Pod-1", "a_1", "kvcache-7d9f-x2x9z", "\u0661"]
)
def test_what_names_no_shard_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected a number from 0 to 1023, or the name of a"):
        parse_index(text)


CONFIG = """
targets: [{static: [%s]}]
requests: [%s]
events: [%s]
shard: {count: 3}
"""


def write(folder: Path) -> Path:
    file = folder / "kvcache.yaml"
    targets = (f'"127.0.0.1:{port}"' for port in range(1, 31))
    logs = (f"{{name: log-{number}, paths: ['{folder}/*.jsonl']}}" for number in range(12))
    events = (f"{{target: engine-{number}, endpoint: 'ipc:///{number}'}}" for number in range(12))
    file.write_text(CONFIG % (", ".join(targets), ", ".join(logs), ", ".join(events)))
    return file


def test_shards_share_targets_logs_and_events(tmp_path: Path) -> None:
    file, seen = write(tmp_path), Counter[str]()
    for index in range(3):
        app = App(file, index)
        app.start()
        try:
            names = [
                *app.scheduler.jobs,
                *(source.name for source in app.sources),
                *(options.target for options in app._events._running),
            ]
            assert names
            assert all(owner(name, 3) == index for name in names)
            seen.update(names)
            file.touch()
            assert app.reload() is None
            assert app.config.shard.index == index, "a reload keeps the index of the command line"
        finally:
            app.stop()
            app.scheduler._pool.shutdown()
    assert len(seen) == 54
    assert set(seen.values()) == {1}


def test_an_index_beyond_the_count_is_refused_with_the_file(tmp_path: Path) -> None:
    file = write(tmp_path)
    with pytest.raises(ConfigError) as caught:
        read_config(file, 3)
    assert str(caught.value) == (
        f"{file}: --shard.index: found 3, expected less than shard.count (3); raise it or run fewer exporters"
    )


@pytest.mark.parametrize(
    ("index", "code", "told"),
    [
        ("kvcache-exporter-2", 0, "valid"),
        ("kvcache-exporter-3", 2, "--shard.index: found 3, expected less than shard.count (3)"),
        ("last", 2, 'argument --shard.index: found "last", expected a number'),
    ],
)
def test_check_takes_the_index_as_serve_does(tmp_path: Path, index: str, code: int, told: str) -> None:
    command = [sys.executable, "-m", "kvcache_exporter", "check", "--config.file", str(write(tmp_path))]
    done = subprocess.run(
        [*command, "--shard.index", index], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == code
    assert told in done.stdout + done.stderr
