"""Any sequence of what loggers, logrotate and crashes do: each complete line is given exactly once."""

import gzip
import os
import shutil
import tempfile
import time
import zlib
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kvcache_exporter.requests.options import FollowOptions
from kvcache_exporter.requests.tail import Follower


class Content:
    """What one log holds, wherever its bytes are now."""

    def __init__(self) -> None:
        self.data = b""
        self.lost = False
        """It was destroyed before all of it was read for sure: its lines may be missing."""

    def lines(self) -> tuple[list[bytes], bytes]:
        *complete, rest = self.data.split(b"\n")
        return complete, rest


class LogWorld(RuleBasedStateMachine):
    """The wide pattern matches rotated files too, so anything may happen between two polls."""

    wide = True

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="tail"))
        self.log = self.folder / "a.log"
        self.contents: list[Content] = []
        self.live = self._new_content()
        self.late: Content | None = None
        self.at: dict[str, Content] = {}
        self.unseen_after_copy = b""
        self.phase = ""
        self.rest = b""
        self.late_rest = b""
        self.number = 0
        self.hours = 0
        self.shift = 0.0
        self.members = Content()
        self.contents.append(self.members)
        self.half_member = b""
        self.store: dict[str, bytes] = {}
        self.given: Counter[bytes] = Counter()
        self.committed: Counter[bytes] = Counter()
        self.lines = self.committed_lines = 0
        self.known = self.known_after_commit = False
        self.options = FollowOptions(
            clock=lambda: time.time() + self.shift, block_bytes=300, max_line_bytes=4000
        )
        self.log.touch()
        self.follower = self._start()

    def _new_content(self) -> Content:
        self.contents.append(Content())
        return self.contents[-1]

    def _start(self) -> Follower:
        patterns = ["a.log*", "h-*.log", "m.gz"] if self.wide else ["a.log", "h-*.log", "m.gz"]
        return Follower([str(self.folder / p) for p in patterns], "beginning", self.store, self.options)

    def _record(self, size: int) -> bytes:
        self.number += 1
        mark = b"%d." % self.number
        return b'{"n":%d,"pad":"%s"}' % (self.number, mark * (size // len(mark)))

    def _append(self, data: bytes) -> None:
        with self.log.open("ab") as file:
            file.write(data)
        self.live.data += data

    def teardown(self) -> None:
        try:
            self._complete()
            self._drain()
            self._check(final=True)
            self.crash()
            self._drain()
            self._check(final=True)
        finally:
            self.follower.close()
            shutil.rmtree(self.folder)

    # The logger.

    @rule(count=st.integers(1, 8), size=st.sampled_from([0, 0, 40, 300, 1500]))
    def write(self, count: int, size: int) -> None:
        self._append(self.rest + b"".join(self._record(size) + b"\n" for _ in range(count)))
        self.rest = b""

    @precondition(lambda self: not self.rest)
    @rule(share=st.floats(0, 1))
    def write_part(self, share: float) -> None:
        line = self._record(30) + b"\n"
        cut = 1 + int(share * (len(line) - 2))
        self._append(line[:cut])
        self.rest = line[cut:]

    @precondition(lambda self: self.rest)
    @rule()
    def write_rest(self) -> None:
        self._append(self.rest)
        self.rest = b""

    @precondition(lambda self: self.late is not None and not self.phase)
    @rule(half=st.booleans())
    def write_to_the_rotated_file(self, half: bool) -> None:
        assert self.late is not None
        data = self.late_rest or self._record(10) + b"\n"
        data, self.late_rest = (data[:4], data[4:]) if half and len(data) > 8 else (data, b"")
        with self._path_of(self.late).open("ab") as file:
            file.write(data)
        self.late.data += data

    @rule(count=st.integers(0, 3))
    def new_hour(self, count: int) -> None:
        self.hours += 1
        data = b"".join(self._record(0) + b"\n" for _ in range(count))
        (self.folder / f"h-{self.hours}.log").write_bytes(data)
        self._new_content().data = data

    @precondition(lambda self: not self.half_member)
    @rule(count=st.integers(1, 5), cut=st.sampled_from([0, 0, 3, 12, 25]))
    def gzip_member(self, count: int, cut: int) -> None:
        data = b"".join(self._record(20) + b"\n" for _ in range(count))
        member = gzip.compress(data)
        keep = len(member) - cut if cut else len(member)
        with (self.folder / "m.gz").open("ab") as file:
            file.write(member[:keep])
        self.half_member = member[keep:]
        self.members.data += data

    @precondition(lambda self: self.half_member)
    @rule()
    def rest_of_the_member(self) -> None:
        with (self.folder / "m.gz").open("ab") as file:
            file.write(self.half_member)
        self.half_member = b""

    # Rotation.

    def _may_rotate(self) -> bool:
        known = self.wide or self.known_after_commit
        return not self.phase and self.log.exists() and len(self.at) < 6 and known

    def _path_of(self, content: Content) -> Path:
        return self.folder / next(name for name, held in self.at.items() if held is content)

    def _shift_names(self) -> None:
        for number in range(len(self.at), 0, -1):
            for ending in ("", ".gz"):
                old, new = f"a.log.{number}{ending}", f"a.log.{number + 1}{ending}"
                if old in self.at:
                    (self.folder / old).rename(self.folder / new)
                    self.at[new] = self.at.pop(old)

    def _renewed(self) -> None:
        self.live = self._new_content()
        self.known = self.known_after_commit = False

    @precondition(lambda self: self._may_rotate())
    @rule(create=st.booleans())
    def rotate(self, create: bool) -> None:
        self._shift_names()
        self.log.rename(self.folder / "a.log.1")
        self.at["a.log.1"] = self.late = self.live
        self.late_rest, self.rest = self.rest, b""
        self._renewed()
        if create:
            self.log.touch()

    @precondition(lambda self: self._may_rotate())
    @rule(share=st.floats(0, 1))
    def begin_copy(self, share: float) -> None:
        self._shift_names()
        data = self.log.read_bytes()
        (self.folder / "a.log.1").write_bytes(data[: int(share * len(data))])
        self.at["a.log.1"] = self.live
        self.late = None
        self.phase = "copying"

    @precondition(lambda self: self.phase == "copying")
    @rule()
    def end_copy(self) -> None:
        copy = self.folder / "a.log.1"
        with copy.open("ab") as file:
            file.write(self.log.read_bytes()[copy.stat().st_size :])
        self.copied = len(self.live.data)
        self.phase = "copied"

    @precondition(lambda self: self.phase == "copied")
    @rule()
    def truncate_copied(self) -> None:
        race = Content()
        race.data, race.lost = self.live.data[self.copied :], True
        os.truncate(self.log, 0)
        if race.data:
            # The line that the copy cuts may come out whole, or never.
            start = self.live.data.rfind(b"\n", 0, self.copied) + 1
            race.data = self.live.data[start:]
            self.contents.append(race)
            self.live.data = self.live.data[: self.copied]
        self._renewed()
        self.phase = ""

    @precondition(lambda self: self._may_rotate())
    @rule(data=st.booleans())
    def copytruncate(self, data: bool) -> None:
        self.begin_copy(0.5)
        self.end_copy()
        self.truncate_copied()
        if data:
            self.write(3, 40)

    @precondition(lambda self: not self.phase and self.log.exists())
    @rule()
    def truncate(self) -> None:
        os.truncate(self.log, 0)
        self.live.lost = True
        self._renewed()

    def _plain(self) -> list[str]:
        return [name for name in sorted(self.at) if not name.endswith(".gz")]

    @precondition(lambda self: not self.phase and self._plain())
    @rule(share=st.floats(0, 1), pick=st.integers(0, 9))
    def begin_gzip(self, share: float, pick: int) -> None:
        name = self._plain()[pick % len(self._plain())]
        packer = zlib.compressobj(wbits=31)
        data = (self.folder / name).read_bytes()
        half = packer.compress(data[: len(data) // 2]) + packer.flush(zlib.Z_SYNC_FLUSH)
        self.packed = half + packer.compress(data[len(data) // 2 :]) + packer.flush()
        (self.folder / f"{name}.gz").write_bytes(self.packed[: int(share * len(self.packed))])
        self.packing = name
        if self.at[name] is self.late:
            self.late, self.late_rest = None, b""
        self.phase = "gzipping"

    @precondition(lambda self: self.phase == "gzipping")
    @rule()
    def end_gzip(self) -> None:
        with (self.folder / f"{self.packing}.gz").open("ab") as file:
            file.write(self.packed[file.tell() :])
        self.phase = "gzipped"

    @precondition(lambda self: self.phase == "gzipped")
    @rule()
    def remove_gzipped(self) -> None:
        (self.folder / self.packing).unlink()
        self.at[f"{self.packing}.gz"] = self.at.pop(self.packing)
        self.phase = ""

    # The exporter.

    @rule(budget=st.sampled_from([1, 400, 2000, 1_000_000]), chunks=st.sampled_from([1, 3, 1000, 1000]))
    def poll(self, budget: int, chunks: int) -> None:
        for chunk in self.follower.poll(budget):
            self.given.update(chunk.lines)
            self.lines += chunk.line_count
            chunks -= 1
            if not chunks:
                break
        self.known = any(line in self.given for line in self.live.lines()[0])

    @rule()
    def commit(self) -> None:
        puts, deletes = self.follower.positions()
        self.store.update(puts)
        for key in deletes:
            del self.store[key]
        self.follower.committed()
        self.committed, self.committed_lines = self.given.copy(), self.lines
        self.known_after_commit = self.known

    @rule()
    def crash(self) -> None:
        self.follower.close()
        self.given, self.lines = self.committed.copy(), self.committed_lines
        self.follower = self._start()
        self.known = self.known_after_commit

    @rule(seconds=st.sampled_from([5, 30, 100]))
    def time_passes(self, seconds: int) -> None:
        self.shift += seconds

    # What must hold.

    def _complete(self) -> None:
        if self.phase == "copying":
            self.end_copy()
        if self.phase == "copied":
            self.truncate_copied()
        if self.phase == "gzipping":
            self.end_gzip()
        if self.phase == "gzipped":
            self.remove_gzipped()
        if self.half_member:
            self.rest_of_the_member()

    def _drain(self) -> None:
        for _ in range(4):
            self.poll(10_000_000, -1)
            self.shift += 100

    @invariant()
    def nothing_twice(self) -> None:
        self._check(final=False)

    def _check(self, *, final: bool) -> None:
        required: Counter[bytes] = Counter()
        allowed: Counter[bytes] = Counter()
        for content in self.contents:
            complete, rest = content.lines()
            allowed.update(complete)
            allowed[rest] += 1
            if not content.lost:
                required.update(complete)
        assert self.given <= allowed, f"given too often: {self.given - allowed}"
        assert self.follower.counters.lines == self.lines
        if final:
            assert required <= self.given, f"never given: {required - self.given}"


class NarrowLogWorld(LogWorld):
    """Only the live file matches; a line of it was given and committed before it is rotated away."""

    wide = False


_SETTINGS = settings(
    max_examples=120, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestWidePattern = LogWorld.TestCase
TestWidePattern.settings = _SETTINGS
TestNarrowPattern = NarrowLogWorld.TestCase
TestNarrowPattern.settings = _SETTINGS
