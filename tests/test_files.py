"""Whole files are read to their last byte, plain, gzipped, cut off or from standard input."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kvcache_exporter
from kvcache_exporter.errors import KVCacheError
from kvcache_exporter.requests import files
from kvcache_exporter.requests.files import read_lines


def records(path: Path) -> list[bytes]:
    return [record for batch in read_lines(str(path)) for record in batch]


@pytest.mark.parametrize("ending", [b"", b"\n"])
def test_last_line_counts_with_and_without_newline(tmp_path: Path, ending: bytes) -> None:
    (tmp_path / "a").write_bytes(b'{"a":1}\n{"b":2}' + ending)
    assert records(tmp_path / "a") == [b'{"a":1}', b'{"b":2}']


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(
    lines=st.lists(st.binary(max_size=20).map(lambda b: b'"' + b.replace(b"\n", b"")), max_size=30),
    block=st.integers(1, 40),
)
def test_blocks_do_not_matter(tmp_path: Path, lines: list[bytes], block: int) -> None:
    """Lines come out as they went in, wherever the blocks end."""
    (tmp_path / "a").write_bytes(b"".join(line + b"\n" for line in lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "_BLOCK", block)
        assert records(tmp_path / "a") == lines


def test_gzip_members_follow_each_other(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(b'{"a":1}\n{"b"') + b"\0" * 7 + gzip.compress(b":2}\n"))
    assert records(tmp_path / "a.gz") == [b'{"a":1}', b'{"b":2}']


def test_gzip_cut_off_gives_what_is_there(tmp_path: Path) -> None:
    data = b"".join(b'{"n":%d,"x":"%d"}\n' % (n, n * 7919 % 1000) for n in range(5000))
    (tmp_path / "a.gz").write_bytes(gzip.compress(data)[:-2000])
    read = records(tmp_path / "a.gz")
    assert read[:-1] == data.split(b"\n")[: len(read) - 1]
    assert len(read) > 1000


def test_damaged_gzip_is_told_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"x")[:10] + b"\xff" * 50)
    with pytest.raises(KVCacheError, match=r"a\.gz: .*readable log file"):
        records(tmp_path / "a.gz")


def test_missing_file_is_told_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(KVCacheError, match="nowhere: No such file"):
        records(tmp_path / "nowhere")


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_whole_array_gives_its_elements(tmp_path: Path, indent: int | None, bom: bytes) -> None:
    elements = [{"n": n, "nested": [{"x": n}]} for n in range(5000)]
    (tmp_path / "a").write_bytes(bom + json.dumps(elements, indent=indent).encode())
    if indent is None:
        (tmp_path / "a").write_bytes((tmp_path / "a").read_bytes().removesuffix(b"]") + b"\n]")
    assert [json.loads(record) for record in records(tmp_path / "a")] == elements


def test_pretty_printed_object_is_one_record(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(json.dumps({"a": {"b": 1}}, indent=1).encode())
    assert [json.loads(record) for record in records(tmp_path / "a")] == [{"a": {"b": 1}}]


def test_arrays_one_a_line_are_left_to_the_decoder(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b'[{"a":1},{"b":2}]\n[{"c":3}]\n')
    assert records(tmp_path / "a") == [b'[{"a":1},{"b":2}]', b'[{"c":3}]']


def test_broken_array_is_read_by_line(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b'[\n{"a":1},\n{"b":\n{"c":3}\n]\n')
    assert records(tmp_path / "a") == [b'{"a":1}', b'{"b":', b'{"c":3}']


def test_line_too_long_is_left_out_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_BLOCK", 16)
    monkeypatch.setattr(files, "_LONGEST_LINE", 100)
    (tmp_path / "a").write_bytes(b'{"a":1}\n' + b"x" * 500 + b'\n{"b":2}\n')
    told: list[int] = []
    read = [r for batch in read_lines(str(tmp_path / "a"), None, lambda: told.append(1)) for r in batch]
    assert (read, told) == ([b'{"a":1}', b'{"b":2}'], [1])


def test_progress_ends_at_the_size_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b'{"a":1}\n' * 200_000)
    seen: list[tuple[int, int]] = []
    for _ in read_lines(str(tmp_path / "a"), lambda done, total: seen.append((done, total))):
        pass
    assert seen == sorted(seen)
    assert seen[-1] == (1_600_000, 1_600_000)


def test_standard_input_is_read() -> None:
    code = "from kvcache_exporter.requests.files import read_lines; print(list(read_lines('-')))"
    source = Path(kvcache_exporter.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=b'{"a":1}\n{"b":2}',
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(source)},
    )
    assert done.stdout == b"[[b'{\"a\":1}'], [b'{\"b\":2}']]\n"
