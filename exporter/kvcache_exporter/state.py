"""The state file: a small transactional key-value store that one process owns.

Counters and log positions that belong together go into one `commit`, so that after a crash the exporter
resumes from a moment at which they agreed.
"""

import contextlib
import fcntl
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from kvcache_exporter.errors import StateError

log = logging.getLogger(__name__)

APPLICATION_ID = 0x6B766331
SCHEMA_VERSION = 1
_BUSY_SECONDS = 5.0
_VOLUME_TROUBLE = ("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")

_LOG_PAGES = 32
"""Length of the write-ahead log, in pages of 4 KiB, at which it is emptied; SQLite's default of 1000 would
take 4 MB of a small volume for good."""
_ID_OFFSET = 68
"""Of the application id in the header of an SQLite file."""
_BESIDE = ("", "-wal", "-journal")

_SCHEMA = """
CREATE TABLE entries (
  namespace TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (namespace, key)
) WITHOUT ROWID
"""


class StateStore:
    """A store at `path`; None keeps it in memory, where nothing survives a restart.

    A damaged state file is renamed and an empty one started. Raises StateError if the file is another
    program's, of another version, or in use by a running process. Safe to use from any thread.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._owner = None if path is None else _own(path)
        self.lost_at: float | None = None
        """Unix time at which a damaged file was set aside; None if that did not happen."""
        try:
            self._db = self._opened()
        except BaseException:
            self._disown()
            raise

    def load(self, namespace: str) -> dict[str, bytes]:
        with self._lock:
            try:
                query = "SELECT key, value FROM entries WHERE namespace = ?"
                return dict(self._db.execute(query, (namespace,)))
            except sqlite3.Error as error:
                raise self._unusable(error) from error

    def commit(
        self,
        puts: Mapping[tuple[str, str], bytes],
        deletes: Iterable[tuple[str, str]] = (),
        *,
        durable: bool = False,
    ) -> None:
        """Apply everything in one transaction, or nothing; keys are (namespace, key).

        `durable` waits until this and all earlier commits are on disk, safe from a power failure.
        """
        with self._lock:
            try:
                self._db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
                self._commit(puts, deletes)
            except sqlite3.Error as error:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                with contextlib.suppress(sqlite3.Error):
                    # SQLite empties its log only after a successful commit, for which there may be no room.
                    self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                raise self._unusable(error) from error

    def close(self) -> None:
        with self._lock:
            self._db.close()
            self._disown()

    def _commit(self, puts: Mapping[tuple[str, str], bytes], deletes: Iterable[tuple[str, str]]) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        self._db.executemany("DELETE FROM entries WHERE namespace = ? AND key = ?", deletes)
        rows = ((namespace, key, value) for (namespace, key), value in puts.items())
        self._db.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", rows)
        self._db.execute("COMMIT")

    def _opened(self) -> sqlite3.Connection:
        try:
            return self._open()
        except _DamagedError as error:
            if self._path is None or not _is_ours(self._path):
                advice = "move it away to start anew, or choose another state.path"
                raise StateError(f"{error}; {advice}") from error
            self.lost_at = time.time()
            aside = _set_aside(self._path, self.lost_at)
            log.error(  # noqa: TRY400 - the message says it all
                "%s; it is kept as %s, and log positions and counters start anew", error, aside
            )
            return self._open()

    def _open(self) -> sqlite3.Connection:
        try:
            db = sqlite3.connect(
                ":memory:" if self._path is None else self._path,
                timeout=_BUSY_SECONDS,
                isolation_level=None,
                check_same_thread=False,
            )
        except sqlite3.Error as error:
            raise self._unusable(error) from error
        try:
            self._prepare(db)
        except sqlite3.Error as error:
            db.close()
            raise self._unusable(error) from error
        except StateError:
            db.close()
            raise
        return db

    def _prepare(self, db: sqlite3.Connection) -> None:
        if not _pragma(db, "application_id"):
            self._create(db)
        if _pragma(db, "application_id") != APPLICATION_ID:
            raise StateError(
                f"{self._path}: is the database of another program; set state.path to a file of its own"
            )
        if (version := _pragma(db, "user_version")) != SCHEMA_VERSION:
            raise StateError(
                f"{self._path}: has schema version {version}, this exporter knows {SCHEMA_VERSION}; "
                "run the version that wrote it, or move the file away (counting then starts anew)"
            )
        # The only process that uses the file needs no shared memory for its write-ahead log.
        db.execute("PRAGMA locking_mode = EXCLUSIVE")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
        (verdict,) = db.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise sqlite3.DatabaseError(verdict)

    def _create(self, db: sqlite3.Connection) -> None:
        db.execute("BEGIN IMMEDIATE")
        tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables == (0,):
            db.execute(_SCHEMA)
            db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        db.execute("COMMIT")

    def _unusable(self, error: sqlite3.Error) -> StateError:
        where = self._path or "state in memory"
        code = getattr(error, "sqlite_errorname", "")
        if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            return StateError(
                f"{where}: another program has it open; close that or choose another state.path"
            )
        if code.startswith(_VOLUME_TROUBLE):
            return StateError(f"{where}: {error}; check that the volume has space left and is writable")
        return _DamagedError(f"{where}: is damaged or not a state file ({' '.join(str(error).split())})")

    def _disown(self) -> None:
        if self._owner is not None:
            os.close(self._owner)
            self._owner = None


class _DamagedError(StateError):
    """SQLite cannot read the file."""


def _is_ours(path: Path) -> bool:
    """Whether a damaged file was a state file: a wrong path in the configuration must not rename others."""
    with path.open("rb") as file:
        head = file.read(_ID_OFFSET + 4)
    # A machine that lost power may leave a file of zeros.
    return not head.strip(b"\0") or head[_ID_OFFSET:] == APPLICATION_ID.to_bytes(4, "big")


def _set_aside(path: Path, now: float) -> Path:
    """Rename the file and its log, to be looked at later."""
    aside = path.with_name(f"{path.name}.damaged-{now:.0f}")
    try:
        for ending in _BESIDE:
            file = path.with_name(path.name + ending)
            if file.exists():
                file.rename(aside.with_name(aside.name + ending))
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise _cannot_write(path, error) from error
    return aside


def _pragma(db: sqlite3.Connection, name: str) -> int:
    (value,) = db.execute(f"PRAGMA {name}").fetchone()
    return int(value)


def _own(path: Path) -> int:
    """Lock `<path>.lock` for this process and create the state file readable by its owner only."""
    try:
        lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _cannot_write(path, error) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except BlockingIOError as error:
        owner = os.pread(lock, 20, 0).decode("ascii", "replace") or "unknown"
        os.close(lock)
        raise StateError(
            f"{path}: in use by another exporter (process {owner}); "
            "stop it or give this one its own state.path"
        ) from error
    except OSError as error:
        os.close(lock)
        raise _cannot_write(path, error) from error
    return lock


def _cannot_write(path: Path, error: OSError) -> StateError:
    return StateError(
        f"{path}: {error.strerror}; state.path must be a file in an existing folder "
        f"that user {os.geteuid()} may write to"
    )
