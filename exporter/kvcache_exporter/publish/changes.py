"""The changes that publishing makes, and their description for people."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Action = Literal["create", "update", "delete", "unchanged"]
_DONE = {"create": "created", "update": "updated", "delete": "deleted"}
_LONGEST_VALUE = 160


@dataclass(frozen=True, slots=True)
class Change:
    action: Action
    what: str
    details: tuple[str, ...] = ()

    def text(self, *, dry_run: bool) -> str:
        if self.action == "unchanged":
            return f"unchanged: {self.what}"
        head = f"would {self.action}: {self.what}" if dry_run else f"{_DONE[self.action]}: {self.what}"
        return "\n".join([head, *(f"  {line}" for line in self.details)])


def differences(ours: Any, theirs: Any, path: str = "", *, exact: bool = True) -> Iterator[str]:
    """Where `theirs` differs from `ours`, as lines `path: theirs -> ours`.

    Unless `exact`, keys that only `theirs` has are ignored, as servers add some by themselves.
    """
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        for key in [*ours, *(k for k in theirs if exact and k not in ours)]:
            name = f"{path}.{key}" if path else str(key)
            yield from differences(ours.get(key), theirs.get(key), name, exact=exact)
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for number, (own, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(own, other, f"{path}[{number}]", exact=exact)
    elif ours != theirs:
        yield f"{path}: {_short(theirs)} -> {_short(ours)}"


def named_differences(
    kind: str, ours: Iterable[tuple[str, Any]], theirs: Iterable[tuple[str, Any]], *, exact: bool = True
) -> Iterator[str]:
    """Compares named items: `+ panel "a"`, `- panel "b"`, `~ panel "c" field: x -> y`."""
    wanted, found = _numbered(ours), _numbered(theirs)
    yield from (f'+ {kind} "{name}"' for name in wanted if name not in found)
    yield from (f'- {kind} "{name}"' for name in found if name not in wanted)
    for name in (name for name in wanted if name in found):
        for line in differences(wanted[name], found[name], exact=exact):
            yield f'~ {kind} "{name}" {line}'


def _numbered(items: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Items by name; a second one with the same name becomes `name #2`."""
    numbered: dict[str, Any] = {}
    seen: dict[str, int] = {}
    for name, item in items:
        seen[name] = seen.get(name, 0) + 1
        numbered[name if seen[name] == 1 else f"{name} #{seen[name]}"] = item
    return numbered


def _short(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."
