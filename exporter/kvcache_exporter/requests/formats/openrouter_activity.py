"""OpenRouter's activity export: CSV with a header; prompt tokens include cached ones, whatever the model."""

import csv
from collections.abc import Mapping, Sequence

import msgspec

from kvcache_exporter.errors import RecordError
from kvcache_exporter.model import RequestColumns, Skipped
from kvcache_exporter.requests.formats.base import Decoder, DecoderOptions, Entry
from kvcache_exporter.requests.formats.grouping import Template
from kvcache_exporter.requests.formats.labels import Labeller
from kvcache_exporter.requests.formats.lines import decode_snapshot
from kvcache_exporter.requests.formats.minimums import UNKNOWN_CONTRACT
from kvcache_exporter.requests.formats.rows import Reading, foreign
from kvcache_exporter.requests.formats.timestamps import timestamp
from kvcache_exporter.requests.formats.values import milliseconds, token

COLUMNS = (
    "generation_id", "created_at", "cost_total", "cost_web_search", "cost_cache", "cost_file_processing",
    "byok_usage_inference", "tokens_prompt", "tokens_completion", "tokens_reasoning", "tokens_cached",
    "model_permaslug", "provider_name", "variant", "cancelled", "streamed", "user", "finish_reason_raw",
    "finish_reason_normalized", "generation_time_ms", "time_to_first_token_ms", "api_key_disabled",
    "api_key_name", "app_name",
)  # fmt: skip
"""Header of November 2026, used if the file's own was not read (a log followed from its end)."""
_TELLING = {"generation_id", "tokens_prompt"}
_BOM = b"\xef\xbb\xbf"
_TRUE = ("true", "1", "t")


class ActivityDecoder:
    """Reads rows by the latest header."""

    def __init__(self, options: DecoderOptions) -> None:
        self._labels = Labeller(options, "openrouter", UNKNOWN_CONTRACT).labels
        self._template = Template(options.group_by or "app_name")
        self._columns: tuple[str, ...] = COLUMNS

    def decode(self, lines: Sequence[bytes]) -> list[Entry]:
        """An entry for each line."""
        return [self._entry(line) for line in lines]

    def _entry(self, line: bytes) -> Entry:
        try:
            return self._take(line.removeprefix(_BOM).strip())
        except UnicodeDecodeError:
            return RecordError("not_utf8", "the line is not UTF-8")
        except RecordError as error:
            return RecordError(error.reason, str(error))

    def _take(self, line: bytes) -> Entry:
        fields = _fields(line.decode())
        if set(fields) >= _TELLING:
            self._columns = tuple(fields)
            return Skipped("not_a_request")
        if len(fields) != len(self._columns):
            raise foreign("OpenRouter's activity export, or has more or fewer fields than its header")
        cell = dict(zip(self._columns, (field or None for field in fields), strict=True)).get
        prompt = token(cell("tokens_prompt"))
        if prompt is None:
            raise RecordError("no_usage", "the row has no count of prompt tokens")
        reading = Reading(
            prompt=prompt,
            cached=token(cell("tokens_cached")),
            output=token(cell("tokens_completion")),
            ttft=milliseconds(cell("time_to_first_token_ms")) if _is(cell("streamed")) else None,
            duration=milliseconds(cell("generation_time_ms")),
            at=timestamp(cell("created_at")),
            provider=(cell("provider_name") or "").lower(),
            model=cell("model_permaslug"),
            ending="cancelled" if _is(cell("cancelled")) else "",
            request_id=cell("generation_id"),
        )
        return reading.entry(self._labels(reading.provider, reading.model, self._template.fill(cell)))

    def columns(self, lines: Sequence[bytes]) -> list[Entry | RequestColumns]:
        """Entries that these lines finish."""
        return [*self.decode(lines)]

    def flush(self) -> list[Entry]:
        """Nothing is held back between lines."""
        return []

    def snapshot(self) -> bytes:
        """The header."""
        return b"" if self._columns == COLUMNS else msgspec.json.encode(self._columns)

    def restore(self, snapshot: bytes) -> None:
        """Raises StateError if the snapshot is not one of this format."""
        if snapshot:
            self._columns = decode_snapshot(snapshot, tuple[str, ...], OPENROUTER_ACTIVITY.name)


def _fields(text: str) -> list[str]:
    try:
        return next(csv.reader([text], strict=True), [])
    except csv.Error as error:
        raise RecordError("invalid", "a quoted field of the row does not end on its line") from error


def _is(text: str | None) -> bool:
    return (text or "").lower() in _TRUE


class OpenrouterActivity:
    """The format."""

    name = "openrouter_activity"

    def recognises(self, sample: Mapping[str, object]) -> bool:
        """Whether the sample has the columns of the header."""
        return sample.keys() >= _TELLING

    def decoder(self, options: DecoderOptions) -> Decoder:
        """A decoder that keeps the header."""
        return ActivityDecoder(options)


OPENROUTER_ACTIVITY = OpenrouterActivity()
