"""The web configuration file: its literal complaints, and what happens when it changes while in use."""

import logging
from pathlib import Path

import bcrypt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcache_exporter.errors import ConfigError
from kvcache_exporter.web import config as web_config
from kvcache_exporter.web.config import Settings, WebConfig, load

FIXTURES = Path(__file__).parent / "fixtures" / "web"
HASH = bcrypt.hashpw(b"open sesame", bcrypt.gensalt(4)).decode()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(web_config, "READ_SECONDS", 0.0)
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


def test_every_problem_of_a_file_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        load(FIXTURES / "many_problems.bad.yml")
    places = [problem.split(": ")[1] for problem in caught.value.problems]
    assert places == [
        "rate_limit",
        "tls_server_config",
        "tls_server_config.cert_file",
        "http_server_config.http3",
        "basic_auth_users.ann",
    ]


def test_a_missing_file_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yml:1:1: document: cannot be read: No such file"):
        WebConfig(folder / "none.yml")


def test_no_complaint_shows_what_stands_for_a_password(folder: Path) -> None:
    users = 'ann: hunter2, bob: [hunter2], eve: "hunter2\\x01"'
    (folder / "web.yml").write_text(f"basic_auth_users: {{{users}}}")
    with pytest.raises(ConfigError) as caught:
        load(folder / "web.yml")
    assert len(caught.value.problems) == 3
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


@pytest.mark.parametrize("content", ["", "# nothing\n", "{}\n"])
def test_an_empty_file_means_plain_http_for_everybody(folder: Path, content: str) -> None:
    (folder / "web.yml").write_text(content)
    settings = load(folder / "web.yml")
    assert (settings.tls, settings.users, settings.headers) == (None, None, {})


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
    replace(file, "http_server_config: {headers: {X-Frame-Options: sameorigin}}")
    assert config.current().headers == {"X-Frame-Options": "sameorigin"}


def test_between_looks_the_file_is_left_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = folder / "web.yml"
    file.write_text("")
    config = WebConfig(file)
    monkeypatch.setattr(web_config, "READ_SECONDS", 60.0)
    before = config.current()
    assert config.current() is before


def test_known_passwords_stay_known_while_the_users_stay_the_same(folder: Path) -> None:
    file = folder / "web.yml"
    file.write_text(f"basic_auth_users: {{ann: {HASH}}}")
    config = WebConfig(file)
    users = config.current().users
    replace(file, f"basic_auth_users: {{ann: {HASH}}}\nhttp_server_config: {{}}")
    assert config.current().users is users
    replace(file, f"basic_auth_users: {{bob: {HASH}}}")
    assert config.current().users is not users


def test_a_bad_new_file_leaves_the_old_settings_and_is_logged_once(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = folder / "web.yml"
    file.write_text(f"basic_auth_users: {{ann: {HASH}}}")
    config = WebConfig(file)
    replace(file, "basic_auth_users: {ann: clear}")
    assert [config.current().users is not None for _ in range(3)] == [True] * 3
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1
    assert "basic_auth_users.ann: expected a bcrypt hash" in errors[0].getMessage()


@pytest.mark.parametrize("content", ["", "http_server_config: {}\n"])
def test_a_file_that_loses_its_users_does_not_open_the_door(
    folder: Path, caplog: pytest.LogCaptureFixture, content: str
) -> None:
    file = folder / "web.yml"
    file.write_text(f"basic_auth_users: {{ann: {HASH}}}")
    config = WebConfig(file)
    file.write_text(content)
    assert config.current().users is not None
    assert "basic_auth_users: gone from the file; to serve without it, restart the exporter" in caplog.text


def test_a_file_that_goes_away_leaves_the_old_settings(folder: Path) -> None:
    file = folder / "web.yml"
    file.write_text(f"basic_auth_users: {{ann: {HASH}}}")
    config = WebConfig(file)
    file.unlink()
    assert config.current().users is not None
