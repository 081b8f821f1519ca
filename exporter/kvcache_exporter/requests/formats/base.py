"""What a log format is: something that makes decoders, which turn log lines into entries."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kvcache_exporter.errors import RecordError
from kvcache_exporter.model import Aggregate, RequestColumns, RequestRecord, Skipped
from kvcache_exporter.requests.formats.seen import Seen

Entry = RequestRecord | Aggregate | Skipped | RecordError
"""What one log entry comes to. A RecordError is returned, not raised: one bad line never stops a batch."""


@dataclass(frozen=True, slots=True)
class DecoderOptions:
    """What the configuration of a source adds to its records."""

    group_by: str = ""
    """Dotted path of the field that names the prompt group (`metadata.route`); "" takes the format's own."""
    model_name: str = ""
    """Model name for records that carry none."""
    provider: str = ""
    """Provider for records that carry none."""
    granule: int = 0
    """Tokens that the engine caches at a time, where the configuration says; 0 takes the provider's."""
    fields: Mapping[str, str] = field(default_factory=dict)
    """Only for formats whose keys the operator chooses: dotted path by field name."""
    seen: Seen = field(default_factory=Seen)
    """Ids of the requests counted so far, one window for all files of a source."""


class Decoder(Protocol):
    """Decodes the lines of one file, in order; may hold back entries that need later lines."""

    def decode(self, lines: Sequence[bytes]) -> list[Entry]:
        """Entries that these complete lines finish; a line may give none (half an event) or many."""
        ...

    def columns(self, lines: Sequence[bytes]) -> list[Entry | RequestColumns]:
        """As `decode`, with requests in columns where that costs less: what is counted is the same."""
        ...

    def flush(self) -> list[Entry]:
        """Entries that will get no more lines: at the end of a file that nobody appends to."""
        ...

    def snapshot(self) -> bytes:
        """What is held back, for the state file; holds no prompt text. b"" when nothing is."""
        ...

    def restore(self, snapshot: bytes) -> None:
        """Take up what `snapshot` gave."""
        ...


class Format(Protocol):
    """One log format; instances stand in the tuple FORMATS."""

    @property
    def name(self) -> str: ...

    def recognises(self, sample: Mapping[str, object]) -> bool:
        """Whether a decoded log entry looks like this format; used by `format: auto`."""
        ...

    def decoder(self, options: DecoderOptions) -> Decoder:
        """A fresh decoder for one file."""
        ...
