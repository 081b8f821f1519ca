"""The kind of value for ZeroMQ endpoints."""

import re

from kvcache_exporter.config.kinds import Scalar

_HOST = r"\*|\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9][\w.-]{0,252}"
_ENDPOINT = re.compile(rf"tcp://(?:{_HOST}):(\d{{1,5}})|ipc:///[^\s\x00]{{1,100}}", re.ASCII)


def _parse(text: str) -> str | None:
    match = _ENDPOINT.fullmatch(text)
    return text if match and 1 <= int(match[1] or 1) <= 65535 else None


ENDPOINT = Scalar("endpoint", "an endpoint such as tcp://10.0.0.1:5557 or ipc:///run/vllm/kv.sock", _parse)
