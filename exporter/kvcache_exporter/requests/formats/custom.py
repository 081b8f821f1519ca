"""`format: custom`: any JSON log, by a table of dotted paths in the configuration."""

from collections.abc import Mapping
from typing import Any

import msgspec

from kvcache_exporter.model import CUSTOM_LITERALS, CUSTOM_PATHS, RequestRecord, Skipped
from kvcache_exporter.requests.formats.base import Decoder, DecoderOptions, Entry
from kvcache_exporter.requests.formats.grouping import group_reader
from kvcache_exporter.requests.formats.labels import Labeller
from kvcache_exporter.requests.formats.lines import LineDecoder
from kvcache_exporter.requests.formats.minimums import Caching
from kvcache_exporter.requests.formats.paths import Paths
from kvcache_exporter.requests.formats.statuses import failure_of_status, status_word
from kvcache_exporter.requests.formats.tiers import tier
from kvcache_exporter.requests.formats.timestamps import timestamp
from kvcache_exporter.requests.formats.values import label, milliseconds, number, refusal, seconds, token


class _AnyObject(msgspec.Struct):
    """Accepts any object; its values are read by path."""


class CustomDecoder(LineDecoder):
    """Raises ValueError if the table of fields cannot be used."""

    def __init__(self, options: DecoderOptions) -> None:
        super().__init__(_AnyObject)
        check_fields(options.fields)
        paths = {name: path for name, path in options.fields.items() if name in CUSTOM_PATHS}
        if options.group_by:
            paths.pop("group", None)
        self._group_by = group_reader(options.group_by)
        self._paths = paths
        self._read = Paths(dict.fromkeys(paths.values())).read
        self._inclusive = options.fields.get("prompt_includes_cached", "true") == "true"
        contract = Caching(*(int(options.fields.get(n, "0")) for n in ("granule", "minimum_tokens")))
        self._fixed = {
            n: int(options.fields[n]) for n in ("granule", "minimum_tokens") if n in options.fields
        }
        self._labels = Labeller(options, "", contract._replace(granule=contract.granule or 1)).labels

    def _take(self, row: _AnyObject, line: bytes, entries: list[Entry]) -> None:  # noqa: ARG002
        found = self._read(line)
        value = {name: found[path] for name, path in self._paths.items()}.get
        group = value("group") if self._group_by is None else self._group_by(line)
        labels = self._labels(value("provider"), value("model_name"), group)
        provider, model_name, group, granule, minimum = labels
        at = timestamp(value("timestamp"))
        reason = failure_of_status(value("status"))
        if reason:
            entries.append(Skipped(reason, label(value("status")), provider, model_name, group, at))
            return
        prompt, cached, written = self._counts(value)
        entries.append(
            RequestRecord(
                prompt_tokens=prompt,
                cached_tokens=cached,
                written_tokens=written,
                output_tokens=token(value("output_tokens")),
                ttft_seconds=_time(value("ttft_seconds"), value("ttft_ms")),
                duration_seconds=_time(value("duration_seconds"), value("duration_ms")),
                timestamp=at,
                provider=provider,
                model_name=model_name,
                group=group,
                status=status_word(value("status")),
                request_id=label(value("request_id")),
                tier=tier(value("service_tier")),
                granule=self._fixed.get("granule", granule),
                minimum_tokens=self._fixed.get("minimum_tokens", minimum),
            )
        )

    def _counts(self, value: Any) -> tuple[int, int | None, int | None]:
        prompt, cached = token(value("prompt_tokens")), token(value("cached_tokens"))
        written = token(value("written_tokens"))
        if prompt is not None and not self._inclusive:
            prompt += (cached or 0) + (written or 0)
        if prompt is None or (cached or 0) + (written or 0) > prompt:
            raise refusal(prompt)
        return prompt, cached, written


def check_fields(fields: Mapping[str, str]) -> None:
    """Raises ValueError that says which entry of the table is wrong and what would be right."""
    known = (*CUSTOM_PATHS, *CUSTOM_LITERALS)
    for name, text in fields.items():
        if name not in known:
            raise ValueError(f"fields: unknown field {name!r}: use {', '.join(known)}")
        if name in {"granule", "minimum_tokens"} and not (text.isdecimal() and len(text) < 10):
            raise ValueError(f'fields.{name}: {text!r} is not a number of tokens: write for example "16"')
    if fields.get("prompt_includes_cached", "true") not in {"true", "false"}:
        raise ValueError('fields.prompt_includes_cached: write "true" or "false"')
    if not fields.get("prompt_tokens"):
        raise ValueError("fields.prompt_tokens: give the dotted path of the prompt token count")


def _time(in_seconds: Any, in_milliseconds: Any) -> float | None:
    return seconds(in_seconds) if number(in_seconds) is not None else milliseconds(in_milliseconds)


class Custom:
    """The format."""

    name = "custom"

    def recognises(self, sample: Mapping[str, object]) -> bool:  # noqa: ARG002
        """False: it needs a table of fields."""
        return False

    def decoder(self, options: DecoderOptions) -> Decoder:
        """A decoder that holds nothing back; raises ValueError if the table of fields cannot be used."""
        return CustomDecoder(options)


CUSTOM = Custom()
