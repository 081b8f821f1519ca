"""Reads the user's own prompts; their text is sent to the engine and nowhere else."""

import hashlib
from pathlib import Path

import msgspec

from kvcache_exporter.coldtest.load import Messages
from kvcache_exporter.errors import UsageError

MAX_FILE_BYTES = 1 << 28


class _Message(msgspec.Struct):
    role: str
    content: str


class _Line(msgspec.Struct):
    messages: list[_Message] | None = None
    prompt: str | None = None


def read_prompts(path: Path) -> tuple[list[Messages], str]:
    """The prompts of a file with a JSON object on each line, and the file's SHA-256.

    Raises UsageError that names the line, never its text.
    """
    if path.stat().st_size > MAX_FILE_BYTES:
        raise UsageError(f"{path}: larger than {MAX_FILE_BYTES >> 20} MiB: give fewer prompts")
    data = path.read_bytes()
    lines = [(number, line) for number, line in enumerate(data.splitlines(), 1) if line.strip()]
    if not lines:
        raise UsageError(f"{path}: no prompt in it; expected {_EXPECTED} on each line")
    return [_messages(path, number, line) for number, line in lines], hashlib.sha256(data).hexdigest()


_EXPECTED = '{"messages": [{"role": "user", "content": "..."}, ...]} or {"prompt": "..."}'


def _messages(path: Path, number: int, line: bytes) -> Messages:
    try:
        found = msgspec.json.decode(line, type=_Line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        found = _Line()
    if found.messages:
        return [{"role": message.role, "content": message.content} for message in found.messages]
    if found.prompt:
        return [{"role": "user", "content": found.prompt}]
    raise UsageError(f"{path}:{number}: expected {_EXPECTED}, contents as text")
