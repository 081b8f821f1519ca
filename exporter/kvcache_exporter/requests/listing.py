"""The files on disk: those that a source's patterns match, and their neighbours."""

# Runs at every poll over whole folders, where a Path per file would cost more than the reading.
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
    """Of the file itself where a pattern matched a symbolic link."""
    file: FileId
    size: int
    modified: int
    """Nanoseconds since 1970."""

    def is_shorter_than(self, cursor: Cursor) -> bool:
        """Whether so little is in the file that it is not opened, and the cursor has seen more."""
        return self.size < min(2, max(cursor.position, cursor.head.size))


class Disk:
    """What a source's patterns match, as of the last look, and a way to open it."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = tuple(patterns)
        self.matched: dict[FileId, Found] = {}
        self.known: dict[FileId, Found] = {}
        """Those matched, and the neighbours of files that are matched no more."""
        self.problems: dict[str, str] = {}
        """What could not be read since this was cleared, by path."""
        self.unreadable: set[FileId] = set()
        """Files that could not be opened when they were first tried."""

    def look(self, cursors: Sequence[Cursor]) -> None:
        self.matched = matched_files(self._patterns, self.problems)
        # Not between two files of a rotation: only while there was never a file.
        if not (self.matched or cursors or self.problems):
            patterns = ", ".join(self._patterns)
            self.problems[patterns] = f"no file matches {patterns}; correct paths, if one is written already"
        folders = {os.path.split(c.path)[0] for c in cursors if c.file not in self.matched}
        self.known = _neighbours(folders) | self.matched

    def open(self, found: Found) -> Body | None:
        """None when the file cannot be read, or is not what was found any more."""
        try:
            return open_body(found.path, found.file)
        except FileNotFoundError:
            return None
        except OSError as error:
            note(self.problems, found.path, error)
            self.unreadable.add(found.file)
            return None


def matched_files(patterns: Sequence[str], problems: dict[str, str]) -> dict[FileId, Found]:
    """Files that the patterns match, by path; each once, whatever its links."""
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
    """All regular files in the folders; folders and files that cannot be read are passed over."""
    files = (found for folder in sorted(folders) for found in _in_folder(folder))
    return {found.file: found for found in files}


def look_at(path: str) -> Found | None:
    """None when there is no regular file. Raises OSError when that cannot be found out."""
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
