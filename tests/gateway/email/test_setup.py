"""The setup asks both servers whether the answers are right, and finds out who checks the senders."""

from collections.abc import Mapping
from importlib.metadata import entry_points

import pytest
from tests.fakes.email import ADDRESS, AUTHSERV, PASSWORD, FakeMail

from keryx.core.errors import Forbidden, Invalid, Unavailable
from keryx.core.ports.setup import ENTRY_POINT_GROUP, SetupOutcome
from keryx.surfaces.gateway.email.setup import SETUP


class Dialog:
    label = "email"
    configured: Mapping[str, object] = {}

    def show(self, text: str) -> None:
        raise AssertionError("nothing is shown")


async def check(fake: FakeMail, **answers: str) -> SetupOutcome:
    given = {"address": ADDRESS, "password": PASSWORD, "imap": fake.imap, "smtp": fake.smtp, **answers}
    return await SETUP.check({name: value for name, value in given.items() if value}, Dialog())


async def test_right_answers_become_settings_and_a_secret(fake: FakeMail) -> None:
    fake.write("ann@people.test", "hello")
    outcome = await check(fake)
    assert outcome.settings == {
        "address": ADDRESS,
        "imap": fake.imap,
        "smtp": fake.smtp,
        "authserv": AUTHSERV,
    }
    assert outcome.secrets == {"password": PASSWORD} and PASSWORD not in str(outcome.settings)
    assert ADDRESS in outcome.summary and "1 mail, left" in outcome.summary


async def test_a_mailbox_without_checked_mails_needs_the_name_of_the_server(fake: FakeMail) -> None:
    with pytest.raises(Invalid, match="authserv"):
        await check(fake)
    outcome = await check(fake, authserv="mx.other.test")
    assert outcome.settings["authserv"] == "mx.other.test"


async def test_what_is_wrong_is_one_sentence(fake: FakeMail) -> None:
    with pytest.raises(Forbidden, match="refuses the user name or the password"):
        await check(fake, password="wrong")
    with pytest.raises(Unavailable, match="cannot be reached"):
        await check(fake, imap="imap://127.0.0.1:9")
    with pytest.raises(Unavailable, match="cannot be reached"):
        await check(fake, smtp="smtp://127.0.0.1:9", authserv="x")
    with pytest.raises(Invalid, match=r"keryx@example\.org"):
        await check(fake, address="keryx")
    with pytest.raises(Invalid, match="not both"):
        await check(fake, token_command="cat token")
    with pytest.raises(Invalid, match="mailbox Nowhere"):
        await check(fake, mailbox="Nowhere")


def test_the_setup_is_an_entry_point() -> None:
    [found] = [entry for entry in entry_points(group=ENTRY_POINT_GROUP) if entry.name == "email"]
    assert found.load() is SETUP
    names = [field.name for field in SETUP.fields]
    assert names[:2] == ["address", "password"] and len(names) == len(set(names))
