"""/probe: scrapes one target that the client names, if the configuration allows it."""

import ipaddress
import math
import threading
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial

from kvcache_exporter.config import Address, AllowEntry, Config, ProbeModule, parse_address
from kvcache_exporter.engines import candidates
from kvcache_exporter.errors import ProbeError
from kvcache_exporter.exposition import Page, Renderer
from kvcache_exporter.lookups import AddressInfo, Lookups
from kvcache_exporter.model import Sample
from kvcache_exporter.scrape.fetch import Fetcher
from kvcache_exporter.scrape.once import once
from kvcache_exporter.scrape.transport import Find

Ip = ipaddress.IPv4Address | ipaddress.IPv6Address

_MAX_TARGET_LENGTH = 300
_LEAST_SECONDS = 0.1
"""So that a look-up that took all the time is told as what it is."""
_LOOKUPS = Lookups(64)
"""Of names that clients give: however many hang, those of the configuration are still looked up."""
HOW_TO = (
    "/probe is not configured; name what may be asked, for example "
    'probe: {modules: [{name: vllm, engine: vllm, allow: ["10.0.0.0/8:8000"]}]} (docs/http.md)'
)


class Prober:
    """Thread-safe; `config` may be replaced at any time."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.results: Counter[str] = Counter()
        """By the catalogue's PROBE_RESULTS."""
        self._running = 0
        self._lock = threading.Lock()

    def probe(self, target: str, module: str, header: str, *, openmetrics: bool = False) -> str:
        """The metrics of one target; `header` is Prometheus' scrape timeout. Raises ProbeError."""
        try:
            text = self._admitted(target, module, header, openmetrics)
        except ProbeError as error:
            self._count(error.reason)
            raise
        return text

    def _count(self, result: str) -> None:
        with self._lock:
            self.results[result] += 1

    def _admitted(self, target: str, module: str, header: str, openmetrics: bool) -> str:
        config = self.config
        if config.probe is None:
            raise ProbeError("not_configured", HOW_TO)
        chosen = _module(config.probe.modules, module)
        address = _address(target)
        offset, longest = config.probe.timeout_offset, config.scrape.timeout
        with self._lock:
            if self._running >= config.probe.concurrency:
                raise ProbeError("busy", "too many probes at once; raise probe.concurrency or ask less often")
            self._running += 1
        try:
            ends_at = time.monotonic() + timeout_of(header, offset, longest)
            look_up = checked(chosen, address, ends_at)
            samples = self._ask(chosen, address, look_up, max(_LEAST_SECONDS, ends_at - time.monotonic()))
        finally:
            with self._lock:
                self._running -= 1
        page = Page(config.limits.series_per_metric)
        return page.text([Renderer().block(samples)], openmetrics=openmetrics) + "# EOF\n" * openmetrics

    def _ask(self, module: ProbeModule, address: Address, look_up: Find, timeout: float) -> list[Sample]:
        engines = candidates(module.engine)
        fetcher = Fetcher(
            address.url(module.url_scheme, module.path),
            http=module.http,
            timeout=timeout,
            max_page_bytes=self.config.scrape.max_page_bytes,
            look_up=look_up,
        )
        try:
            samples = once(address.name, engines, fetcher.fetch)
        finally:
            fetcher.close()
        self._count("up" if samples[0].value else "down")
        return samples


def timeout_of(header: str, offset: float, longest: float) -> float:
    """Seconds for the scrape: Prometheus' own timeout less `offset`, but at least half of it and at most
    `longest`."""
    try:
        wanted = float(header)
    except ValueError:
        return longest
    if not math.isfinite(wanted) or wanted <= 0:
        return longest
    return min(longest, max(wanted - offset, wanted / 2))


def _module(modules: Sequence[ProbeModule], name: str) -> ProbeModule:
    known = ", ".join(module.name for module in modules)
    if not name and len(modules) == 1:
        return modules[0]
    found = next((module for module in modules if module.name == name), None)
    if found is None:
        said = f'no module "{name[:80]}"' if name else "no module is named"
        raise ProbeError("bad_request", f"{said}; add module=NAME, one of: {known}")
    return found


def _address(target: str) -> Address:
    """Host and port only: path and scheme come from the module, or a client could request any page."""
    expected = "add target=HOST:PORT, such as target=10.0.0.1:8000"
    if not target or len(target) > _MAX_TARGET_LENGTH or "/" in target:
        raise ProbeError("bad_request", f"no target, or more than a host and a port; {expected}")
    try:
        return parse_address(target)
    except ValueError as error:
        raise ProbeError("bad_request", f"target: {error}; {expected}") from None


def checked(module: ProbeModule, address: Address, ends_at: float) -> Find:
    """A resolver that gives only allowed addresses; raises ProbeError if there are none.

    `ends_at` is the monotonic time until which a look-up may last. A name is looked up once, here: a second
    look-up could give another address (DNS rebinding).
    """
    host = address.host.strip("[]")
    entries = [entry for entry in module.allow if entry.port == address.port]
    literal = _ip(host)
    if literal is None and not any(entry.fits_name(host.lower().rstrip(".")) for entry in entries):
        raise _forbidden(module, address)
    try:
        found = _LOOKUPS.find(host, address.port, ends_at - time.monotonic())
    except OSError as error:
        return partial(_fail, error)
    kept = [info for info in found if _may_connect(module, entries, _ip(info[4][0]), literal=literal)]
    if not kept:
        raise _forbidden(module, address)
    return lambda *_: kept


def _fail(error: OSError, *_: object) -> Sequence[AddressInfo]:
    raise error


def _may_connect(
    module: ProbeModule, entries: Sequence[AllowEntry], ip: Ip | None, *, literal: Ip | None
) -> bool:
    if ip is None:
        return False
    if literal is not None:
        return any(entry.network is not None and ip in entry.network for entry in entries)
    if module.networks:
        return any(ip in network for network in module.networks)
    special = ip.is_loopback or ip.is_link_local or ip.is_multicast or ip.is_unspecified or ip.is_reserved
    return not special


def _ip(text: str) -> Ip | None:
    """The address; None if the text is not one. ::ffff:10.0.0.1 becomes 10.0.0.1."""
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def _forbidden(module: ProbeModule, address: Address) -> ProbeError:
    return ProbeError(
        "forbidden",
        f"{address.name} is not allowed by module {module.name}; add it to probe.modules[].allow, and where "
        "a name leads to a loopback or link-local address, that address to probe.modules[].networks",
    )
