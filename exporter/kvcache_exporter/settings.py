"""Reads the configuration file and checks what the schema alone cannot: templates, prices, extras."""

from dataclasses import replace
from pathlib import Path

from kvcache_exporter.config import Config, load_config
from kvcache_exporter.engines import ENGINES
from kvcache_exporter.errors import ConfigError, PricesError
from kvcache_exporter.requests.formats import FORMATS
from kvcache_exporter.requests.formats.custom import check_fields
from kvcache_exporter.requests.formats.grouping import template_problem
from kvcache_exporter.requests.kafka.options import NOT_INSTALLED, is_installed
from kvcache_exporter.requests.prices import Prices, load_prices


def read_config(path: Path, shard_index: int | None = None) -> Config:
    """Raises ConfigError with every problem of the file and of the price table it names.

    `shard_index` overrides the file's shard.index.
    """
    return read_settings(path, shard_index)[0]


def read_settings(path: Path, shard_index: int | None) -> tuple[Config, Prices | None]:
    """As `read_config`, with the price table; None if the file names none."""
    config = load_config(
        path,
        engines=["auto", *(engine.name for engine in ENGINES)],
        formats=[form.name for form in FORMATS],
    )
    for number, source in enumerate(config.requests):
        if problem := template_problem(source.group_by):
            raise ConfigError([f"{path}: requests[{number}].group_by: {problem}"])
        if source.format == "custom":
            try:
                check_fields(dict(source.fields))
            except ValueError as error:
                raise ConfigError([f"{path}: requests[{number}].fields: {error}"]) from error
        if source.kafka and not is_installed():
            raise ConfigError([f"{path}: requests[{number}].kafka: {NOT_INSTALLED}"])
    if shard_index is not None:
        config = _with_shard(config, path, shard_index)
    try:
        return config, _load_prices(config)
    except PricesError as error:
        raise ConfigError([f"{path}: prices.file: {error}"]) from error


def _load_prices(config: Config) -> Prices | None:
    wanted = config.prices
    return load_prices(Path(wanted.file), wanted.as_of) if wanted else None


def _with_shard(config: Config, path: Path, index: int) -> Config:
    count = config.shard.count
    if index >= count:
        expected = f"expected less than shard.count ({count}); raise it or run fewer exporters"
        raise ConfigError([f"{path}: --shard.index: found {index}, {expected}"])
    return replace(config, shard=replace(config.shard, index=index))


def overview(config: Config) -> str:
    """The number of target groups, log sources and event sources, for people."""
    counts = {"target group": config.targets, "log source": config.requests, "event source": config.events}
    return ", ".join(f"{len(each)} {name}{'' if len(each) == 1 else 's'}" for name, each in counts.items())
