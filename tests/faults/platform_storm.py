"""The storm on a platform: `keryx serve` with the real adapter, a strict fake that misbehaves, and kill -9 again and again.

python -m tests.faults.platform_storm --platform slack --kills 100
python -m tests.faults.platform_storm --platform all
python -m tests.faults.platform_storm --platform all --kills 20 --postgres
"""

import asyncio
import json
import os
import random
import shlex
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import httpx
from tests.fakes import discord, email, feishu, imessage, signal, slack, telegram, wechat, whatsapp
from tests.faults.campaign import build_parser, run_campaign
from tests.faults.node import Node
from tests.faults.storm import KillableNode, Report, Storm
from tests.free_ports import find_free_port
from tests.postgres import Server, own_database

from keryx.core.ports.adapter import WebhookRequest, WebhookResponse
from keryx.core.texts import english
from keryx.testing.fault_injection import PlatformFaults
from keryx.testing.wire import WireFake

ROUGH = PlatformFaults(duplicate=0.05, throttle=0.02, lost_reply=0.02)
CHATS = 20
KERYX = str(Path(sys.executable).with_name("keryx"))
# How many kills, if the command does not say it; 100 on the other platforms.
KILLS = {"telegram": 300}
# The share of the messages at which Discord forgets all sessions, so that nothing can be resumed.
LOST_SESSIONS = 0.004
# The share of its posts that BlueBubbles loses.
LOST_POSTS = 0.3

Fake = TypeVar("Fake", bound=WireFake)
DirectFake = TypeVar(
    "DirectFake",
    bound=whatsapp.FakeWhatsAppAgent
    | whatsapp.FakeWhatsAppCloud
    | signal.FakeSignalCli
    | wechat.FakeWeChat
    | imessage.MessagesFake,
)


class PlatformChats(Generic[Fake]):
    """A platform as people see it, and the settings that Keryx needs for it."""

    # The id of a chat on the platform, made of its number.
    id_format = "{}"
    per_second = 25
    port = 0
    # Texts by which people are told that messages wait, and that they were not taken.
    waits = ""
    refusal = ""

    def __init__(self, fake: Fake, platform: str, **settings: str) -> None:
        self.fake = fake
        values = {"allow": "*", **settings}
        self.environ = {f"KERYX_{platform}_{name}".upper(): value for name, value in values.items()}

    @property
    def hooks(self) -> str:
        return f"http://127.0.0.1:{self.port}/hooks"

    def serve(self) -> AbstractContextManager[object]:
        return self.fake

    @contextmanager
    def open_node(self, home: Path, *, database: str, seed: int) -> Generator[KillableNode]:
        """Yield what is killed."""
        serve = [KERYX, "serve", "--port", str(self.port), "--json"]
        with Node("", home, database=database, command=serve, **self.environ) as node:
            yield node

    def say(self, chat: str, text: str) -> None:
        raise NotImplementedError

    def texts(self, chat: str) -> list[str]:
        raise NotImplementedError

    def find_problems(self) -> list[str]:
        """Return what no real platform would have taken."""
        return []

    def count_refused(self) -> int:
        """Return how many messages were not taken, as Keryx has recorded it."""
        return 0

    def describe(self) -> str:
        """Return further facts for the end of a campaign."""
        return ""

    def find(self, chat: str) -> str:
        return self.id_format.format(_number(chat))


class Telegram(PlatformChats[telegram.FakeTelegram]):
    id_format = "10{:02}"

    def __init__(self, home: Path, seed: int) -> None:
        fake = telegram.FakeTelegram(ROUGH, seed=seed)
        super().__init__(fake, "telegram", token=telegram.TOKEN, base_url=fake.url)

    def say(self, chat: str, text: str) -> None:
        self.fake.say(text, chat=int(self.find(chat)))

    def texts(self, chat: str) -> list[str]:
        return self.fake.texts(int(self.find(chat)))


class Discord(PlatformChats[discord.FakeDiscord]):
    """Channels of a server: direct chats that nobody has used before cannot be asked for missed messages."""

    id_format = "70{:02}"

    def __init__(self, home: Path, seed: int) -> None:
        fake = discord.FakeDiscord(replace(ROUGH, torn=0.002), seed=seed)
        super().__init__(fake, "discord", token=discord.TOKEN, base_url=fake.api_url)
        for number in range(CHATS):
            fake.add_channel(self.id_format.format(number), name=f"chat-{number}")
        self._random = random.Random(seed)
        self._lost_sessions = 0

    def say(self, chat: str, text: str) -> None:
        # Discord hands over nothing that was written before the first sign-in.
        assert self.fake.wait_for(lambda: self.fake.identifies > 0)
        if self.fake.faults.torn and self._random.random() < LOST_SESSIONS:
            self._lost_sessions += 1
            self.fake.invalidate()
        channel = self.find(chat)
        self.fake.say(f"<@{discord.BOT_ID}> {text}", channel=channel, user=channel, mentions=[discord.BOT])

    def texts(self, chat: str) -> list[str]:
        return self.fake.texts(self.find(chat))

    def describe(self) -> str:
        return f"{self.fake.resumes} resumes, {self.fake.identifies} sign-ins, {self._lost_sessions} lost sessions"


class Slack(PlatformChats[slack.FakeSlack]):
    """Direct chats and threads of channels by Socket Mode, by turns."""

    def __init__(self, home: Path, seed: int) -> None:
        fake = slack.FakeSlack(ROUGH, seed=seed)
        super().__init__(
            fake, "slack", token=slack.BOT_TOKEN, app_token=slack.APP_TOKEN, base_url=fake.api_url
        )

    def say(self, chat: str, text: str) -> None:
        if _number(chat) % 2:
            thread = f"1690000000.{_number(chat):06}"
            self.fake.say(f"<@{slack.BOT_USER}> {text}", channel=self.find(chat), thread_ts=thread)
        else:
            self.fake.say(text, channel=self.find(chat))

    def texts(self, chat: str) -> list[str]:
        return self.fake.texts(self.find(chat))

    def find(self, chat: str) -> str:
        return f"{'DC'[_number(chat) % 2]}{1001 + _number(chat):07}"


class SlackEvents(Slack):
    """The same by posts. Each is repeated until it is taken, so they keep their order; Slack itself does not promise that."""

    def __init__(self, home: Path, seed: int) -> None:
        super().__init__(home, seed)
        self.port = find_free_port()
        self.environ |= {
            "KERYX_SLACK_MODE": "events",
            "KERYX_SLACK_SIGNING_SECRET": slack.SIGNING_SECRET,
        }

    @contextmanager
    def serve(self) -> Generator[None]:
        with self.fake, post_in_background(self.fake.post_events, f"{self.hooks}/slack"):
            yield


class Feishu(PlatformChats[feishu.FakeFeishu]):
    """Direct chats, groups and threads of groups by the long connection, by turns."""

    id_format = "oc_storm{}"

    def __init__(self, home: Path, seed: int) -> None:
        fake = feishu.FakeFeishu(replace(ROUGH, broken=0.02), seed=seed)
        super().__init__(
            fake,
            "feishu",
            app_id=feishu.APP_ID,
            app_secret=feishu.APP_SECRET,
            base_url=fake.url,
            per_chat="0",
            per_second="0",
        )
        self._roots: dict[str, str] = {}

    def say(self, chat: str, text: str) -> None:
        id_, number = self.find(chat), _number(chat)
        if number % 3 == 0:
            self.fake.say(text, chat=id_, user=f"ou_{number}")
        elif number % 3 == 1:
            self.fake.say(text, chat=id_, group=True, mention=True)
        else:
            if id_ not in self._roots:
                self._roots[id_] = self.fake.say("the topic", chat=id_, group=True)
            self.fake.say_in_thread(text, self._roots[id_], chat=id_, group=True, mention=True)

    def texts(self, chat: str) -> list[str]:
        return self.fake.texts(self.find(chat))

    def find_problems(self) -> list[str]:
        return self.fake.problems


class FeishuPosts(Feishu):
    """The same by encrypted posts, each repeated until it is taken."""

    def __init__(self, home: Path, seed: int) -> None:
        super().__init__(home, seed)
        self.port = find_free_port()
        self.environ |= {
            "KERYX_FEISHU_MODE": "webhook",
            "KERYX_FEISHU_ENCRYPT_KEY": feishu.ENCRYPT_KEY,
            "KERYX_FEISHU_VERIFICATION_TOKEN": feishu.VERIFICATION_TOKEN,
        }

    @contextmanager
    def serve(self) -> Generator[None]:
        with self.fake, post_in_background(self.fake.post_events, f"{self.hooks}/feishu"):
            yield


class Email(PlatformChats[email.FakeMail]):
    """One thread of each person with Keryx."""

    id_format = "chat-{}@people.test"
    per_second = 8

    def __init__(self, home: Path, seed: int, *, saves_sent: bool = False) -> None:
        faults = replace(ROUGH, reorder=0.1, torn=0.01, broken=0.02)
        fake = email.FakeMail(faults, seed=seed, saves_sent=saves_sent)
        super().__init__(
            fake,
            "email",
            address=email.ADDRESS,
            password=email.PASSWORD,
            imap=fake.imap,
            smtp=fake.smtp,
            authserv=email.AUTHSERV,
            saves_sent="true" if saves_sent else "false",
            per_hour="0",
        )

    def say(self, chat: str, text: str) -> None:
        # What came before the first connection would not be answered.
        assert self.fake.wait_for(lambda: "IDLE" in self.fake.commands)
        self.fake.write(self.find(chat), text, references=[f"<{self.find(chat)}>"])

    def texts(self, chat: str) -> list[str]:
        return self.fake.texts(self.find(chat))

    def find_problems(self) -> list[str]:
        return self.fake.errors


class DirectChats(PlatformChats[DirectFake]):
    def say(self, chat: str, text: str) -> None:
        self.fake.write(self.find(chat), text)

    def texts(self, chat: str) -> list[str]:
        return self.fake.texts(self.find(chat))

    def find_problems(self) -> list[str]:
        return self.fake.problems


class WhatsAppAgent(DirectChats[whatsapp.FakeWhatsAppAgent]):
    id_format = "user:10{:02}"

    def __init__(self, home: Path, seed: int) -> None:
        people = tuple(map(self.id_format.format, range(CHATS)))
        fake = whatsapp.FakeWhatsAppAgent(ROUGH, seed=seed, people=people)
        super().__init__(
            fake,
            "whatsapp",
            mode="agent",
            token=whatsapp.KEY,
            base_url=fake.url,
            per_minute="0",
            polls_per_minute="0",
        )


class WhatsAppCloud(DirectChats[whatsapp.FakeWhatsAppCloud]):
    """WhatsApp posts in order, each again until it is taken. The real one does not keep the order of what it repeats."""

    id_format = "US.10{:02}"

    def __init__(self, home: Path, seed: int) -> None:
        fake = whatsapp.FakeWhatsAppCloud(ROUGH, seed=seed)
        super().__init__(
            fake,
            "whatsapp",
            mode="cloud",
            token=whatsapp.TOKEN,
            app_secret=whatsapp.APP_SECRET,
            verify_token=whatsapp.VERIFY_TOKEN,
            phone_number_id=whatsapp.NUMBER,
            base_url=fake.url,
        )
        self.port = find_free_port()

    @contextmanager
    def serve(self) -> Generator[None]:
        url, over = f"{self.hooks}/whatsapp", threading.Event()
        poster = threading.Thread(target=self.fake.post_to, args=(lambda: url, over))
        with self.fake:
            poster.start()
            try:
                yield
            finally:
                over.set()
                poster.join()


class Signal(DirectChats[signal.FakeSignalCli]):
    """signal-cli goes on with a call of a killed Keryx, takes the next message from Signal and hands it to nobody: it is in
    the spool, or lost."""

    id_format = "00000000-0000-4000-8000-0000000010{:02}"

    def __init__(self, home: Path, seed: int, *, spool: bool = True) -> None:
        stdout = home / "received.jsonl" if spool else None
        if stdout:
            stdout.touch()
        faults = replace(ROUGH, torn=0.02, broken=0.02, retry_after=1)
        fake = signal.FakeSignalCli(faults, seed=seed, stdout=stdout, longest_wait=5)
        super().__init__(fake, "signal", account=signal.NUMBER, url=fake.url, spool=str(stdout or ""))


class WeChat(DirectChats[wechat.FakeWeChat]):
    id_format = "chat-{}@im.wechat"

    def __init__(self, home: Path, seed: int) -> None:
        fake = wechat.FakeWeChat(replace(ROUGH, reorder=0.1, torn=0.02, broken=0.01), seed=seed)
        super().__init__(
            fake,
            "wechat",
            token=wechat.TOKEN,
            bot_id=wechat.BOT,
            base_url=fake.url,
            cdn_url=fake.cdn_url,
        )

    def find_problems(self) -> list[str]:
        stale = [f"without a context token: {b.text}" for b in self.fake.bubbles if not b.token]
        return self.fake.problems + stale


class IMessage(DirectChats[imessage.MessagesFake]):
    id_format = "+155510000{:02}"

    def say(self, chat: str, text: str) -> None:
        # Keryx does not answer what is older than its first visit.
        assert self.fake.wait_for(lambda: self.fake.reads > 0)
        super().say(chat, text)


class Imsg(IMessage):
    def __init__(self, home: Path, seed: int) -> None:
        faults = replace(ROUGH, throttle=0, torn=0.002)
        fake = imessage.FakeImsg(home / "mac", faults, seed=seed)
        super().__init__(fake, "imessage", command=shlex.join(fake.command))


class BlueBubbles(IMessage):
    def __init__(self, home: Path, seed: int) -> None:
        faults = replace(ROUGH, throttle=0, reorder=0.2, torn=0.02)
        fake = imessage.FakeBlueBubbles(faults, seed=seed)
        fake.lost_posts = LOST_POSTS
        self.port = find_free_port()
        super().__init__(
            fake,
            "imessage",
            transport="bluebubbles",
            base_url=fake.url,
            password=imessage.PASSWORD,
            secret=imessage.SECRET,
            url=f"http://127.0.0.1:{self.port}",
            poll="1s",
        )


class Relay(Telegram):
    """Telegram on a connector, and an instance that answers. Either of them is killed. On a slow machine people are told that
    their messages wait, and beyond the limits of the queue that they were not taken."""

    waits = english.TEXTS["relay.waits"]
    refusal = english.TEXTS["relay.not_taken"]

    def __init__(self, home: Path, seed: int, *, events: int | None = None) -> None:
        super().__init__(home, seed)
        self._connector = home / "connector"
        self._limits = {} if events is None else {"KERYX_RELAY_EVENTS": str(events)}

    def count_refused(self) -> int:
        listed = subprocess.run(
            [KERYX, "relay", "list", "--json"],
            env={**os.environ, "KERYX_HOME": str(self._connector)},
            capture_output=True,
            check=True,
        )
        return json.loads(listed.stdout)["instances"][0]["dropped"]

    @contextmanager
    def open_node(self, home: Path, *, database: str, seed: int) -> Generator[KillableNode]:
        folder, port = self._connector, find_free_port()
        folder.mkdir()
        added = subprocess.run(
            [KERYX, "relay", "add", "ann", "--platform", "telegram", "--json"],
            env={**os.environ, "KERYX_HOME": str(folder)},
            capture_output=True,
            check=True,
        )
        serve = [KERYX, "serve", "--port", "0", "--json"]
        bot = {name: value for name, value in self.environ.items() if not name.endswith("_ALLOW")}
        listen = {"KERYX_RELAY_LISTEN": f"127.0.0.1:{port}", **self._limits}
        answers = {
            "KERYX_RELAY_URL": f"ws://127.0.0.1:{port}",
            "KERYX_RELAY_KEY": json.loads(added.stdout)["key"],
            "KERYX_TELEGRAM_ALLOW": "*",
        }
        with (
            Node("", folder, command=serve, **bot, **listen) as connector,
            Node("", home, database=database, command=serve, **answers) as instance,
        ):
            connector.start()
            yield NodePair(instance, connector, random.Random(seed))


class NodePair:
    """Two nodes, of which one is killed at a time."""

    def __init__(self, instance: Node, connector: Node, rng: random.Random) -> None:
        self._nodes = instance, connector
        self._dead = instance
        self._rng = rng

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        """One that has ended, if there is one."""
        return next((n.process for n in self._nodes if n.process.poll() is not None), self._nodes[0].process)

    @property
    def log(self) -> str:
        return "".join(node.log for node in self._nodes)

    def start(self, *, wait: bool = True) -> None:
        self._dead.start(wait=wait)
        for node in self._nodes:
            if node.process.poll() is not None:
                node.start(wait=wait)

    def kill(self) -> None:
        self._dead = self._rng.choice(self._nodes)
        self._dead.kill()


PLATFORMS: dict[str, Callable[[Path, int], PlatformChats[Any]]] = {
    "telegram": Telegram,
    "discord": Discord,
    "slack": Slack,
    "slack-events": SlackEvents,
    "whatsapp-agent": WhatsAppAgent,
    "whatsapp-cloud": WhatsAppCloud,
    "wechat": WeChat,
    "email": Email,
    "email-saves-sent": partial(Email, saves_sent=True),
    "imessage-imsg": Imsg,
    "imessage-bluebubbles": BlueBubbles,
    "feishu": Feishu,
    "feishu-posts": FeishuPosts,
    "relay": Relay,
    "relay-short-queue": partial(Relay, events=10),
    "signal": Signal,
    "signal-no-spool": partial(Signal, spool=False),
}
# Their sends have a key, or are found again.
NEVER_MARKED = {"discord", "feishu", "feishu-posts", "slack", "slack-events"}
# What signal-cli hands to a killed process is lost without a spool.
DURABLE = [name for name in PLATFORMS if name != "signal-no-spool"]


def run(
    platform: str,
    home: Path,
    kills: int,
    *,
    seed: int,
    between: tuple[float, float] = (0.05, 2.5),
    database: str = "",
    progress: bool = False,
) -> Report:
    chats = PLATFORMS[platform](home, seed)
    with chats.serve(), chats.open_node(home, database=database, seed=seed) as node:
        storm = Storm(
            chats,
            node,
            chats=CHATS,
            per_second=chats.per_second,
            seed=seed,
            waits=chats.waits,
            refusal=chats.refusal,
        )
        report = storm.run(kills, between=between, progress=progress)
    # More than Keryx has refused were lost.
    report.lost += report.refused[chats.count_refused() :]
    report.problems += chats.find_problems()
    report.may_mark = platform not in NEVER_MARKED
    if progress and (facts := chats.describe()):
        print(facts)
    return report


def main() -> int:
    parser = build_parser(__doc__)
    parser.add_argument("--platform", choices=[*PLATFORMS, "all"], required=True)
    parser.add_argument(
        "--postgres", action="store_true", help="on a PostgreSQL that is started for each platform"
    )
    options = parser.parse_args()
    if options.platform == "all" and options.database:
        parser.error("a database is for one platform: the ids of messages begin anew with each fake")
    code = 0
    for name in DURABLE if options.platform == "all" else [options.platform]:
        print(name)
        kills = KILLS.get(name, 100) if options.kills is None else options.kills
        campaign = partial(run, name, progress=True)
        with open_postgres() if options.postgres else nullcontext(options.database) as database:
            code |= run_campaign(campaign, kills, seed=options.seed, database=database)
    return code


@contextmanager
def open_postgres() -> Generator[str]:
    """Start a server, and yield the address of an empty database on it."""
    server = Server()
    try:
        server.start()
        with own_database(server.dsn) as address:
            yield address
    finally:
        server.remove()


@contextmanager
def post_in_background(
    post_events: Callable[[Callable[[WebhookRequest], Awaitable[WebhookResponse]]], Awaitable[None]], url: str
) -> Generator[None]:
    """Let a fake post its events to a server while the block runs, one after the other, each until it is taken."""
    over = threading.Event()

    async def run() -> None:
        async with httpx.AsyncClient(timeout=20) as client:

            async def post(request: WebhookRequest) -> WebhookResponse:
                while not over.is_set():
                    with suppress(httpx.HTTPError):
                        response = await client.post(url, content=request.body, headers=dict(request.headers))
                        if response.status_code == 200:
                            return WebhookResponse(body=response.content)
                        if response.status_code == 401:
                            # It is signed anew before it comes again.
                            await asyncio.sleep(0.02)
                            return WebhookResponse(status=401)
                    await asyncio.sleep(0.02)
                return WebhookResponse(status=503)

            posting = asyncio.ensure_future(post_events(post))
            await asyncio.to_thread(over.wait)
            posting.cancel()
            await asyncio.wait({posting})

    poster = threading.Thread(target=lambda: asyncio.run(run()))
    poster.start()
    try:
        yield
    finally:
        over.set()
        poster.join()


def _number(chat: str) -> int:
    return int(chat.rpartition("-")[2])


if __name__ == "__main__":
    sys.exit(main())
