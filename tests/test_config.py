"""The configuration file: exact error texts, what a good file comes to, and that nothing else is raised."""

import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kvcache_exporter.config import Config, HttpSettings, load_config, masked, parse_address
from kvcache_exporter.config.load import section_hints
from kvcache_exporter.errors import ConfigError

ROOT = Path(__file__).parent.parent
BAD = Path(__file__).parent / "fixtures" / "config" / "bad"
ENGINES = ("auto", "vllm", "sglang")
FORMATS = ("auto", "custom", "litellm")


def load(path: Path) -> Config:
    return load_config(path, engines=ENGINES, formats=FORMATS)


def load_text(folder: Path, text: str) -> Config:
    file = folder / "kvcache.yaml"
    file.write_text(text, encoding="utf-8")
    return load(file)


@pytest.mark.parametrize("case", sorted(file.stem for file in BAD.glob("*.yaml")))
def test_a_bad_file_gives_exactly_this_text(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(BAD)
    with pytest.raises(ConfigError) as caught:
        load(Path(f"{case}.yaml"))
    assert str(caught.value) + "\n" == (BAD / f"{case}.txt").read_text(encoding="utf-8")


def test_every_bad_file_has_its_text() -> None:
    assert {file.stem for file in BAD.glob("*.yaml")} == {file.stem for file in BAD.glob("*.txt")}


def test_no_message_repeats_a_secret() -> None:
    texts = "".join(file.read_text(encoding="utf-8") for file in BAD.glob("*.txt"))
    assert "hunter2" not in texts


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "kvcache.yaml")
    expected = "document: cannot be read: No such file or directory; give a readable YAML file"
    assert caught.value.problems == (f"{tmp_path}/kvcache.yaml:1:1: {expected}",)


def test_a_file_over_the_size_limit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="larger than 1048576 bytes; list targets in files"):
        load_text(tmp_path, "#" * (1 << 20) + "\n")


def test_a_secret_file_that_is_a_folder_is_a_problem_of_the_check(tmp_path: Path) -> None:
    (tmp_path / "token").mkdir()
    with pytest.raises(ConfigError, match=re.escape(f'"{tmp_path}/token" is not a file; correct')):
        load_text(tmp_path, 'targets: [{static: ["a:1"], bearer_token_file: token}]\n')


def test_the_example_in_the_docs_is_valid() -> None:
    config = load_config(
        ROOT / "docs" / "example.yaml", engines=ENGINES, formats=("auto", "custom", "litellm", "openai_chat")
    )
    assert config.targets
    assert config.requests


def test_every_value_arrives_in_its_base_unit(tmp_path: Path) -> None:
    config = load_text(
        tmp_path,
        """
scrape: {interval: 1m, timeout: 500ms, max_age: 0s, concurrency: 8, max_page_bytes: 1MiB}
targets: [{static: ["a:1"]}]
outcome: {full_hit: {fraction: 0.1, max_uncached_tokens: 0}}
limits: {series_per_metric: 5, groups_per_source: 0, models_per_source: 3}
state: {path: s.sqlite}
""",
    )
    scrape = config.scrape
    assert (scrape.interval, scrape.timeout, scrape.max_age) == (60.0, 0.5, 0.0)
    assert (scrape.concurrency, scrape.max_page_bytes) == (8, 1 << 20)
    full_hit = config.outcome.full_hit
    assert (full_hit.fraction, full_hit.max_uncached_tokens) == (0.1, 0)
    assert (config.limits.series_per_metric, config.limits.groups_per_source) == (5, 0)
    assert config.state.path == f"{tmp_path}/s.sqlite"


def test_paths_are_relative_to_the_configuration_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("x")
    config = load_text(
        tmp_path,
        """
targets: [{file: {path: "t/*.json"}, bearer_token_file: token}]
requests: [{name: a, paths: ["logs/*.jsonl", /var/log/b.jsonl]}]
""",
    )
    group, source = config.targets[0], config.requests[0]
    assert group.file is not None
    assert group.file.path == f"{tmp_path}/t/*.json"
    assert group.http == HttpSettings(bearer_token_file=f"{tmp_path}/token")
    assert source.paths == (f"{tmp_path}/logs/*.jsonl", "/var/log/b.jsonl")


@pytest.mark.parametrize(
    ("keys", "scheme"), [("", "http"), (", tls: {}", "https"), (", scheme: https", "https")]
)
def test_tls_settings_alone_are_enough_for_https(tmp_path: Path, keys: str, scheme: str) -> None:
    config = load_text(tmp_path, f'targets: [{{static: ["a:1"]{keys}}}]\n')
    assert config.targets[0].url_scheme == scheme


def test_label_values_are_taken_as_they_are_written(tmp_path: Path) -> None:
    config = load_text(
        tmp_path, 'targets: [{static: ["a:1"], labels: {shard: 01, canary: no, day: 2024-01-01}}]\n'
    )
    assert config.targets[0].labels == (("shard", "01"), ("canary", "no"), ("day", "2024-01-01"))


def test_aliases_repeat_what_groups_share(tmp_path: Path) -> None:
    config = load_text(
        tmp_path,
        """
targets:
  - {static: ["a:1"], labels: &shared {cluster: a}}
  - {static: ["b:1"], labels: *shared}
""",
    )
    assert config.targets[0].labels == config.targets[1].labels == (("cluster", "a"),)


def test_a_list_inside_itself_is_an_error_like_any_other(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"targets\[0\]: found a list, expected a mapping"):
        load_text(tmp_path, "targets: &loop [*loop]\n")


def test_the_masked_configuration_reads_back_to_the_same_and_holds_no_secret(tmp_path: Path) -> None:
    for name in ("token", "password", "ca.pem"):
        (tmp_path / name).write_text("hunter2")
    config = load_text(
        tmp_path,
        """
scrape: {interval: 90s, timeout: 1500ms, max_page_bytes: 1536B}
targets:
  - {engine: vllm, static: ["a:1", "http://[::1]:2/m"], labels: {cluster: a}, bearer_token_file: token}
  - {dns: {name: a, type: SRV}, basic_auth: {username: me, password_file: password}, tls: {ca_file: ca.pem}}
  - {file: {path: "t/*.yml", refresh: 1h}, scheme: https, path: /m, tls: {insecure_skip_verify: true}}
requests:
  - {name: a, format: custom, paths: [a], fields: {prompt_tokens: usage.prompt}, start_at: beginning}
state: {path: state.sqlite}
""",
    )
    shown = masked(config)
    assert "hunter2" not in shown
    assert load_text(tmp_path, shown) == config


@pytest.mark.parametrize(
    ("text", "name", "url"),
    [
        ("10.0.0.1:8000", "10.0.0.1:8000", "http://10.0.0.1:8000/metrics"),
        ("engine-0.llm.svc.:80", "engine-0.llm.svc.:80", "http://engine-0.llm.svc.:80/metrics"),
        ("[fe80::1]:8000", "[fe80::1]:8000", "http://[fe80::1]:8000/metrics"),
        ("http://h:1/stats", "h:1", "http://h:1/stats"),
        ("https://h", "h:443", "https://h:443/metrics"),
        ("http://[::1]/", "[::1]:80", "http://[::1]:80/metrics"),
    ],
)
def test_an_address_names_the_target_and_completes_its_url(text: str, name: str, url: str) -> None:
    address = parse_address(text)
    assert (address.name, address.url("http", "/metrics")) == (name, url)


@pytest.mark.parametrize(
    "text",
    ["", "h", "h:0", "h:65536", "h:1/x", "h h:1", "http://", "http://h:x/", "[::g]:1", "[:::]:1", "h:\u0661"],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^found .*expected "):
        parse_address(text)


def every_key(section: type[Any] = Config, path: str = "") -> dict[str, tuple[str, str]]:
    """Kind and default of every key of the schema, by `section.key` with [] for lists."""
    found: dict[str, tuple[str, str]] = {}
    defaults = {field.name: field.default for field in fields(section)}
    for name, hint in section_hints(section).items():
        kind, inner, default = describe(hint)
        value = defaults[name]
        if inner is not None:
            found |= every_key(inner, f"{path}.{name}{kind}".lstrip("."))
        else:
            found[f"{path}.{name}".lstrip(".")] = (kind, default(value))
    return found


def describe(hint: Any) -> tuple[str, type[Any] | None, Any]:
    mark: Any = None
    if hasattr(hint, "__metadata__"):
        hint, mark = get_args(hint)
    if get_origin(hint) is tuple and not hasattr(mark, "label"):
        kind, inner, _ = describe(get_args(hint)[0])
        return ("[]", inner, None) if inner else (f"{kind} list", None, shown_default(None))
    if mark is not None:
        return mark.label, None, shown_default(mark)
    if isinstance(hint, type) and is_dataclass(hint):
        return "", hint, None
    return describe(next(part for part in get_args(hint) if part is not type(None)))


def shown_default(mark: Any) -> Any:
    def show(value: Any) -> str:
        if value is None or value in ((), ""):
            return "none"
        if not isinstance(value, bool | int | float | str):
            return "required"
        shown = mark.show(value)
        return f"`{str(shown).lower() if isinstance(shown, bool) else shown}`"

    return show


KEYS = st.sampled_from(sorted({name for key in every_key() for name in re.findall(r"\w+", key)} | {"events"}))
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.dates(), st.binary(max_size=9), KEYS,
    st.sampled_from(["15s", "1MiB", "a:1", "http://[::1", "[::1]:1", "9" * 20 + "s", "\x00", "\ud800"]),
)  # fmt: skip
DOCUMENTS = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS | st.text(), inner, max_size=6)
)


@settings(max_examples=150, deadline=None)
@given(document=DOCUMENTS)
def test_any_document_loads_or_gives_a_config_error(
    tmp_path_factory: pytest.TempPathFactory, document: Any
) -> None:
    check_any(tmp_path_factory, yaml.safe_dump(document, allow_unicode=True))


@settings(max_examples=150, deadline=None)
@given(text=st.text(alphabet="{}[]&*!:-,?|>'\"#%@\\ \n\tuUx0aFs" + "targets", max_size=60))
def test_any_text_loads_or_gives_a_config_error(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    check_any(tmp_path_factory, text)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_good_file_with_anything_in_one_place_loads_or_gives_a_config_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    document = yaml.safe_load((ROOT / "docs" / "example.yaml").read_text(encoding="utf-8"))
    place = document
    while True:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        inner = place[key]
        if not isinstance(inner, dict | list) or data.draw(st.booleans()):
            break
        place = inner
    place[key] = data.draw(DOCUMENTS)
    check_any(tmp_path_factory, yaml.safe_dump(document, allow_unicode=True))


def check_any(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    try:
        load(file)
    except ConfigError as error:
        problems = error.problems
    else:
        return
    for problem in problems:
        assert re.fullmatch(rf"{re.escape(str(file))}:\d+:\d+: .+: .+", problem), problem
        problem.encode()


def test_a_key_with_odd_characters_is_shown_on_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_text(tmp_path, '"a\\nb": 1\ntargets: [{static: ["a:1"]}]\n')
    assert "\n" not in caught.value.problems[0]


def documented_keys() -> dict[str, tuple[str, str]]:
    text = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    section, found = "", {}
    for line in text.splitlines():
        if line.startswith("#"):
            named = re.search(r"`([^`]+)`", line)
            section = named[1] if named else ""
        row = re.match(r"\| `([^`]+)` \| ([^|]+) \| ([^|]+) \| [^|]{8,} \|$", line)
        if row and section:
            found[f"{section}.{row[1]}"] = (row[2].strip(), row[3].strip())
    return found


def test_the_docs_list_every_key_with_its_type_and_default() -> None:
    assert documented_keys() == every_key()


def test_fields_are_for_formats_whose_keys_the_operator_chooses(tmp_path: Path) -> None:
    """Envoy's access log takes paths, but always counts inclusively: what only custom has is refused."""
    file = tmp_path / "kvcache.yaml"
    line = "requests:\n  - {name: a, format: envoy_ai_gateway, paths: [a], fields: {prompt_tokens: in%s}}\n"
    file.write_text(line % "", encoding="utf-8")
    (source,) = load_config(file, engines=ENGINES, formats=("envoy_ai_gateway",)).requests
    assert source.fields == (("prompt_tokens", "in"),)
    file.write_text(line % ", granule: '16'", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"fields\.granule: only format custom has this field; remove it"):
        load_config(file, engines=ENGINES, formats=("envoy_ai_gateway",))
