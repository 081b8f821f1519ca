"""The interface of log formats: a format makes decoders, which turn log lines into entries."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kvcache_exporter.errors import RecordError
from kvcache_exporter.model import Aggregate, RequestColumns, RequestRecord, Skipped
from kvcache_exporter.requests.formats.seen import Seen

Entry = RequestRecord | Aggregate | Skipped | RecordError
"""The result of one log entry. A RecordError is returned, not raised: one bad line never stops a batch."""


@dataclass(frozen=True, slots=True)
class DecoderOptions:
    """The options of a source that concern its format."""

    group_by: str = ""
    """Dotted path of the field with the prompt group (`metadata.route`); "" for the format's default."""
    model_name: str = ""
    """Model name for records without one."""
    provider: str = ""
    """Provider for records without one."""
    granule: int = 0
    """Tokens that the engine caches at a time; 0 for the provider's default."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Dotted paths by field name, for formats whose keys the operator chooses."""
    seen: Seen = field(default_factory=Seen)
    """Ids of the requests counted so far, one window for all files of a source."""


class Decoder(Protocol):
    """Decodes the lines of one file, in order; may hold entries back that need later lines."""

    def decode(self, lines: Sequence[bytes]) -> list[Entry]:
        """Entries that these lines complete; a line may complete none (half an event) or many."""
        ...

    def columns(self, lines: Sequence[bytes]) -> list[Entry | RequestColumns]:
        """As `decode`, with requests in columns where that is cheaper; the counts are the same."""
        ...

    def flush(self) -> list[Entry]:
        """Entries held back, at the end of a file that is no longer appended to."""
        ...

    def snapshot(self) -> bytes:
        """The entries held back, for the state file, without any prompt text; b"" if there are none."""
        ...

    def restore(self, snapshot: bytes) -> None:
        """Restore the state that `snapshot` returned."""
        ...


class Format(Protocol):
    """One log format; the tuple FORMATS lists them."""

    @property
    def name(self) -> str: ...

    def recognises(self, sample: Mapping[str, object]) -> bool:
        """Whether a decoded log entry looks like this format, for `format: auto`."""
        ...

    def decoder(self, options: DecoderOptions) -> Decoder:
        """A fresh decoder for one file."""
        ...
