"""Reads whole log files, plain, gzipped or from standard input, for commands that need no state."""

import io
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import msgspec

from kvcache_exporter.errors import KVCacheError
from kvcache_exporter.requests.body import GZIP_MAGIC
from kvcache_exporter.requests.framing import OVERFLOW, Framer
from kvcache_exporter.requests.lines import is_whole_json

Progress = Callable[[int, int], None]
"""Called with the bytes read so far and their total; 0 when the total is not known."""

_BLOCK = 512 * 1024
_BATCH = 4096
_LONGEST_LINE = 64 * 1024 * 1024
_LARGEST_DOCUMENT = 512 * 1024 * 1024
_BOM = b"\xef\xbb\xbf"
_decode_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_decode = msgspec.json.Decoder(msgspec.Raw).decode


def read_lines(
    path: str, progress: Progress | None = None, on_too_long: Callable[[], None] | None = None
) -> Iterator[list[bytes]]:
    """Batches of log records without their framing; `-` is standard input.

    A last line without a newline counts. A JSON document over many lines, of at most 512 MiB, gives the
    elements of its array, or itself. `on_too_long` is called for each line longer than 64 MiB, which is left
    out. Raises KVCacheError if the file cannot be read.
    """
    try:
        source, total = _open(path)
        with source:
            yield from _records(_unpacked(source, total, progress), on_too_long or (lambda: None))
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise KVCacheError(f"{path}: {reason}; give a readable log file, plain or gzipped") from error


def _open(path: str) -> tuple[BinaryIO, int]:
    if path == "-":
        return io.BufferedReader(io.FileIO(sys.stdin.fileno(), closefd=False)), 0
    file = Path(path)
    return file.open("rb"), file.stat().st_size


def _unpacked(source: BinaryIO, total: int, progress: Progress | None) -> Iterator[bytes]:
    """Blocks of content; a gzipped file may have many members and end in the middle of the last."""
    blocks = _blocks(source, total, progress)
    first = next(blocks, b"")
    if not first.startswith(GZIP_MAGIC):
        yield first
        yield from blocks
        return
    inflate = zlib.decompressobj(31)
    block: bytes | None = first
    while block is not None:
        while block:
            if inflate.eof:
                block, inflate = block.lstrip(b"\0"), zlib.decompressobj(31)
                continue
            yield inflate.decompress(block, _BLOCK)
            block = inflate.unused_data if inflate.eof else inflate.unconsumed_tail
        block = next(blocks, None)
    yield inflate.flush()


def _blocks(source: BinaryIO, total: int, progress: Progress | None) -> Iterator[bytes]:
    done = 0
    while block := source.read(_BLOCK):
        done += len(block)
        yield block
        if progress is not None:
            progress(done, total)


def _records(blocks: Iterator[bytes], on_too_long: Callable[[], None]) -> Iterator[list[bytes]]:
    begin = next((block for block in blocks if block.strip()), b"")
    if _may_be_document(begin):
        begin, elements = _document(begin, blocks)
        if elements is not None:
            yield from (elements[start : start + _BATCH] for start in range(0, len(elements), _BATCH))
            return
    framer = Framer(_LONGEST_LINE)
    for lines in _lines(chain([begin], blocks), on_too_long):
        records = framer.feed(lines)
        if records is not lines:
            for _ in range(sum(record is OVERFLOW for record in records)):
                on_too_long()
            records = [record for record in records if record is not OVERFLOW]
        if records:
            yield records


def _may_be_document(begin: bytes) -> bool:
    """Whether the first line may be the start of a JSON document over many lines, not a log entry."""
    text = begin.removeprefix(_BOM).lstrip()
    first, newline, _ = text.partition(b"\n")
    if text.startswith(b"["):
        return not (newline and is_whole_json(first))
    return first.rstrip() == b"{"


def _document(begin: bytes, blocks: Iterator[bytes]) -> tuple[bytes, list[bytes] | None]:
    """The bytes read so far and None, or b"" and the elements of the JSON document."""
    parts, size = [begin], len(begin)
    for block in blocks:
        parts.append(block)
        size += len(block)
        if size > _LARGEST_DOCUMENT:
            return b"".join(parts), None
    data = b"".join(parts)
    text = data.removeprefix(_BOM).strip()
    try:
        elements = _decode_list(text) if text.startswith(b"[") else [_decode(text)]
        return b"", [bytes(element) for element in elements]
    except (msgspec.DecodeError, RecursionError):
        return data, None


def _lines(blocks: Iterable[bytes], on_too_long: Callable[[], None]) -> Iterator[list[bytes]]:
    rest, dropping = b"", False
    for block in blocks:
        lines = (rest + block).split(b"\n")
        rest = lines.pop()
        if dropping and lines:
            del lines[0]
            dropping = False
        if lines:
            yield lines
        if len(rest) > _LONGEST_LINE and not dropping:
            dropping = True
            on_too_long()
        if dropping:
            rest = b""
    if rest:
        yield [rest]
