"""The state file: all or nothing, one owner, and clear words when it cannot be used."""

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvcache_exporter
from kvcache_exporter.errors import StateError
from kvcache_exporter.state import StateStore

SOURCE = str(Path(kvcache_exporter.__file__).parents[1])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.sqlite"


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, path: Path) -> Iterator[StateStore]:
    store = StateStore(path if request.param == "file" else None)
    yield store
    store.close()


def test_namespaces_are_apart(store: StateStore) -> None:
    store.commit({("a", "k"): b"1", ("b", "k"): b"2"})
    store.commit({("a", "k"): b"3"}, [("b", "k"), ("b", "never there")])
    assert (store.load("a"), store.load("b")) == ({"k": b"3"}, {})


def test_failed_commit_changes_nothing(store: StateStore) -> None:
    store.commit({("a", "k"): b"1"})
    with pytest.raises(StateError):
        store.commit({("a", "k"): b"2", ("a", "l"): None}, [("a", "k")])  # type: ignore[dict-item]
    assert store.load("a") == {"k": b"1"}
    store.commit({("a", "k"): b"3"})
    assert store.load("a") == {"k": b"3"}


def test_put_wins_over_delete_of_the_same_key(store: StateStore) -> None:
    store.commit({("a", "k"): b"1"}, [("a", "k")])
    assert store.load("a") == {"k": b"1"}


def test_another_thread_may_write(store: StateStore) -> None:
    thread = threading.Thread(target=store.commit, args=({("a", "k"): b"1"},))
    thread.start()
    thread.join()
    assert store.load("a") == {"k": b"1"}


KEYS = st.tuples(st.sampled_from("ab"), st.sampled_from(["", "x", "ü"]))
COMMITS = st.lists(st.tuples(st.dictionaries(KEYS, st.binary(max_size=5)), st.lists(KEYS)), max_size=6)


@settings(max_examples=30, deadline=None)
@given(commits=COMMITS)
def test_what_was_committed_is_there_after_reopening(
    commits: list[tuple[dict[tuple[str, str], bytes], list[tuple[str, str]]]],
) -> None:
    expected: dict[tuple[str, str], bytes] = {}
    with tempfile.TemporaryDirectory() as folder:
        for puts, deletes in commits:
            store = StateStore(Path(folder) / "s")
            store.commit(puts, deletes)
            store.close()
            expected = {key: value for key, value in expected.items() if key not in deletes} | puts
        store = StateStore(Path(folder) / "s")
        found = {(space, key): value for space in "ab" for key, value in store.load(space).items()}
        store.close()
    assert found == expected


def test_only_the_owner_may_read_the_file(path: Path) -> None:
    store = StateStore(path)
    store.commit({("a", "k"): b"1"})
    modes = {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    store.close()
    assert modes == {0o600}


def test_second_owner_is_told_who_the_first_is(path: Path) -> None:
    store = StateStore(path)
    with pytest.raises(
        StateError, match=rf"in use by another exporter \(process {os.getpid()}\); stop it or"
    ):
        StateStore(path)
    store.close()
    StateStore(path).close()


def test_killed_owner_leaves_its_last_commit_and_no_lock(path: Path) -> None:
    code = (
        "import sys, pathlib; from kvcache_exporter.state import StateStore\n"
        "store = StateStore(pathlib.Path(sys.argv[1]))\n"
        "for n in range(10**9):\n"
        "    store.commit({('a', 'x'): b'%d' % n, ('b', 'y'): b'%d' % n}); print(n, flush=True)\n"
    )
    writer = subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": SOURCE},
    )
    assert writer.stdout is not None
    with writer, writer.stdout:
        told = [writer.stdout.readline() for _ in range(50)][-1]
        writer.send_signal(signal.SIGKILL)
    store = StateStore(path)
    one, other = store.load("a")["x"], store.load("b")["y"]
    store.close()
    assert one == other
    assert int(one) >= int(told)


def test_damaged_file_is_told(path: Path) -> None:
    path.write_bytes(b"no database at all, but long enough to look like one" * 100)
    with pytest.raises(StateError, match=r"state\.sqlite: is damaged or not a state file .*move it away"):
        StateStore(path)


def test_a_damaged_state_file_is_set_aside_and_a_new_one_begun(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = StateStore(path)
    store.commit({("a", str(n)): os.urandom(500) for n in range(200)})
    store.close()
    data = bytearray(path.read_bytes())
    data[4096:] = os.urandom(len(data) - 4096)
    path.write_bytes(data)
    store = StateStore(path)
    assert store.load("a") == {}
    assert store.lost_at == pytest.approx(time.time(), abs=60)
    store.commit({("a", "x"): b"1"})
    store.close()
    (aside,) = path.parent.glob("state.sqlite.damaged-*")
    assert aside.read_bytes() == bytes(data)
    assert f"{path}: is damaged or not a state file" in caplog.text
    assert f"it is kept as {aside}, and log positions and counters start anew" in caplog.text
    store = StateStore(path)
    assert (store.load("a"), store.lost_at) == ({"x": b"1"}, None)
    store.close()


@pytest.mark.parametrize("size", [100, 4096, 50_000])
def test_a_file_of_zeros_as_power_loss_leaves_it_is_set_aside(path: Path, size: int) -> None:
    path.write_bytes(bytes(size))
    store = StateStore(path)
    assert store.lost_at is not None
    store.close()
    assert len(list(path.parent.glob("state.sqlite.damaged-*"))) == 1


def test_a_damaged_write_ahead_log_loses_no_more_than_itself(path: Path) -> None:
    store = StateStore(path)
    store.commit({("a", "x"): b"1"})
    copy = {name: path.with_name(path.name + name).read_bytes() for name in ("", "-wal")}
    store.close()
    path.write_bytes(copy[""])
    path.with_name(path.name + "-wal").write_bytes(os.urandom(len(copy["-wal"])))
    store = StateStore(path)
    store.commit({("a", "y"): b"2"})
    assert store.load("a")["y"] == b"2"
    store.close()


@settings(max_examples=40)
@given(cuts=st.lists(st.tuples(st.integers(0, 60_000), st.binary(min_size=1, max_size=300)), max_size=4))
def test_whatever_happened_to_the_file_there_is_a_store_or_a_state_error(
    whole: bytes, cuts: list[tuple[int, bytes]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.sqlite"
        data = bytearray(whole)
        for at, junk in cuts:
            data[at : at + len(junk)] = junk
        path.write_bytes(data)
        try:
            store = StateStore(path)
            store.load("a")
            store.commit({("b", "x"): b"1"})
            store.close()
        except StateError:
            pass


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A state file with entries."""
    path = tmp_path_factory.mktemp("whole") / "state.sqlite"
    store = StateStore(path)
    store.commit({("a", str(n)): b"entry %d" % n * 20 for n in range(200)})
    store.close()
    return path.read_bytes()


def test_database_of_another_program_is_left_alone(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE theirs (x)")
    db.commit()
    db.close()
    before = path.read_bytes()
    with pytest.raises(StateError, match=r"database of another program; set state.path"):
        StateStore(path)
    assert path.read_bytes() == before


def test_other_schema_version_is_told(path: Path) -> None:
    StateStore(path).close()
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(StateError, match="schema version 99, this exporter knows 1; run the version"):
        StateStore(path)


def test_missing_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(StateError, match=r"nowhere/s: No such file or directory; state.path must be"):
        StateStore(tmp_path / "nowhere" / "s")


def test_database_held_open_by_another_program_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvcache_exporter.state._BUSY_SECONDS", 0.05)
    StateStore(path).close()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    try:
        with pytest.raises(StateError, match="another program has it open"):
            StateStore(path)
    finally:
        other.close()
