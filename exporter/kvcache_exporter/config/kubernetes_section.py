"""The section of the configuration for targets in a Kubernetes cluster."""

import re
from dataclasses import dataclass
from typing import Annotated

from kvcache_exporter.config import kinds
from kvcache_exporter.config.section import Section

_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_PORT_NAME = re.compile(r"(?=[0-9-]*[a-z])[a-z0-9]([a-z0-9-]{0,13}[a-z0-9])?", re.ASCII)
_KEY = r"(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?"
_ONE_OF = rf"\( *{_VALUE} *(?:, *{_VALUE} *)*\)"
_REQUIREMENT = rf" *(?:! *{_KEY}|{_KEY}(?: *(?:==?|!=) *{_VALUE}| +(?:not)?in *{_ONE_OF}| *[<>] *\d+)?) *"
_SELECTOR = re.compile(rf"{_REQUIREMENT}(?:,{_REQUIREMENT})*", re.ASCII)


def port_problem(text: str) -> str:
    """What is expected instead of this port number or name; "" if it is valid."""
    is_number = text.isascii() and text.isdecimal() and len(text) < 6 and 1 <= int(text) <= 65535
    return "" if is_number or _PORT_NAME.fullmatch(text) else _PORT_EXPECTED


_PORT_EXPECTED = "a number from 1 to 65535, or the name of a port such as http"
NAMESPACE = kinds.Scalar(
    "namespace",
    "the name of a namespace such as llm",
    lambda text: text if _NAMESPACE.fullmatch(text) else None,
)
SELECTOR = kinds.Scalar(
    "label selector",
    "a label selector such as app=vllm,tier in (gpu,cpu)",
    lambda text: text if not text or _SELECTOR.fullmatch(text) else None,
)
PORT = kinds.Scalar("port", _PORT_EXPECTED, lambda text: None if port_problem(text) else text)


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesDiscovery(Section):
    namespaces: tuple[Annotated[str, NAMESPACE], ...] = ()
    selector: Annotated[str, SELECTOR] = ""
    port: Annotated[str | None, PORT] = None
    role: Annotated[str, kinds.Choice("role", ("pod", "endpointslice"))] = "pod"
    opt_in: Annotated[bool, kinds.BOOLEAN] = False
    kubeconfig: Annotated[str | None, kinds.SECRET_FILE] = None
