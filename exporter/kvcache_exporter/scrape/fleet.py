"""Hit rates of the warm replicas of each model: the reference for a replica that has just started."""

import threading
from collections.abc import Iterable
from collections.abc import Set as AbstractSet


class Fleet:
    """Shared by all targets; every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._warm: dict[str, dict[str, tuple[float, float]]] = {}
        self._addresses: dict[str, str] = {}

    def report(self, target: str, models: Iterable[str], cached: float, prompt: float, *, warm: bool) -> None:
        """Record a target's increases of cached and prompt tokens over a window.

        They count in full for each name in `models`: a server serves one model under all of them.
        """
        with self._lock:
            for replicas in self._warm.values():
                replicas.pop(target, None)
            for model in models if warm and prompt > 0 else ():
                self._warm.setdefault(model, {})[target] = (cached, prompt)
            self._warm = {model: replicas for model, replicas in self._warm.items() if replicas}

    def answered(self, target: str, address: str) -> None:
        """A target answered at this address (host:port)."""
        with self._lock:
            self._addresses[target] = address

    def reads_any(self, addresses: AbstractSet[str], but: str) -> bool:
        """Whether a target other than `but` answers at one of these addresses."""
        with self._lock:
            return any(address in addresses for name, address in self._addresses.items() if name != but)

    def forget(self, target: str) -> None:
        with self._lock:
            self._addresses.pop(target, None)
        self.report(target, (), 0.0, 0.0, warm=False)

    def hit_ratio(self, models: Iterable[str], but: str) -> float | None:
        """Token-weighted hit rate of the other warm replicas of these models; None if there are none."""
        with self._lock:
            pairs = {
                target: pair
                for model in models
                for target, pair in self._warm.get(model, {}).items()
                if target != but
            }
        prompt = sum(prompt for _, prompt in pairs.values())
        return sum(cached for cached, _ in pairs.values()) / prompt if prompt else None
