"""The exporter's own log: logfmt or JSON lines on standard error."""

import argparse
import json
import logging
import sys
from datetime import UTC, datetime

LEVELS = ("debug", "info", "warning", "error")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--log.level",
        dest="log_level",
        choices=LEVELS,
        default="info",
        help="lowest level that is logged (default %(default)s)",
    )
    parser.add_argument(
        "--log.format",
        dest="log_format",
        choices=("logfmt", "json"),
        default="logfmt",
        help="format of the log (default %(default)s)",
    )


def configure(arguments: argparse.Namespace) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if arguments.log_format == "json" else _Logfmt())
    logging.basicConfig(level=arguments.log_level.upper(), handlers=[handler], force=True)
    # urllib3 repeats at debug level what our own messages say with the target's name.
    logging.getLogger("urllib3").setLevel(logging.WARNING)


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(self.fields(record))

    def fields(self, record: logging.LogRecord) -> dict[str, str]:
        found = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name.removeprefix("kvcache_exporter."),
            "msg": record.getMessage(),
        }
        if record.exc_info:
            found["trace"] = self.formatException(record.exc_info)
        return found


class _Logfmt(_Json):
    def format(self, record: logging.LogRecord) -> str:
        return " ".join(f"{key}={_quote(value)}" for key, value in self.fields(record).items())


def _quote(value: str) -> str:
    plain = value and not any(ch in ' "=\\' or not ch.isprintable() for ch in value)
    return value if plain else json.dumps(value, ensure_ascii=False)
