"""What is remembered of keys is worked out once, and is bounded whatever a log sends."""

from collections.abc import Iterable

from kvcache_exporter.requests.formats.layouts import Layouts


def test_a_layout_is_worked_out_once() -> None:
    asked: list[tuple[str, ...]] = []

    def count(keys: Iterable[str]) -> int:
        asked.append(tuple(keys))
        return len(asked[-1])

    layouts = Layouts(count)
    assert [layouts["a", "b"], layouts["a", "b"], layouts["b", "a"], layouts[()]] == [2, 2, 2, 0]
    assert asked == [("a", "b"), ("b", "a"), ()]


def test_many_layouts_and_long_ones_do_not_fill_memory() -> None:
    layouts = Layouts(tuple)
    for number in range(1000):
        assert layouts["input", str(number)] == ("input", str(number))
        assert len(layouts) <= 256
    before = dict(layouts)
    for keys in (tuple(map(str, range(65))), ("k" * 2001,)):
        assert layouts[keys] == keys
    assert layouts == before
