"""The exceptions of the exporter.

KVCacheError
├── ConfigError      the configuration cannot be used; holds every problem found
│   └── UsageError   an option or argument of a command cannot be used
├── ScrapeError      one target could not be read; its reason is a closed label value
├── PricesError      a price table cannot be used
├── ProbeError       a probe was not made; its reason is a closed label value
├── RecordError      one log line could not be read; its reason is a closed label value
└── StateError       the state file cannot be used
"""

from collections.abc import Sequence

START_OVER = "move the file at state.path away to start over, or run the version that wrote it"
"""What to do about saved state that cannot be read."""


class KVCacheError(Exception):
    """Base of everything the exporter raises on purpose."""


class ConfigError(KVCacheError):
    """The configuration cannot be used; `problems` holds `file:line:column: path: message` lines."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class UsageError(ConfigError):
    """An option or argument cannot be used: what argparse alone cannot tell."""

    def __init__(self, message: str) -> None:
        super().__init__([message])


class ScrapeError(KVCacheError):
    """A target gave no usable page; `reason` is a value of the catalogue's SCRAPE_FAILURE_REASONS."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class PricesError(KVCacheError):
    """The price table cannot be read, or holds no price."""


class ProbeError(KVCacheError):
    """/probe did not ask the target; `reason` is a value of the catalogue's PROBE_REFUSALS."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class RecordError(KVCacheError):
    """A log line gave no usable record; `reason` is a value of the catalogue's PARSE_FAILURE_REASONS.

    The message never quotes the line: lines may hold prompt text.
    """

    def __init__(self, reason: str, message: str = "") -> None:
        super().__init__(message or reason)
        self.reason = reason


class StateError(KVCacheError):
    """The state file is damaged, of another version, or in use by another process."""
