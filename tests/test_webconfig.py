"""The web configuration file: its literal complaints, and what happens when it changes while in use."""

import logging
import os
from pathlib import Path

import bcrypt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcache_exporter import webconfig
from kvcache_exporter.errors import ConfigError
from kvcache_exporter.webconfig import Settings, WebConfig, load

FIXTURES = Path(__file__).parent / "fixtures" / "web"
HASH = bcrypt.hashpw(b"open sesame", bcrypt.gensalt(4)).decode()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.pem").write_text("not a certificate")
    (tmp_path / "a.key").write_text("not a key")
    (tmp_path / "empty.pem").touch()
    return tmp_path


COMPLAINTS = [
    tuple(case.split("\n---\n"))
    for case in (FIXTURES / "complaints.txt").read_text().rstrip("\n").split("\n===\n")
]


@pytest.mark.parametrize(
    ("content", "expected"), COMPLAINTS, ids=[case[1].split(":")[3].strip() for case in COMPLAINTS]
)
def test_a_bad_file_gets_this_very_complaint(folder: Path, content: str, expected: str) -> None:
    file = folder / "web.yml"
    file.write_text(content.replace("HASH", HASH).replace("COST_31", HASH.replace("$04$", "$31$")))
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert str(caught.value) == expected.replace("FILE", str(file)).replace("DIR", str(folder))


def test_endless_nesting_is_refused(folder: Path) -> None:
    (folder / "web.yml").write_text("[" * 5000)
    with pytest.raises(ConfigError, match=r"web\.yml:1:1: file: nested too deeply; flatten it"):
        load(folder / "web.yml")


def test_an_unknown_cipher_names_the_known_ones(folder: Path) -> None:
    file = folder / "web.yml"
    file.write_text("tls_server_config:\n  cert_file: a.pem\n  cipher_suites:\n    - TLS_RSA_WITH_RC4\n")
    with pytest.raises(ConfigError) as caught:
        load(file)
    problem = caught.value.problems[-1]
    assert problem.startswith(f"{file}:4:7: tls_server_config.cipher_suites[0]: expected one of TLS_ECDHE_")
    assert problem.endswith("found `TLS_RSA_WITH_RC4`")


def test_every_problem_of_a_file_is_told_at_once(folder: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(FIXTURES / "many_problems.bad.yml")
    places = [problem.split(": ")[:2] for problem in caught.value.problems]
    assert [place[1] for place in places] == [
        "rate_limit",
        "tls_server_config.cert_file",
        "tls_server_config.key_file",
        "http_server_config.http3",
        "basic_auth_users.ann",
    ]


@pytest.mark.parametrize("content", [b"\xff\xfe", b"a: \x00", b"#" * ((1 << 20) + 1)])
def test_a_file_that_is_no_text_is_refused(folder: Path, content: bytes) -> None:
    (folder / "web.yml").write_bytes(content)
    with pytest.raises(ConfigError, match=r"web\.yml:1:1: file: "):
        load(folder / "web.yml")


def test_a_missing_file_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yml:1:1: file: cannot be read: No such file or directory"):
        WebConfig(folder / "none.yml")


def test_no_complaint_shows_what_stands_for_a_password(folder: Path) -> None:
    (folder / "web.yml").write_text("basic_auth_users:\n  ann: hunter2\n  bob: [hunter2]\n")
    with pytest.raises(ConfigError) as caught:
        load(folder / "web.yml")
    assert "hunter2" not in str(caught.value)


@given(
    st.binary(max_size=200) | st.text("{}[]:,-&*!|>'\" \nab#tls_server_config", max_size=80).map(str.encode)
)
def test_any_file_gives_settings_or_a_complaint(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    file = tmp_path_factory.mktemp("any") / "web.yml"
    file.write_bytes(content)
    try:
        assert isinstance(load(file), Settings)
    except ConfigError as error:
        problems = error.problems
    else:
        problems = ()
    assert all(problem.startswith(f"{file}:") for problem in problems)


@pytest.mark.parametrize("content", ["", "# nothing\n", "tls_server_config: {}\n", "tls_server_config:\n"])
def test_an_empty_file_means_plain_http_for_everybody(folder: Path, content: str) -> None:
    (folder / "web.yml").write_text(content)
    settings = load(folder / "web.yml")
    assert (settings.tls, settings.users, settings.headers) == (None, None, {})


def test_http2_is_accepted_with_a_note(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "web.yml").write_text("http_server_config: {http2: true}\n")
    WebConfig(folder / "web.yml")
    assert "http2 has no effect" in caplog.text


def test_headers_may_be_set_and_blank_ones_are_not(folder: Path) -> None:
    (folder / "web.yml").write_text(
        'http_server_config: {headers: {X-Frame-Options: deny, X-XSS-Protection: ""}}\n'
    )
    assert load(folder / "web.yml").headers == {"X-Frame-Options": "deny"}


def replace(file: Path, content: str) -> None:
    """As an editor or Kubernetes does it: a new file under the old name."""
    fresh = file.with_suffix(".new")
    fresh.write_text(content)
    fresh.replace(file)


def test_a_changed_file_is_in_force_at_the_next_look(folder: Path) -> None:
    file = folder / "web.yml"
    file.write_text("http_server_config: {headers: {X-Frame-Options: deny}}")
    config = WebConfig(file)
    before = config.current()
    assert config.current() is before
    replace(file, "http_server_config: {headers: {X-Frame-Options: sameorigin}}")
    assert config.current().headers == {"X-Frame-Options": "sameorigin"}


def test_a_bad_new_file_leaves_the_old_settings_and_is_logged_once(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webconfig, "RETRY_SECONDS", 0.0)
    file = folder / "web.yml"
    file.write_text(f"basic_auth_users: {{ann: {HASH}}}")
    config = WebConfig(file)
    replace(file, "basic_auth_users: {ann: clear}")
    assert [config.current().users is not None for _ in range(3)] == [True] * 3
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1
    assert "basic_auth_users.ann: expected a bcrypt hash" in errors[0].getMessage()
    replace(file, f"basic_auth_users: {{bob: {HASH}}}")
    old = config.current().users
    assert old is config.current().users


@pytest.mark.parametrize("content", ["", "http_server_config: {}\n"])
def test_a_file_that_loses_its_users_does_not_open_the_door(
    folder: Path, caplog: pytest.LogCaptureFixture, content: str
) -> None:
    file = folder / "web.yml"
    file.write_text(f"basic_auth_users: {{ann: {HASH}}}")
    config = WebConfig(file)
    file.write_text(content)
    os.utime(file, ns=(1, 1))
    assert config.current().users is not None
    assert "basic_auth_users: gone from the file; to serve without it, restart the exporter" in caplog.text


def test_a_file_that_goes_away_leaves_the_old_settings(folder: Path) -> None:
    file = folder / "web.yml"
    file.write_text(f"basic_auth_users: {{ann: {HASH}}}")
    config = WebConfig(file)
    file.unlink()
    assert config.current().users is not None
