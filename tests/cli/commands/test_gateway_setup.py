"""`keryx gateway setup` for a platform of another package: the command follows from its fields."""

import re
import stat
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from tests.cli.driver import Cli

from keryx.core.ports.setup import ENTRY_POINT_GROUP
from keryx.surfaces.gateway.webhook import parse_secrets

SETUP = """
from keryx import Forbidden, Invalid, PlatformSetup, SetupField, SetupOutcome


def read_ring(answer):
    if not answer.isdigit():
        raise Invalid("the ring has a number, such as 12")


async def check(answers, dialog):
    if answers["token"] == "wrong":
        raise Forbidden("the loft refuses the token: ask the keeper")
    if answers["token"] == "bug":
        raise RuntimeError(answers["token"])
    if answers["token"] == "exit":
        raise SystemExit(3)
    dialog.show("a pigeon is on its way")
    if "eve" in answers["allow"]:
        raise Forbidden("eve is no bird")
    return SetupOutcome(
        allow=tuple(filter(None, answers["allow"].split(","))),
        summary=f"Keryx is {answers['bird']} of {answers['base_url']} as {dialog.label}.",
        settings={"base_url": answers["base_url"], "bird": answers["bird"], "fast": answers["fast"] or "no"},
        secrets={"token": answers["token"]},
        steps=("feed it",),
        note="It sleeps at night.",
        details={"bird": answers["bird"], "before": dialog.configured.get("perch", "")},
    )


SETUP = PlatformSetup(
    platform="carrier",
    title="Carrier",
    intro="Ask the keeper of the loft. " + "The keeper is a patient person. " * 5,
    fields=(
        SetupField(name="base_url", label="Address", help="Of the loft.", example="https://loft.example"),
        SetupField(name="token", label="API token", secret=True),
        SetupField(name="bird", label="Bird", choices=("grey", "white"), default="grey"),
        SetupField(name="ring", label="Number of its ring", when={"bird": "white"}, accept=read_ring),
        SetupField(name="note", label="Note", optional=True, ask=False),
        SetupField(name="allow", label="People", optional=True, ask=False),
        SetupField(name="fast", label="Fast", help="Fly at once.", flag=True),
    ),
    allow_example="ann",
    check=check,
)
"""
CARRIER = ("gateway", "setup", "carrier")


def package(site: Path, platform: str, source: str, group: str = "keryx.setups") -> None:
    """Install a package with one module that has the setup of a platform."""
    (site / f"{platform}_setup.py").write_text(source)
    about = site / f"{platform}_setup-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {platform}-setup\nVersion: 1\n")
    (about / "entry_points.txt").write_text(f"[{group}]\n{platform} = {platform}_setup:SETUP\n")


@pytest.fixture
def keryx(tmp_path: Path) -> Cli:
    site = tmp_path / "site"
    site.mkdir()
    package(site, "carrier", SETUP)
    package(site, "lame", "import a_library_that_is_missing\n")
    (tmp_path / "token").write_text("coo\n")
    return Cli(tmp_path / "home", PYTHONPATH=str(site))


def run(keryx: Cli, *arguments: str, **variables: str) -> tuple[int, str, str]:
    process = keryx.start(*arguments, **variables)
    out, err = process.communicate()
    return process.returncode, out, err


def options(keryx: Cli) -> tuple[str, ...]:
    return ("--base-url", "https://loft.example", "--token-file", str(keryx.home.parent / "token"))


def test_the_options_follow_from_the_fields(keryx: Cli) -> None:
    code, out, _ = run(keryx, *CARRIER, "--help")
    assert code == 0
    for words in (
        "Connect Carrier.",
        "Ask the keeper of the loft.",
        "keryx gateway setup carrier --base-url https://loft.example \\\n        --token-file token\n",
        "--base-url STR",
        "--token-file PATH",
        "KERYX_CARRIER_TOKEN",
        "grey",
        "Fly at once.",
        "such as ann",
        "--name STR",
        "--json",
    ):
        assert words in out, out
    assert all(len(line) <= 80 for line in out.splitlines())


def test_a_setup_that_cannot_be_loaded_leaves_the_others_alone(keryx: Cli) -> None:
    code, out, _ = run(keryx, "gateway", "setup", "--help")
    assert code == 0 and "Connect Carrier." in out and "Connect a bot on Telegram." in out and "lame" in out
    code, _, err = run(keryx, "gateway", "setup", "lame")
    assert code == 5 and "lame_setup:SETUP, cannot be used (ModuleNotFoundError: No module named" in err


def test_an_adapter_without_a_setup_says_what_to_do_instead(keryx: Cli) -> None:
    package(keryx.home.parent / "site", "owl", "", group="keryx.adapters")
    code, out, _ = run(keryx, "gateway", "setup", "--help")
    assert code == 0 and "owl" in out
    code, _, err = run(keryx, "gateway", "setup", "owl")
    assert code == 3 and "owl has no setup: write its settings in keryx.toml under [owl]" in err


def test_a_webhook_gets_a_secret_that_a_second_setup_leaves_alone(keryx: Cli) -> None:
    command = ("gateway", "setup", "webhook", "--url")
    code, out, _ = run(keryx, *command, "https://tickets.example.org/keryx", "--allow", "*")
    secret = keryx.home / "secrets" / "webhook-secret"
    assert code == 0 and "Everybody may talk to it." in out and "/hooks/webhook" in out
    assert len(parse_secrets(secret.read_text())[0]) == 32
    made = secret.read_text()
    assert run(keryx, *command, "http://127.0.0.1:1/in")[0] == 0
    assert secret.read_text() == made
    assert tomllib.loads((keryx.home / "keryx.toml").read_text()) == {
        "webhook": {"url": "http://127.0.0.1:1/in", "secret": f"file:{secret}"},
        "access": {"webhook": {"allow": ["*"]}},
    }
    code, _, err = run(keryx, *command, "tickets")
    assert code == 2 and "webhook.url must be the web address that answers are posted to" in err


def test_the_outcome_is_written_and_told(keryx: Cli) -> None:
    keryx.home.mkdir()
    (keryx.home / "keryx.toml").write_text(
        '[carrier.home]\nperch = "oak"\n[access.carrier.home]\nallow = [7]\n'
    )
    given = (
        *options(keryx),
        "--bird",
        "white",
        "--ring",
        "12",
        "--fast",
        "--name",
        "home",
        "--allow",
        "ann",
        "--allow",
        "bob",
    )
    code, out, err = run(keryx, *CARRIER, *given)
    assert (code, err) == (0, "")
    secret = keryx.home / "secrets" / "carrier-home-token"
    toml = keryx.home / "keryx.toml"
    assert out == (
        "a pigeon is on its way\n"
        "Keryx is white of https://loft.example as carrier.home.\n"
        f"The API token is in {secret}; {toml} refers to it.\n"
        "ann, bob may talk to it.\n\n"
        "Next:\n  1. feed it\n\nIt sleeps at night.\n"
    )
    written = tomllib.loads(toml.read_text())
    assert written["carrier"]["home"] == {
        "base_url": "https://loft.example",
        "bird": "white",
        "fast": "yes",
        "token": f"file:{secret}",
        "perch": "oak",
    }
    assert written["access"]["carrier"]["home"] == {"allow": ["7", "ann", "bob"]}
    assert secret.read_text() == "coo\n" and stat.S_IMODE(secret.stat().st_mode) == 0o600


def test_variables_answer_for_scripts_and_json_is_alone_on_stdout(keryx: Cli) -> None:
    variables = {
        "KERYX_CARRIER_BASE_URL": "https://loft.example",
        "KERYX_CARRIER_TOKEN": "coo",
        "KERYX_CARRIER_PERCH": "elm",
    }
    process = keryx.start(*CARRIER, "--json", **variables)
    out, err = process.communicate()
    assert process.returncode == 0 and err == "a pigeon is on its way\n"
    assert '"before":"elm"' in out and '"bird":"grey"' in out and out.count("\n") == 1


def test_what_is_missing_or_wrong_is_one_sentence_and_nothing_is_written(keryx: Cli) -> None:
    token = keryx.home.parent / "token"
    there = ("--base-url", "https://loft.example")
    cases = [
        (
            (),
            "",
            2,
            "give --base-url, or set KERYX_CARRIER_BASE_URL and --token-file, or set KERYX_CARRIER_TOKEN",
        ),
        ((*there, "--token-file", str(token)), "wrong", 1, "the loft refuses the token"),
        ((*there, "--token-file", str(token)), "", 2, "is empty"),
        ((*there, "--token-file", str(token)), "bug", 5, "the setup of Carrier failed (RuntimeError)"),
        ((*there, "--token-file", str(token)), "exit", 5, "the setup of Carrier failed (SystemExit)"),
        ((*options(keryx), "--allow", "ann", "--allow", "eve"), "coo", 1, "eve is no bird"),
        ((*options(keryx), "--bird", "blue"), "coo", 2, "blue"),
        ((*options(keryx), "--bird", "white"), "coo", 2, "give --ring, or set KERYX_CARRIER_RING"),
        ((*options(keryx), "--name", "Über"), "coo", 2, "no name for an account"),
    ]
    for arguments, secret, wanted, words in cases:
        token.write_text(secret)
        code, _, err = run(keryx, *CARRIER, *arguments)
        assert (code, words in err, "Traceback" in err) == (wanted, True, False), err
    assert not (keryx.home / "keryx.toml").exists() and not (keryx.home / "secrets").exists()


def test_a_person_is_asked_until_the_answer_fits(keryx: Cli) -> None:
    with keryx.terminal(*CARRIER) as terminal:
        terminal.see("Ask the keeper of the loft.")
        terminal.see("Of the loft.")
        terminal.see("Address (such as https://loft.example): ")
        terminal.type("\n")
        terminal.see("This is needed.")
        terminal.type("https://loft.example\n")
        terminal.see("API token (not shown): ")
        terminal.type("coo-coo\n")
        terminal.see("Bird (grey, white; empty for grey): ")
        terminal.type("blue\n")
        terminal.see("Choose grey, white.")
        terminal.type("white\n")
        terminal.see("Number of its ring: ")
        terminal.type("twelve\n")
        terminal.see("The ring has a number, such as 12.")
        terminal.type("12\n")
        terminal.see("Who may talk to it? (such as ann; empty for nobody yet): ")
        terminal.type("\n")
        terminal.see("say who may talk to it: in keryx.toml, [access.carrier] allow")
        assert terminal.exit() == 0
        assert "coo-coo" not in terminal.raw
    assert tomllib.loads((keryx.home / "keryx.toml").read_text())["carrier"]["bird"] == "white"


def test_what_another_answer_makes_needless_is_not_asked(keryx: Cli) -> None:
    with keryx.terminal(*CARRIER, *options(keryx)) as terminal:
        terminal.see("Bird (grey, white; empty for grey): ")
        terminal.type("\n")
        terminal.see("Who may talk to it?")
        terminal.type("\n")
        assert terminal.exit() == 0
        assert "ring" not in terminal.raw


@pytest.mark.parametrize("platform", sorted(point.name for point in entry_points(group=ENTRY_POINT_GROUP)))
def test_the_help_of_each_platform_reads_well_in_a_narrow_terminal(keryx: Cli, platform: str) -> None:
    code, out, _ = run(keryx, "gateway", "setup", platform, "--help", COLUMNS="80")
    assert code == 0
    text, _, parameters = out.partition("╭")
    # A line that was wrapped by the terminal ends in a space.
    assert not [line for line in text.splitlines() if line.endswith(" ")]
    flat = " ".join(parameters.replace("│", " ").split())
    assert not re.search(r"\b(the|The|a|A) (the|its|a|an)\b|\. [a-z`]\w+ without it", flat), flat


def test_the_end_of_the_input_ends_the_setup(keryx: Cli) -> None:
    with keryx.terminal(*CARRIER) as terminal:
        terminal.see("Address")
        terminal.type("\x04")
        terminal.see("nothing was said")
        assert terminal.exit() == 2


def test_no_other_platform_is_imported(keryx: Cli) -> None:
    (keryx.home.parent / "site" / "sitecustomize.py").write_text(
        "import atexit, sys\n"
        "atexit.register(lambda: sys.stderr.write(' '.join(m for m in sys.modules if '.gateway.' in m)))\n"
    )
    code, _, err = run(keryx, *CARRIER, *options(keryx))
    assert code == 0
    assert "keryx.surfaces.gateway.adapter_settings" in err
    assert "telegram" not in err and "matrix" not in err


def test_doctor_names_what_an_account_lacks_and_the_command(keryx: Cli) -> None:
    keryx.home.mkdir()
    (keryx.home / "keryx.toml").write_text(
        "[telegram.work]\nper_second = 3\n[matrix]\nuser = '@k:example.org'\n"
    )
    code, out, _ = run(keryx, "doctor")
    assert code == 1
    assert "[matrix] lacks homeserver\n" in out and "run `keryx gateway setup matrix`" in out
    assert "[telegram.work] lacks token\n" in out and "run `keryx gateway setup telegram --name work`" in out
