"""Lists files on disk: those that a source's patterns match, and their neighbours."""

# This runs at every poll over whole folders, where creating Path objects would cost more than reading.
# ruff: noqa: PTH112, PTH116, PTH120, PTH207

import glob
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from kvcache_exporter.requests.body import Body, open_body
from kvcache_exporter.requests.cursor import Cursor
from kvcache_exporter.requests.identity import FileId


class Found(NamedTuple):
    """A regular file."""

    path: str
    """Of the file itself if a pattern matched a symbolic link."""
    file: FileId
    size: int
    modified: int
    """Nanoseconds since 1970."""

    def is_shorter_than(self, cursor: Cursor) -> bool:
        """Whether the file is too short to open, and shorter than what the cursor has seen."""
        return self.size < min(2, max(cursor.position, cursor.head.size))


class Disk:
    """The files that a source's patterns matched at the last look."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = tuple(patterns)
        self.matched: dict[FileId, Found] = {}
        self.known: dict[FileId, Found] = {}
        """Matched files, and the neighbours of files that no longer match."""
        self.problems: dict[str, str] = {}
        """What could not be read since the last clear, by path."""
        self.unreadable: set[FileId] = set()
        """Files that could not be opened at the first attempt."""

    def look(self, cursors: Sequence[Cursor]) -> None:
        self.matched = matched_files(self._patterns, self.problems)
        # Only if there has never been a file: during a rotation there may be none for a moment.
        if not (self.matched or cursors or self.problems):
            patterns = ", ".join(self._patterns)
            self.problems[patterns] = f"no file matches {patterns}; correct paths, if one is written already"
        folders = {os.path.split(c.path)[0] for c in cursors if c.file not in self.matched}
        self.known = _neighbours(folders) | self.matched

    def open(self, found: Found) -> Body | None:
        """None if the file cannot be read, or is no longer the one that was found."""
        try:
            return open_body(found.path, found.file)
        except FileNotFoundError:
            return None
        except OSError as error:
            note(self.problems, found.path, error)
            self.unreadable.add(found.file)
            return None


def matched_files(patterns: Sequence[str], problems: dict[str, str]) -> dict[FileId, Found]:
    """Files that the patterns match, each once however many links it has."""
    files: dict[FileId, Found] = {}
    for pattern in patterns:
        for path in sorted(_paths(pattern, problems)):
            try:
                found = look_at(os.path.realpath(path))
            except OSError as error:
                note(problems, path, error)
                continue
            if found is not None:
                files.setdefault(found.file, found)
    return files


def _neighbours(folders: Iterable[str]) -> dict[FileId, Found]:
    """All regular files in the folders; skips folders and files that cannot be read."""
    files = (found for folder in sorted(folders) for found in _in_folder(folder))
    return {found.file: found for found in files}


def look_at(path: str) -> Found | None:
    """None if there is no regular file; raises OSError if that cannot be determined."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISREG(status.st_mode):
        return None
    return Found(path, (status.st_dev, status.st_ino), status.st_size, status.st_mtime_ns)


def note(problems: dict[str, str], path: str, error: OSError) -> None:
    advice = (
        "check that it is readable by user"
        if isinstance(error, PermissionError)
        else "check the volume; user"
    )
    problems[path] = (
        f"{path}: {error.strerror or error}; {advice} {os.geteuid()}; trying again at the next poll"
    )


def _paths(pattern: str, problems: dict[str, str]) -> list[str]:
    if not glob.has_magic(pattern):
        return [pattern]
    folder = os.path.dirname(pattern)
    while glob.has_magic(folder):
        folder = os.path.dirname(folder)
    if os.path.isdir(folder or ".") and not os.access(folder or ".", os.R_OK | os.X_OK):
        note(problems, folder, PermissionError(13, "Permission denied"))
    return glob.glob(pattern, recursive=True)


def _in_folder(folder: str) -> Iterator[Found]:
    try:
        with os.scandir(folder) as entries:
            names = [entry.path for entry in entries if entry.is_file(follow_symlinks=False)]
    except OSError:
        return
    for path in sorted(names):
        try:
            found = look_at(path)
        except OSError:
            continue
        if found is not None:
            yield found
