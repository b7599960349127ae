"""Settings of platforms: read from a table of their own or the environment, without secrets in the file."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from keryx import config
from keryx.core.errors import Invalid
from keryx.secrets import Secret
from keryx.surfaces.gateway.adapter_settings import AdapterSetup
from keryx.surfaces.gateway.matrix import MatrixSettings
from keryx.surfaces.gateway.telegram import TelegramSettings


class Sample(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    token: Secret = Secret()
    base_url: str = "https://example.org"
    limit: int = 3


def setup(*, environ: dict[str, str] | None = None, **table: object) -> AdapterSetup:
    return AdapterSetup(platform="sample", home=Path("/nowhere"), table=table, environ=environ or {})


def test_nothing_said_is_nothing() -> None:
    assert setup(environ={"KERYX_SAMPLE_ALLOW": "*", "KERYX_OTHER_TOKEN": "x"}).read(Sample) is None


def test_variables_win_over_the_table_and_hold_the_secret_itself() -> None:
    environ = {"KERYX_SAMPLE_TOKEN": " geheim\n", "KERYX_SAMPLE_LIMIT": "7"}
    found = setup(environ=environ, token="file:/nowhere/token", limit=5, base_url="http://x").read(Sample)
    assert found is not None
    assert (found.limit, found.base_url) == (7, "http://x")
    assert found.token.reveal(environ) == "geheim"
    assert "geheim" not in f"{found} {setup(environ=environ)}"


def test_a_secret_comes_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("geheim\n")
    assert Secret(f"file:{tmp_path}/token").reveal() == "geheim"


@pytest.mark.parametrize(
    ("reference", "why"),
    [("env:NO_SUCH", "set the variable NO_SUCH"), ("file:/no/such", "no such file"), ("", "no reference")],
)
def test_a_missing_secret_says_where_it_was_looked_for(reference: str, why: str) -> None:
    with pytest.raises(Invalid, match=why):
        Secret(reference).reveal({})


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ({"tokn": "env:X"}, "tokn"),
        ({"limit": "many"}, "sample.limit"),
        ({"token": "424242:geheim"}, "sample.token: write env:NAME or file:PATH"),
        ({"token": 5}, "sample"),
    ],
)
def test_wrong_settings_are_named(table: dict[str, object], why: str) -> None:
    with pytest.raises(Invalid, match=why) as caught:
        AdapterSetup(platform="sample", home=Path("/nowhere"), table=table).read(Sample)
    assert "geheim" not in str(caught.value)


def test_a_wrong_setting_is_told_with_its_place_and_what_was_meant(tmp_path: Path) -> None:
    path = tmp_path / "keryx.toml"
    path.write_text('[sample]\nlimit = 4\n\n[sample.work]\ntokn = "env:X"\n')
    plain = AdapterSetup(platform="sample", home=tmp_path, table={"limit": "many"})
    work = AdapterSetup(platform="sample", name="work", home=tmp_path, table={"tokn": "env:X"})
    told = (
        (plain, f"{path}, line 2: sample.limit: write a whole number"),
        (work, f"{path}, line 5: Unknown setting sample.work.tokn; did you mean sample.work.token?"),
        (
            setup(environ={"KERYX_SAMPLE_LIMIT": "many"}),
            "KERYX_SAMPLE_LIMIT: sample.limit: write a whole number",
        ),
    )
    for wrong, text in told:
        with pytest.raises(Invalid) as caught:
            wrong.read(Sample)
        assert str(caught.value) == text


@pytest.mark.parametrize(
    ("reference", "why"),
    [
        ("env:NO_SUCH", "sample.work.token is missing: set the variable NO_SUCH"),
        ("file:/no/such", "sample.work.token cannot be read from /no/such: no such file or directory"),
    ],
)
def test_a_secret_that_cannot_be_read_is_told_by_the_name_of_its_setting(reference: str, why: str) -> None:
    work = AdapterSetup(platform="sample", name="work", home=Path(), table={"token": reference}, environ={})
    found = work.read(Sample)
    assert found is not None
    with pytest.raises(Invalid) as caught:
        found.token.reveal({})
    assert str(caught.value) == why


def test_a_misspelt_variable_of_a_platform_is_told_and_one_of_an_account_is_not() -> None:
    environ = {
        "KERYX_TELEGRAM_TOKN": "geheim",
        "KERYX_TELEGRAM_WORK_TOKEN": "geheim",
        "KERYX_TELEGRAM_WORK_MOED": "polling",
        "KERYX_TELEGRAM_ALLOW": "*",
        "KERYX_TELEGRAM_HOME_TOKEN": "geheim",
        # Only the setup reads it.
        "KERYX_MATRIX_PASSWORD": "geheim",
        # Nothing is known of a platform whose adapter has not read its settings.
        "KERYX_SLACK_TOKN": "geheim",
    }
    plain = AdapterSetup(platform="telegram", home=Path("/nowhere"), environ=environ)
    setups = [plain, replace(plain, name="work"), AdapterSetup(platform="matrix", home=Path("/nowhere"))]
    for setup, kind in zip(setups, (TelegramSettings, TelegramSettings, MatrixSettings), strict=True):
        setup.read(kind)
    assert config.find_unknown_variables(environ, setups) == [
        "Unknown setting KERYX_TELEGRAM_HOME_TOKEN; did you mean KERYX_TELEGRAM_TOKEN?"
        " An account needs a table of its own, [telegram.home].",
        "Unknown setting KERYX_TELEGRAM_TOKN; did you mean KERYX_TELEGRAM_TOKEN?",
        "Unknown setting KERYX_TELEGRAM_WORK_MOED; did you mean KERYX_TELEGRAM_WORK_MODE?",
    ]


def written(home: Path, text: str, **environ: str) -> dict[str, str]:
    (home / "keryx.toml").write_text(text)
    return {"KERYX_HOME": str(home), **environ}


def test_a_platform_has_a_table_of_its_own(tmp_path: Path) -> None:
    environ = written(tmp_path, 'port = 7000\n[telegram]\ntoken = "env:T"\n', KERYX_WEBHOOK_URL="http://x")
    settings = config.read(environ)
    found = config.list_setups(settings, environ)
    assert [(s.platform, dict(s.table)) for s in found] == [("telegram", {"token": "env:T"}), ("webhook", {})]
    shown = config.explain(environ)
    assert shown["telegram.token"] == config.SettingOrigin("env:T", "keryx.toml")
    assert shown["webhook.url"] == config.SettingOrigin("env:KERYX_WEBHOOK_URL", "KERYX_WEBHOOK_URL")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[telegramm]\nmode = 'polling'\n", "telegramm"),
        ("[telegram]\ntoken = '424242:geheim'\n", "telegram.token: write env:NAME or file:PATH"),
        ("telegram = 3\n", r"write \[telegram\]"),
        ("[platforms.telegram]\n", "platforms"),
    ],
)
def test_a_wrong_table_is_refused(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(Invalid, match=why) as caught:
        config.read(written(tmp_path, text))
    assert "geheim" not in str(caught.value)
