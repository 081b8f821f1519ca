"""Kubernetes discovery: one thread per group, with a watch for each of its namespaces."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Sequence
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, ClassVar

from kvcache_exporter.config import TargetGroup
from kvcache_exporter.lookups import LOOKUPS
from kvcache_exporter.targets.base import Discovery, DiscoveryError, Target
from kvcache_exporter.targets.kubernetes.found import ROLES, Found, uniquely_named
from kvcache_exporter.targets.kubernetes.store import SHOWN_PROBLEMS, Store

if TYPE_CHECKING:
    from kvcache_exporter.targets.kubernetes.reflector import Reflector

FIRST_SECONDS = 2.0
"""Seconds that the first `settle` waits for the first list, so that its targets are there at once."""
_GATHER_SECONDS = 0.05
"""Changes within this time become one: pods come and go by the thousand, and each costs a look at all."""


class _Loop(asyncio.SelectorEventLoop):
    """Asyncio's own look-ups run in threads that the end of the process would wait for."""

    async def getaddrinfo(self, host: Any, port: Any, **_options: int) -> Any:
        return await LOOKUPS.found(host, port)


class KubernetesDiscovery(Discovery):
    """Changes are pushed by watches; while the API server is down the last known targets are kept."""

    key: ClassVar[str] = "kubernetes"

    def __init__(self, group: TargetGroup) -> None:
        if group.kubernetes is None:
            raise ValueError("the group has no kubernetes")
        super().__init__(group)
        self._options = group.kubernetes
        namespaces = dict.fromkeys(self._options.namespaces) or {"": None}
        self._stores = {
            name: Store(self._find, self._rebuild_soon, self._object_failed) for name in namespaces
        }
        self._targets: Sequence[Target] = ()
        self._is_stale = False
        """Whether there are changes that the targets do not show yet."""
        self._reflectors: list[Reflector] = []
        self._waiting = set(namespaces)
        """Namespaces that are not listed yet."""
        self._listed = threading.Event()
        self._loop = _Loop()
        self._stopped = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="discovery kubernetes", daemon=True)
        self._settles_at = 0.0
        """Monotonic time until which `settle` waits for the first list."""

    @property
    def problems(self) -> tuple[str, ...]:
        watches = [reflector.problem for reflector in self._reflectors if reflector.problem]
        objects = chain.from_iterable(store.problems for store in self._stores.values())
        return (*watches, *islice(objects, SHOWN_PROBLEMS))

    def targets(self) -> Sequence[Target]:
        return self._targets

    def begin(self, now: float) -> None:  # noqa: ARG002 - a watch is never due
        if self._thread.ident is None:
            self._settles_at = time.monotonic() + FIRST_SECONDS
            self._thread.start()

    def settle(self) -> None:
        if (seconds := self._settles_at - time.monotonic()) > 0:
            self._listed.wait(seconds)

    def close(self) -> None:
        self.changed = lambda: None
        if self._thread.ident is None:
            self._loop.close()
            return
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(1.0)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._watch())

    async def _watch(self) -> None:
        # Late imports: they load an HTTP client that is useless without a cluster.
        from kvcache_exporter.targets.kubernetes.reflector import Reflector  # noqa: PLC0415
        from kvcache_exporter.targets.kubernetes.session import Collection  # noqa: PLC0415

        options = self._options
        self._reflectors = [
            Reflector(
                Collection(ROLES[options.role], namespace, options.selector),
                store,
                options.kubeconfig,
                failed=self._watch_failed,
                listed=partial(self._note_listed, namespace),
            )
            for namespace, store in self._stores.items()
        ]
        tasks = [asyncio.ensure_future(reflector.run()) for reflector in self._reflectors]
        await self._stopped.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _find(self, data: bytes) -> Sequence[Found]:
        return ROLES[self._options.role].find(data, self._group, self._options)

    def _rebuild_soon(self) -> None:
        if not self._is_stale:
            self._is_stale = True
            self._loop.call_later(_GATHER_SECONDS, self._rebuild)

    def _rebuild(self) -> None:
        if not self._is_stale:
            return
        self._is_stale = False
        found = chain.from_iterable(store.found() for store in self._stores.values())
        self._targets = tuple(uniquely_named(found))
        self.changed()

    def _note_listed(self, namespace: str) -> None:
        self._rebuild()
        self._waiting.discard(namespace)
        if not self._waiting:
            self._listed.set()

    def _watch_failed(self, error: DiscoveryError, before: str) -> None:
        self.failed(error.reason, str(error), before)

    def _object_failed(self, problem: str, objects: int) -> None:
        self.failed("invalid", problem, "")
        self.failures["invalid"] += objects - 1
