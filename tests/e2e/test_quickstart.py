"""docs/quickstart.md, executed command by command: what it says is what is printed."""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from processes import Engine, free_port, running

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "quickstart.md"
ENGINE = ROOT / "tests" / "fixtures" / "recordings" / "vllm-0.32.0"
STAYING = ("kvcache-exporter demo", "kvcache-exporter serve", "prometheus ")
FIRST_LINE = re.compile(r"# (\S+)\n")


@dataclass(frozen=True, slots=True)
class Command:
    line: str
    shown: str

    @property
    def stays(self) -> bool:
        return self.line.startswith(STAYING)


def steps(text: str) -> Iterator[Command | tuple[str, str]]:
    """Commands with what the page shows of their output, and files as (name, content), in order."""
    for kind, block in re.findall(r"^```(console|yaml)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if kind == "yaml":
            name = FIRST_LINE.match(block)
            assert name, f"which file is this?\n{block}"
            yield name[1], block
            continue
        for command in block.split("$ ")[1:]:
            line, _, shown = command.partition("\n")
            yield Command(line, shown)


def pattern(shown: str) -> re.Pattern[str]:
    """`...` stands for anything, at the end of the page's excerpt as well."""
    return re.compile(re.escape(shown).replace(re.escape("..."), ".*?"), re.DOTALL)


def free_ports(count: int) -> set[int]:
    found: set[int] = set()
    while len(found) < count:
        found.add(free_port())
    return found


class Terminal:
    """A folder, a path on which the installed commands are, and ports of its own for those of the page."""

    def __init__(self, folder: Path, processes: ExitStack, ports: dict[str, str]) -> None:
        self._folder = folder
        self._processes = processes
        self._ports = ports
        self._started = 0
        self._path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

    def write(self, name: str, content: str) -> None:
        (self._folder / name).write_text(self._own(content))

    def run(self, command: Command) -> None:
        """Until what is shown was printed: figures and alerts take a moment. Raises AssertionError."""
        process, log = self._start(command)
        end = time.monotonic() + 90
        while not pattern(command.shown).search(printed := self._pages(log.read_text())):
            assert time.monotonic() < end, f"$ {command.line}\nshown:\n{command.shown}\nprinted:\n{printed}"
            if process.poll() is not None:
                assert not command.stays, f"$ {command.line}\nended:\n{printed}"
                time.sleep(0.5)
                process, log = self._start(command)
            time.sleep(0.05)
        if command.line.startswith("kvcache-exporter demo"):
            process.terminate()
            process.wait(10)
        if not command.stays:
            assert process.wait(30) == 0, f"$ {command.line}\n{printed}"

    def _start(self, command: Command) -> tuple["subprocess.Popen[bytes]", Path]:
        self._started += 1
        log = self._folder / f"{self._started}.log"
        line = f"exec {command.line}" if command.stays else command.line
        with log.open("wb") as out:
            process = subprocess.Popen(
                ["bash", "-c", self._own(line)],
                cwd=self._folder,
                env=os.environ | {"PATH": self._path, "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
            )  # fmt: skip
        self._processes.enter_context(running(process))
        return process, log

    def _own(self, text: str) -> str:
        for port, own in self._ports.items():
            text = text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{own}")
        return text

    def _pages(self, text: str) -> str:
        for port, own in self._ports.items():
            text = text.replace(f"127.0.0.1:{own}", f"127.0.0.1:{port}")
        return text


def test_every_command_prints_what_the_page_shows(tmp_path: Path) -> None:
    recording = Path("exporter/kvcache_exporter/demo/recording.zip")
    (tmp_path / recording.parent).mkdir(parents=True)
    shutil.copy(ROOT / recording, tmp_path / recording)
    # In the page's order, since series are sorted by their labels.
    ports = dict(zip(("8000", "8001", "9090", "9409"), map(str, sorted(free_ports(4))), strict=True))
    with closing(Engine(ENGINE, int(ports["8000"]))) as engine, ExitStack() as processes:
        engine.show("067")
        terminal = Terminal(tmp_path, processes, ports)
        ran = []
        for step in steps(PAGE.read_text()):
            if isinstance(step, Command):
                terminal.run(step)
                ran.append(step.line.split()[0])
            else:
                terminal.write(*step)
    assert ran.count("kvcache-exporter") == 8
    assert {"prometheus", "promtool", "curl"} < set(ran)


def test_what_the_page_does_not_show_is_missed() -> None:
    """The comparison itself: other figures, other order and missing lines do not pass."""
    shown = pattern("a 1\n...\nc 3\n")
    assert shown.search("noise\na 1\nb 2\nc 3\n")
    assert not shown.search("a 1\nb 2\nc 4\n")
    assert not shown.search("c 3\nb 2\na 1\n")
    assert not shown.search("a 1\nb 2\n")
