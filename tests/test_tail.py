"""Each thing that happens to a log file, by itself: every complete line is given exactly once."""

import gzip
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest

from kvcache_exporter.errors import StateError
from kvcache_exporter.requests.options import FollowOptions
from kvcache_exporter.requests.tail import Chunk, Follower


class Reader:
    """Follows with a clock of its own and a state that outlives it."""

    def __init__(
        self,
        folder: Path,
        *patterns: str,
        start_at: Literal["beginning", "end"] = "beginning",
        longest: int = 4096,
    ) -> None:
        self.paths = [str(folder / pattern) for pattern in patterns]
        self.start_at: Literal["beginning", "end"] = start_at
        self.shift = 0.0
        self.options = FollowOptions(max_line_bytes=longest, clock=lambda: time.time() + self.shift)
        self.saved: dict[str, bytes] = {}
        self.follower = self._follower()

    def _follower(self) -> Follower:
        return Follower(self.paths, self.start_at, self.saved, self.options)

    def chunks(self, budget: int = 1 << 20) -> list[Chunk]:
        return list(self.follower.poll(budget))

    def lines(self) -> list[bytes]:
        return [line for chunk in self.chunks() for line in chunk.lines]

    def commit(self) -> None:
        puts, deletes = self.follower.positions()
        self.saved.update(puts)
        for key in deletes:
            del self.saved[key]
        self.follower.committed()

    def restart(self) -> None:
        self.follower.close()
        self.follower = self._follower()


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    reader = Reader(tmp_path, "a.log*")
    yield reader
    reader.follower.close()


@pytest.fixture
def narrow(tmp_path: Path) -> Iterator[Reader]:
    """Only the live file matches."""
    reader = Reader(tmp_path, "a.log")
    yield reader
    reader.follower.close()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "a.log"


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def rotate(log: Path) -> Path:
    return log.rename(log.with_name("a.log.1"))


def test_appended_lines_are_given_once(reader: Reader, log: Path) -> None:
    append(log, b"1\n2\n")
    assert reader.lines() == [b"1", b"2"]
    append(log, b"3\n")
    assert reader.lines() == [b"3"]
    assert reader.lines() == []


def test_half_a_line_waits_for_its_rest(reader: Reader, log: Path) -> None:
    append(log, b'{"a"')
    assert reader.lines() == []
    reader.commit()
    reader.restart()
    append(log, b":1}\n")
    assert reader.lines() == [b'{"a":1}']


def test_whole_json_without_newline_is_given_after_a_while_and_once(reader: Reader, log: Path) -> None:
    """Some writers never end their last line; a newline that comes later is no line."""
    append(log, b'[{"a":1}]')
    assert reader.lines() == []
    reader.shift += 11
    assert reader.lines() == [b'[{"a":1}]']
    reader.commit()
    reader.restart()
    append(log, b'\n{"b":2}\n')
    assert reader.lines() == [b'{"b":2}']
    assert reader.follower.counters.lines == 2


def test_half_a_record_is_never_given(reader: Reader, log: Path) -> None:
    append(log, b'{"a":1}\n{"b"')
    reader.lines()
    reader.shift += 5000
    assert [line for _ in range(3) for line in reader.lines()] == []


def test_only_what_was_committed_counts_after_a_crash(reader: Reader, log: Path) -> None:
    append(log, b"1\n")
    reader.lines()
    reader.commit()
    append(log, b"2\n")
    assert reader.lines() == [b"2"]
    reader.restart()
    assert reader.lines() == [b"2"]


def test_failed_commit_needs_only_another(reader: Reader, log: Path) -> None:
    """Positions offered but not committed are offered again."""
    append(log, b"1\n")
    reader.lines()
    offered = reader.follower.positions()
    assert reader.follower.positions() == offered
    reader.commit()
    assert reader.follower.positions() == ({}, set())


def test_positions_hold_for_the_chunks_handed_out(tmp_path: Path, log: Path) -> None:
    """A poll that was left half way is gone on with after the last chunk."""
    reader = Reader(tmp_path, "a.log", longest=20)
    append(log, b"".join(b"%d\n" % n for n in range(100)))
    first = next(reader.follower.poll(1000)).lines
    reader.commit()
    reader.restart()
    assert first + reader.lines() == [b"%d" % n for n in range(100)]
    reader.follower.close()


def test_end_skips_what_is_there_and_nothing_else(tmp_path: Path, log: Path) -> None:
    reader = Reader(tmp_path, "*.log", "*.gz", start_at="end")
    append(log, b"old\nhalf")
    (tmp_path / "m.gz").write_bytes(gzip.compress(b"old\n"))
    assert reader.lines() == []
    append(log, b" line\n")
    append(tmp_path / "m.gz", gzip.compress(b"member\n"))
    append(tmp_path / "later.log", b"first\n")
    assert sorted(reader.lines()) == [b"first", b"half line", b"member"]
    reader.commit()
    reader.restart()
    append(tmp_path / "new.log", b"new\n")
    assert reader.lines() == [b"new"]
    reader.follower.close()


@pytest.mark.parametrize("which", ["reader", "narrow"])
def test_rotated_file_is_read_to_its_end_while_written_to(
    which: str, log: Path, request: pytest.FixtureRequest
) -> None:
    reader: Reader = request.getfixturevalue(which)
    append(log, b"1\n")
    reader.lines()
    rotated = rotate(log)
    append(rotated, b"2\n")
    append(log, b"new\n")
    assert reader.lines() == [b"2", b"new"]
    append(rotated, b"3\n")
    assert reader.lines() == [b"3"]
    assert reader.follower.counters.rotations == {"renamed": 1}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("which", ["reader", "narrow"])
def test_rotation_while_down_loses_and_repeats_nothing(
    which: str, packed: bool, log: Path, request: pytest.FixtureRequest
) -> None:
    """The file is found by inode, or by content when it was gzipped too."""
    reader: Reader = request.getfixturevalue(which)
    append(log, b"1\n")
    reader.lines()
    reader.commit()
    append(log, b"2\n")
    rotated = rotate(log)
    if packed:
        rotated.with_name("a.log.1.gz").write_bytes(gzip.compress(rotated.read_bytes()))
        rotated.unlink()
    append(log, b"new\n")
    reader.restart()
    assert sorted(reader.lines()) == [b"2", b"new"]


def test_many_rotations_between_two_polls_are_all_read(reader: Reader, log: Path, tmp_path: Path) -> None:
    append(log, b"0\n")
    reader.lines()
    for number in range(1, 6):
        log.rename(tmp_path / f"a.log.{10 - number}")
        append(log, b"%d\n" % number)
    assert sorted(reader.lines()) == [b"1", b"2", b"3", b"4", b"5"]


def test_deleted_file_is_read_to_its_end(reader: Reader, log: Path) -> None:
    append(log, b"1\n")
    reader.lines()
    append(log, b"2\n")
    log.unlink()
    assert reader.lines() == [b"2"]


def test_vanished_file_comes_back(reader: Reader, log: Path, tmp_path: Path) -> None:
    """The same file is gone on with; another one is read from its beginning."""
    append(log, b"1\n")
    reader.lines()
    log.rename(tmp_path / "elsewhere")
    reader.shift += 100
    reader.lines()
    append(tmp_path / "elsewhere", b"2\n")
    (tmp_path / "elsewhere").rename(log)
    assert reader.lines() == [b"2"]
    log.unlink()
    reader.shift += 100
    reader.lines()
    append(log, b"other\n")
    assert reader.lines() == [b"other"]


def test_same_lines_after_a_rotation_count_again(reader: Reader, log: Path) -> None:
    """A new file at the old place is no copy, even if it begins with the same bytes."""
    append(log, b'{"a":1}\n')
    assert reader.lines() == [b'{"a":1}']
    rotate(log)
    append(log, b'{"a":1}\n')
    assert reader.lines() == [b'{"a":1}']


def test_two_logs_with_the_same_lines_count_both(tmp_path: Path) -> None:
    reader = Reader(tmp_path, "*.jsonl")
    for name in ("pod-1.jsonl", "pod-2.jsonl", "x.jsonl", "x2.jsonl"):
        append(tmp_path / name, b'{"a":1}\n')
    assert len(reader.lines()) == 4
    reader.follower.close()


def test_truncated_file_is_read_from_its_beginning(reader: Reader, log: Path) -> None:
    append(log, b"1\n2\n")
    reader.lines()
    log.write_bytes(b"3\n")
    assert reader.lines() == [b"3"]
    assert reader.follower.counters.rotations == {"truncated": 1}


def test_truncated_file_that_outgrew_the_old_one_is_noticed(reader: Reader, log: Path) -> None:
    append(log, b"1\n2\n")
    reader.lines()
    log.write_bytes(b"3\n4\n5\n6\n")
    assert reader.lines() == [b"3", b"4", b"5", b"6"]


def test_hole_that_a_writer_leaves_after_truncation_is_no_line(reader: Reader, log: Path) -> None:
    """A writer that does not append goes on at its old offset."""
    with log.open("wb", buffering=0) as writer:
        writer.write(b"1\n" * 5000)
        reader.lines()
        os.truncate(log, 0)
        writer.write(b"2\n")
        assert reader.lines() == [b"2"]


@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize("which", ["reader", "narrow"])
def test_copytruncate_gives_the_rest_from_the_copy(
    which: str, down: bool, log: Path, request: pytest.FixtureRequest
) -> None:
    reader: Reader = request.getfixturevalue(which)
    append(log, b"1\n")
    reader.lines()
    reader.commit()
    append(log, b"2\n")
    shutil.copy(log, log.with_name("a.log.1"))
    os.truncate(log, 0)
    append(log, b"3\n4\n5\n")
    if down:
        reader.restart()
    assert sorted(reader.lines()) == [b"2", b"3", b"4", b"5"]
    assert reader.lines() == []


def test_copy_seen_before_the_truncation_is_not_counted_again(reader: Reader, log: Path) -> None:
    append(log, b"1\n" * 1000)
    assert len(reader.lines()) == 1000
    append(log.with_name("a.log.1"), log.read_bytes()[:700])
    assert reader.lines() == []
    append(log.with_name("a.log.1"), log.read_bytes()[700:])
    append(log, b"late\n")
    assert reader.lines() == [b"late"]
    os.truncate(log, 0)
    append(log, b"3\n")
    assert reader.lines() == [b"3"]


def test_gzipped_copy_of_a_rotated_file_is_not_counted_again(reader: Reader, log: Path) -> None:
    append(log, b"".join(b"%d\n" % n for n in range(2000)))
    reader.lines()
    rotated = rotate(log)
    data = gzip.compress(rotated.read_bytes())
    packed = log.with_name("a.log.1.gz")
    append(packed, data[:1000])
    assert reader.lines() == []
    append(packed, data[1000:])
    assert reader.lines() == []
    rotated.unlink()
    reader.shift += 100
    assert [line for _ in range(3) for line in reader.lines()] == []
    reader.commit()
    reader.restart()
    assert reader.lines() == []


def test_gzipped_file_grows_by_members_and_halves_of_them(tmp_path: Path) -> None:
    reader = Reader(tmp_path, "a.gz")
    member = gzip.compress(b"2\n3\n")
    append(tmp_path / "a.gz", gzip.compress(b"1\n") + member[:9])
    assert reader.lines() == [b"1"]
    reader.commit()
    append(tmp_path / "a.gz", member[9:-4])
    reader.restart()
    assert reader.lines() == [b"2", b"3"]
    append(tmp_path / "a.gz", member[-4:] + gzip.compress(b"4\n"))
    assert reader.lines() == [b"4"]
    reader.follower.close()


def test_new_hourly_files_are_read_from_their_beginning(tmp_path: Path) -> None:
    reader = Reader(tmp_path, "m-*.log", start_at="end")
    append(tmp_path / "m-20251129_10.log", b"old\n")
    assert reader.lines() == []
    append(tmp_path / "m-20251129_11.log", b"new\n")
    assert reader.lines() == [b"new"]
    assert reader.follower.counters.rotations == {"new_file": 1}
    reader.follower.close()


def test_bytes_that_are_no_text_are_passed_on(reader: Reader, log: Path) -> None:
    append(log, b"\xff\xfe\x00\n")
    assert reader.lines() == [b"\xff\xfe\x00"]


def test_line_too_long_is_dropped_and_counted_once(reader: Reader, log: Path) -> None:
    """Also over a crash in its middle, and without ever being held."""
    append(log, b"1\n" + b"x" * 50_000)
    chunks = reader.chunks()
    assert sum(chunk.too_long for chunk in chunks) == 1
    reader.commit()
    reader.restart()
    append(log, b"x" * 50_000 + b"\n" + b"y" * 4096 + b"\n2\n")
    chunks = reader.chunks()
    assert [line for chunk in chunks for line in chunk.lines] == [b"y" * 4096, b"2"]
    assert (reader.follower.counters.too_long, reader.follower.counters.lines) == (1, 4)


def test_partial_container_lines_survive_a_restart(reader: Reader, log: Path) -> None:
    """The position stays before the open record; those given after it are not given again."""
    part = b"2026-11-29T10:00:03.0Z stdout %s %s\n"
    append(log, part % (b"P", b'{"a":') + b"2026-11-29T10:00:03.0Z stderr F x\n")
    assert reader.lines() == [b"x"]
    reader.commit()
    assert not any(b'{\\"a' in value for value in reader.saved.values())
    reader.restart()
    append(log, part % (b"F", b"1}"))
    assert reader.lines() == [b'{"a":1}']
    assert reader.follower.counters.lines == 3


def test_budget_bounds_a_poll_and_no_file_is_left_behind(tmp_path: Path) -> None:
    reader = Reader(tmp_path, "*.log", longest=100)
    for name in "abc":
        append(tmp_path / f"{name}.log", (name.encode() * 9 + b"\n") * 1000)
    seen = {chunk.path[-5] for _ in range(4) for chunk in reader.chunks(budget=100)}
    assert seen == {"a", "b", "c"}
    assert reader.follower.lag_bytes > 20_000
    reader.chunks()
    assert reader.follower.lag_bytes == 0
    reader.follower.close()


def test_keys_stay_when_files_are_renamed(reader: Reader, log: Path) -> None:
    append(log, b"1\n")
    (first,) = reader.chunks()
    append(rotate(log), b"2\n")
    (second,) = reader.chunks()
    reader.commit()
    reader.restart()
    append(log.with_name("a.log.1"), b"3\n")
    (third,) = reader.chunks()
    assert first.file_key == second.file_key == third.file_key


def test_end_of_a_rotated_file_is_announced_once(reader: Reader, log: Path) -> None:
    append(log, b"1\n")
    (first,) = reader.chunks()
    rotate(log)
    assert reader.chunks() == []
    reader.shift += 61
    finished = [chunk for _ in range(3) for chunk in reader.chunks()]
    assert [(chunk.file_key, chunk.finished, chunk.lines) for chunk in finished] == [
        (first.file_key, True, [])
    ]


def test_unreadable_file_is_told_and_tried_again(reader: Reader, log: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    append(log, b"1\n")
    log.chmod(0)
    assert reader.lines() == []
    advice = f"check that it is readable by user {os.geteuid()}; trying again at the next poll"
    assert reader.follower.problems == [f"{log}: Permission denied; {advice}"]
    log.chmod(0o600)
    assert reader.lines() == [b"1"]
    assert reader.follower.problems == []


def test_refusal_of_the_system_is_told(reader: Reader, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the test before, where permissions do not bind."""
    real = os.open

    def refuse(path: str, flags: int) -> int:
        raise PermissionError(13, "Permission denied", path)

    append(log, b"1\n")
    monkeypatch.setattr(os, "open", refuse)
    assert reader.lines() == []
    assert "a.log: Permission denied; check that it is readable by user" in reader.follower.problems[0]
    monkeypatch.setattr(os, "open", real)
    assert reader.lines() == [b"1"]


def test_paths_that_match_nothing_are_told_until_there_was_a_file(reader: Reader, log: Path) -> None:
    """A file that is away for a moment, as in a rotation, is no mistake in the configuration."""
    assert reader.lines() == []
    (problem,) = reader.follower.problems
    assert problem.startswith("no file matches ")
    assert problem.endswith("; correct paths, if one is written already")
    append(log, b"1\n")
    assert reader.lines() == [b"1"]
    log.unlink()
    assert reader.lines() == []
    assert reader.follower.problems == []


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_what_is_no_regular_file_is_passed_over(
    make: Callable[[Path], None], reader: Reader, log: Path
) -> None:
    make(log)
    assert reader.lines() == []


def test_symbolic_link_leads_to_the_file_it_names_now(tmp_path: Path) -> None:
    """As kubelet lays out the logs of containers."""
    pod, links = tmp_path / "pod", tmp_path / "containers"
    pod.mkdir()
    links.mkdir()
    (links / "c.log").symlink_to(pod / "0.log")
    reader = Reader(links, "*.log")
    append(pod / "0.log", b"1\n")
    assert reader.lines() == [b"1"]
    append(pod / "0.log", b"2\n")
    (pod / "0.log").rename(pod / "0.log.20251129-100000")
    append(pod / "0.log", b"3\n")
    assert reader.lines() == [b"2", b"3"]
    reader.follower.close()


def test_more_files_than_may_be_open_are_all_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvcache_exporter.requests.follow._MOST_OPEN", 8)
    monkeypatch.setattr("kvcache_exporter.requests.follow._OPEN_AT_REST", 4)
    reader = Reader(tmp_path, "*.log")
    lines: list[bytes] = []
    for turn in range(2):
        for number in range(30):
            append(tmp_path / f"{number}.log", b"%d-%d\n" % (number, turn))
        lines += [line for _ in range(30) for line in reader.lines()]
        assert sum(stream.body is not None for stream in reader.follower._tracker.streams.values()) <= 8
    assert sorted(lines) == sorted(b"%d-%d" % (n, turn) for n in range(30) for turn in range(2))
    reader.follower.close()


def test_positions_of_files_long_gone_are_dropped(reader: Reader, log: Path) -> None:
    append(log, b"1\n")
    reader.lines()
    reader.commit()
    log.unlink()
    for _ in range(4):
        reader.shift += 25 * 3600
        reader.lines()
    reader.commit()
    assert set(reader.saved) == {"follower"}


@pytest.mark.parametrize(
    "saved",
    [
        {"f1": b"{"},
        {"f1": b'{"key":1}'},
        {"f1": b"[]"},
        {"f1": b'{"key":"f1","path":"a","origin":"a","position":-1}'},
        {"f1": b'{"key":"f1","path":"a","origin":"a","position":102,"tail":[256,"00"]}'},
        {"f1": b'{"key":"f1","path":"a","origin":"a","head":[1000000000,"00"]}'},
        {"follower": b"{}"},
    ],
)
def test_saved_state_that_cannot_be_read_is_told(tmp_path: Path, saved: dict[str, bytes]) -> None:
    with pytest.raises(StateError, match=r"move the file at state\.path away"):
        Follower([str(tmp_path)], "end", saved)
