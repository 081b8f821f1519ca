"""What the Markdown files say exists: links, commands, files, metrics, alerts, configurations, numbers."""

import argparse
import json
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml

from kvcache_alerts.recording import RULES
from kvcache_alerts.write import ALERTS
from kvcache_dashboards.write import files as board_files
from kvcache_exporter import catalogue
from kvcache_exporter.cli import parser
from kvcache_exporter.config.load import load_config
from kvcache_exporter.engines import ENGINES
from kvcache_exporter.engines.base import Engine
from kvcache_exporter.errors import ConfigError
from kvcache_exporter.requests.formats import FORMATS
from kvcache_exporter.requests.formats.base import Format

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("alerts/runbooks/*.md"),
        *ROOT.glob("helm/*/*.md"),
    ]
)
# What a fence of ``` holds, with its language; what is in line with the text.
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
SOURCE = "https://github.com/kvcache-exporter/kvcache-exporter/blob/main/"
SECTIONS = {"targets", "requests", "events", "probe"}
WORDS = {"four": 4, "five": 5, "six": 6, "eleven": 11, "twelve": 12}
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def prose(page: Path) -> str:
    return FENCED.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@every_page
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for link in LINK.findall(INLINE.sub("", prose(page))):
        path, _, anchor = link.removeprefix(SOURCE).partition("#")
        if "://" in path or path.startswith("mailto:"):
            continue
        base = ROOT if link.startswith(SOURCE) else page.parent
        file = (base / unquote(path)).resolve() if path else page
        assert file.exists(), f"{link}: no such file"
        assert not anchor or anchor in anchors(file), f"{link}: no such heading"


def calls(page: Path) -> Iterator[list[str]]:
    """Arguments of every call of the exporter that stands on the page as a whole command."""
    for _, block in FENCED.findall(page.read_text()):
        for line in block.replace("\\\n", " ").splitlines():
            command = line.removeprefix("$ ")
            if re.match(r"(\S*/)?kvcache-exporter \w", command):
                words = shlex.split(command, comments=True)[1:]
                yield words[: next((n for n, word in enumerate(words) if word in "|>&"), None)]


@every_page
def test_every_command_is_understood(page: Path) -> None:
    for words in calls(page):
        parser().parse_args(words)


@every_page
def test_every_command_in_line_exists_with_its_options(page: Path) -> None:
    commands = {command.prog: set(command._option_string_actions) for command in every_command(parser())}
    for text in INLINE.findall(prose(page)):
        if not re.match(r"kvcache-exporter [a-z]", text):
            continue
        words = text.split()
        name = " ".join(words[: 3 if words[1] == "publish" else 2])
        assert name in commands, text
        assert {word for word in words if word.startswith("--")} <= commands[name], text


@every_page
def test_every_make_target_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = [block for _, block in FENCED.findall(page.read_text())] + INLINE.findall(prose(page))
    named = (re.findall(r"^(?:\$ )?make ([a-z-]+)", command, re.MULTILINE) for command in commands)
    assert set().union(*named) <= targets


@every_page
def test_every_file_named_in_line_exists(page: Path) -> None:
    tops = "exporter|dashboards|alerts|helm|tests|docs|benchmarks"
    for path in INLINE.findall(prose(page)):
        if re.fullmatch(rf"(?:{tops})/[\w./*{{}},-]+", path):
            stem, _, rest = path.partition("{")
            choices, _, end = rest.partition("}")
            for name in (f"{stem}{choice}{end}" for choice in choices.split(",")):
                assert list(ROOT.glob(name.rstrip("/"))), f"{name} does not exist"


def known_series() -> set[str]:
    names = {metric.name for metric in catalogue.CATALOGUE}
    parts = {f"{name}{suffix}" for name in names for suffix in ("_bucket", "_sum", "_count", "_created")}
    return names | parts | {rule.record for rule in RULES}


@every_page
def test_every_metric_and_every_alert_exists(page: Path) -> None:
    text = page.read_text()
    # A name that is cut (`kvcache_exporter_*`, `kvcache_target_{up,info}`) ends in what joins it.
    named = re.findall(r"(?<![\w./-])((?:\w+:)?kvcache_[a-z0-9_:]*+)(?!\*)", text)
    assert {name for name in named if name[-1] not in "_:"} - PACKAGES <= known_series()
    alerts = {alert.name for alert in ALERTS}
    assert set(re.findall(r"\bKVCache[A-Z]\w+", text)) - {"KVCacheError"} <= alerts


PACKAGES = {"kvcache_exporter", "kvcache_dashboards", "kvcache_alerts", "kvcache_chart", "kvcache_outcomes"}


@every_page
def test_every_configuration_is_valid(page: Path, tmp_path: Path) -> None:
    """But for the files it names, which are on another machine."""
    path = tmp_path / "kvcache.yaml"
    for block in (block for language, block in FENCED.findall(page.read_text()) if language == "yaml"):
        documents = list(yaml.safe_load_all(block))
        if len(documents) == 1 and isinstance(documents[0], dict) and SECTIONS & documents[0].keys():
            path.write_text(block)
            problems: tuple[str, ...] = ()
            try:
                load_config(
                    path, engines=["auto", *(e.name for e in ENGINES)], formats=[f.name for f in FORMATS]
                )
            except ConfigError as error:
                problems = tuple(error.problems)
            assert [problem for problem in problems if "does not exist; create it" not in problem] == []


def every_command(root: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    for action in root._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield command
                yield from every_command(command)


def test_every_command_and_argument_is_explained_and_has_an_example() -> None:
    commands = list(every_command(parser()))
    assert len(commands) > 15
    for command in commands:
        assert str(command.description).endswith("."), command.prog
        for action in command._actions:
            assert action.help or isinstance(action, argparse._SubParsersAction), (command.prog, action.dest)
        if not any(isinstance(action, argparse._SubParsersAction) for action in command._actions):
            assert str(command.epilog).startswith(f"Example: {command.prog}"), command.prog
    assert "Exit codes: 0 ok, 1 failed" in str(parser().epilog)


def test_every_format_and_every_engine_has_its_place() -> None:
    places: dict[str, Sequence[Format | Engine]]
    places = {"logs.md": FORMATS, "engines.md": ENGINES, "configuration.md": ENGINES}
    for page, things in places.items():
        text = (ROOT / "docs" / page).read_text().lower()
        missing = [thing.name for thing in things if not re.search(rf"\b{thing.name}\b", text)]
        assert not missing, page


def test_every_page_of_the_docs_is_in_their_index() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {link.partition("#")[0] for link in LINK.findall(index.read_text())}
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {index.name}
    assert pages <= linked, sorted(pages - linked)


def counted() -> dict[str, int]:
    boards = board_files({})
    return {
        "recording rules": len(RULES),
        "alerts": len(ALERTS),
        "boards": len(boards),
        "Grafana boards": len(boards),
        "stacks": len(list((ROOT / "helm/kvcache-exporter/examples").glob("*.yaml"))),
        "metrics": len(catalogue.CATALOGUE),
        "panels": sum(len(json.loads(text)["panels"]) for text in boards.values()),
    }


@pytest.mark.parametrize("name", ["README.md", "docs/README.md", "docs/alerts.md", "docs/dashboards.md"])
def test_numbers_are_those_of_today(name: str) -> None:
    things = counted()
    found = re.findall(rf"(\w+) ({'|'.join(things)})\b", prose(ROOT / name))
    for number, thing in found:
        if number.isdecimal() or number.lower() in WORDS:
            assert int(WORDS.get(number.lower(), number)) == things[thing], f"{number} {thing}"
