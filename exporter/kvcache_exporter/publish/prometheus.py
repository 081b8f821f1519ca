"""Publishes rules to plain Prometheus: replaces files atomically and asks for a reload."""

import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import yaml

from kvcache_exporter.errors import UsageError
from kvcache_exporter.publish.changes import Change, named_differences
from kvcache_exporter.publish.client import ApiError, Client, PublishError
from kvcache_exporter.publish.mimir import groups_of

_YAML = {".yaml", ".yml"}
# Prometheus answers 500 when the new configuration is wrong, which does not get better by itself.
_RETRIED = (429, 502, 503, 504)


def write(path: Path, files: Mapping[str, str], *, dry_run: bool = False) -> list[Change]:
    """Writes all groups into the file `path`; if that is a folder, each file under its own name."""
    if path.is_dir():
        return [_write(path / name, text, dry_run=dry_run) for name, text in files.items()]
    if path.suffix not in _YAML:
        raise UsageError(f"--file {path}: expected an existing folder or a file ending in .yaml or .yml")
    if not path.parent.is_dir():
        raise UsageError(f"--file {path}: there is no folder {path.parent}; create it first")
    text = yaml.safe_dump({"groups": groups_of(files)}, sort_keys=False, allow_unicode=True, width=1000)
    return [_write(path, text, dry_run=dry_run)]


def reload(client: Client) -> None:
    try:
        client.post("/-/reload", retried=_RETRIED)
    except ApiError as error:
        if error.status in {403, 404, 405}:
            raise PublishError(
                f"{error}; the rules are written. Start Prometheus with --web.enable-lifecycle, "
                "or send it SIGHUP to make it read them"
            ) from error
        raise PublishError(
            f"{error}; the rules are written, but Prometheus still runs the old ones"
        ) from error


def _write(path: Path, text: str, *, dry_run: bool) -> Change:
    old = path.read_text() if path.exists() else None
    if old == text:
        return Change("unchanged", str(path))
    if not dry_run:
        _replace(path, text)
    if old is None:
        return Change("create", str(path), tuple(f'+ rule "{name}"' for name, _ in _named(text)))
    return Change("update", str(path), tuple(named_differences("rule", _named(text), _named(old))))


def _named(text: str) -> list[tuple[str, object]]:
    """Pairs of name and rule; none if the text is not a rule file."""
    try:
        groups = groups_of({"": text})
    except (yaml.YAMLError, TypeError, KeyError):
        return []
    return [(str(r.get("record") or r.get("alert")), r) for g in groups for r in g.get("rules") or []]


def _replace(path: Path, text: str) -> None:
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        # The name of the temporary file would only confuse.
        raise OSError(error.errno, error.strerror, str(path.parent)) from error
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            os.fchmod(file.fileno(), mode)
        Path(name).replace(path)
    except BaseException:
        with suppress(FileNotFoundError):
            Path(name).unlink()
        raise
