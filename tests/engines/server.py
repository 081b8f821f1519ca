"""A real vLLM on 127.0.0.1 with a tiny random model, on CPU."""

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import requests
from processes import free_port, running, wait_until

from engines.install import engine_python
from kvcache_exporter import coldtest

MODEL = "tiny"
BLOCK = 32
BLOCKS = 280
_START_SECONDS = 240.0
_FLAGS = (
    "--served-model-name", MODEL,
    "--load-format", "dummy",
    "--host", "127.0.0.1",
    "--dtype", "bfloat16",
    "--max-model-len", "2048",
    "--block-size", str(BLOCK),
    "--num-gpu-blocks-override", str(BLOCKS),
    "--max-num-seqs", "8",
    "--enable-prefix-caching",
    "--enable-prompt-tokens-details",
    "--enforce-eager",
)  # fmt: skip
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "2",
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_SERVER_DEV_MODE": "1",
    "VLLM_HOST_IP": "127.0.0.1",
    "GLOO_SOCKET_IFNAME": "lo",
}


def vllm_command(version: str, folder: Path, port: int, *flags: str) -> list[str]:
    """Starts it on that port; the model it needs is in `folder` afterwards."""
    python, model = engine_python(version), folder / "model"
    words = Path(coldtest.__file__).with_name("words.txt")
    subprocess.run([python, Path(__file__).with_name("tiny_model.py"), model, words], check=True)
    command = [str(python), "-m", "vllm.entrypoints.cli.main", "serve", str(model), "--port", str(port)]
    return [*command, *_FLAGS, *flags]


@contextmanager
def vllm(version: str, folder: Path, path: Path, *flags: str, **environment: str) -> Iterator[str]:
    """Its address, once it serves; `path` is the plugin's place on PYTHONPATH, the log is in `folder`."""
    port = free_port()
    command = vllm_command(version, folder, port, *flags)
    settings = {**os.environ, **ENVIRONMENT, "PYTHONPATH": str(path), **environment}
    with (folder / "vllm.log").open("wb") as log:
        process = subprocess.Popen(command, env=settings, stdout=log, stderr=log)
    with running(process):
        address = f"127.0.0.1:{port}"
        wait_until("vLLM serving", lambda: _serves(process, address, folder), _START_SECONDS)
        yield address


def _serves(process: "subprocess.Popen[bytes]", address: str, folder: Path) -> bool:
    if process.poll() is not None:
        last = (folder / "vllm.log").read_text(errors="replace").splitlines()[-20:]
        raise RuntimeError("vLLM ended at its start:\n" + "\n".join(last))
    return requests.get(f"http://{address}/health", timeout=5).ok


def log_lines(folder: Path, words: str) -> Sequence[str]:
    """Lines of the server's log that have these words."""
    return [line for line in (folder / "vllm.log").read_text(errors="replace").splitlines() if words in line]
