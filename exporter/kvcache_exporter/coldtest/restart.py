"""Restarts the engine with a command and waits until it is ready."""

import os
import signal
import subprocess
import time
from contextlib import suppress

from kvcache_exporter.coldtest.endpoint import Client, Endpoint
from kvcache_exporter.errors import KVCacheError

_ASK_EVERY = 0.5
_READY_PATHS = ("/health", "/v1/models")


def run_command(command: str, seconds: float) -> None:
    """Run a shell command, its output on standard error; raises KVCacheError if it fails or takes too long.

    Background processes that it starts are left running, unless the command itself took too long.
    """
    # A new session, so that Ctrl-C stops the test and not an engine that the command has started.
    process = subprocess.Popen(command, shell=True, stdout=2, start_new_session=True)  # noqa: S602 -- the user's own
    try:
        code = process.wait(seconds)
    except (subprocess.TimeoutExpired, KeyboardInterrupt) as error:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if isinstance(error, KeyboardInterrupt):
            raise
        raise KVCacheError(f"--restart-command: not done after {seconds:g} s: see --ready-timeout") from None
    if code:
        raise KVCacheError(f"--restart-command: exit code {code}: see its output above")


def await_ready(endpoint: Endpoint, seconds: float) -> None:
    """Wait until /health, or /v1/models without it, answers 200; raises KVCacheError after `seconds`."""
    end = time.monotonic() + seconds
    client = Client(endpoint)
    try:
        while not _ready(client):
            if time.monotonic() > end:
                raise KVCacheError(
                    f"{endpoint.url}: not ready {seconds:g} s after the restart: --ready-timeout"
                )
            time.sleep(_ASK_EVERY)
    finally:
        client.close()


def _ready(client: Client) -> bool:
    statuses = (client.status(path) for path in _READY_PATHS)
    return next((status for status in statuses if status != 404), 404) == 200
