"""Targets from files in Prometheus's file_sd format, JSON or YAML, read again when they change."""

import glob
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlencode

import msgspec
import yaml

from kvcache_exporter.config import Address, TargetGroup, is_url_path, label_name_problem, parse_address
from kvcache_exporter.targets.base import DiscoveryError, Target, make_target
from kvcache_exporter.targets.polled import PolledDiscovery

MAX_FILE_BYTES = 16 << 20
_PARAMETER = "__param_"
_Stamp = tuple[int, int, int]


@dataclass(frozen=True)
class _Known:
    stamp: _Stamp
    targets: tuple[Target, ...]


class FileSdDiscovery(PolledDiscovery):
    """A file that becomes invalid keeps its last targets; a removed file loses them."""

    key: ClassVar[str] = "file"

    def __init__(self, group: TargetGroup) -> None:
        if group.file is None:
            raise ValueError("the group has no file")
        super().__init__(group, f"file {group.file.path}", group.file.refresh)
        self._pattern = group.file.path
        self._known: dict[str, _Known] = {}

    def look(self) -> Sequence[Target]:
        known: dict[str, _Known] = {}
        for file in sorted(glob.glob(self._pattern)):  # noqa: PTH207 - Path.glob takes no absolute patterns
            read = self._read(file, self._known.get(file))
            if read is not None:
                known[file] = read
        self._known = known
        return [target for file_targets in known.values() for target in file_targets.targets]

    def _read(self, file: str, before: _Known | None) -> _Known | None:
        try:
            status = Path(file).stat()
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
            if before is not None and before.stamp == stamp:
                return before
            return _Known(stamp, tuple(read_targets(self._group, file)))
        except OSError as error:
            self.report("unreadable", f"{file}: cannot be read: {error.strerror}")
        except DiscoveryError as error:
            self.report(error.reason, f"{file}: {error}")
        return before


def read_targets(group: TargetGroup, file: str) -> Iterable[Target]:
    """Raises DiscoveryError with the position in the file and what was expected there."""
    document = _load(file)
    if not isinstance(document, list):
        raise DiscoveryError("expected a list of groups such as [{targets: [host:port], labels: {}}]")
    for number, entry in enumerate(document):
        yield from _group_targets(group, entry, f"[{number}]")


def _load(file: str) -> Any:
    with Path(file).open("rb") as opened:
        data = opened.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise DiscoveryError(f"larger than {MAX_FILE_BYTES} bytes; split it")
    try:
        return msgspec.json.decode(data) if file.endswith(".json") else yaml.load(data, _YamlLoader)  # noqa: S506
    except (msgspec.DecodeError, yaml.YAMLError) as error:
        raise DiscoveryError(" ".join(str(error).split())) from None
    except (ValueError, OverflowError, RecursionError, TypeError) as error:
        raise DiscoveryError(f"not valid: {error}") from None


_YamlLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _group_targets(group: TargetGroup, entry: Any, where: str) -> Iterable[Target]:
    if not isinstance(entry, dict) or not entry.keys() <= {"targets", "labels"}:
        raise DiscoveryError(f"{where}: expected a mapping with targets and labels, and nothing else")
    addresses, labels = entry.get("targets", []), entry.get("labels") or {}
    if not isinstance(addresses, list) or not all(isinstance(text, str) for text in addresses):
        raise DiscoveryError(f"{where}.targets: expected a list of addresses as text")
    if not isinstance(labels, dict) or not all(
        isinstance(text, str) for pair in labels.items() for text in pair
    ):
        raise DiscoveryError(
            f"{where}.labels: expected a mapping of names to text; quote numbers and booleans"
        )
    own = _own_labels(labels, f"{where}.labels")
    steered = _steered(group, labels, f"{where}.labels")
    parameters = {k.removeprefix(_PARAMETER): v for k, v in labels.items() if k.startswith(_PARAMETER)}
    query = f"?{urlencode(parameters, errors='replace')}" if parameters else ""
    for number, text in enumerate(addresses):
        target = make_target(steered, _address(text, f"{where}.targets[{number}]"), own)
        yield replace(target, namespace=labels.get("namespace", ""), url=target.url + query)


def _address(text: str, where: str) -> Address:
    try:
        return parse_address(text)
    except ValueError as error:
        raise DiscoveryError(f"{where}: {error}") from None


def _own_labels(labels: dict[str, str], where: str) -> tuple[tuple[str, str], ...]:
    """The labels without Prometheus's own `__` labels; `namespace` is set separately."""
    own = {k: v for k, v in labels.items() if not k.startswith("__") and k != "namespace"}
    for name in own:
        problem = label_name_problem(name)
        if problem:
            raise DiscoveryError(f"{where}.{name}: {problem}")
    return tuple(own.items())


def _steered(group: TargetGroup, labels: dict[str, str], where: str) -> TargetGroup:
    scheme = labels.get("__scheme__", group.url_scheme)
    path = labels.get("__metrics_path__", group.path)
    if scheme not in ("http", "https"):
        raise DiscoveryError(f'{where}.__scheme__: found "{scheme}", expected http or https')
    if not is_url_path(path):
        raise DiscoveryError(f'{where}.__metrics_path__: found "{path}", expected a path such as /metrics')
    return replace(group, scheme=scheme, path=path)
