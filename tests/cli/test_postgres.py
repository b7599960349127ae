"""The same commands on PostgreSQL."""

import signal
import time

import httpx
import psycopg
from tests.cli.driver import WAIT, Cli, end


def test_the_daily_commands(keryx_on_postgres: Cli) -> None:
    keryx = keryx_on_postgres
    session = keryx.session("trip to oslo")
    assert keryx.ok("chat", "--continue", stdin="!tool grep foo\n/title Oslo\n").out.startswith(
        "Calling grep."
    )
    assert "⚙ grep foo" in keryx.ok("sessions", "show", "oslo").out
    assert keryx.json("sessions", "list")["sessions"][0]["session"]["id"] == session
    keryx.ok("sessions", "undo", session)
    keryx.ok("sessions", "fork", session)
    assert "So: taken back" in keryx.ok("why", f"{session}.3").out
    assert keryx("sessions", "show", "nobody").code == 3


def test_a_node_is_killed_and_its_turn_taken_up(keryx_on_postgres: Cli) -> None:
    keryx = keryx_on_postgres
    with keryx.serving() as node:
        session = keryx.json("send", "slow 1 one two three four")["session"]
        keryx.until("running", "turns")
        node.process.kill()
        node.process.wait(WAIT)
    with keryx.serving():
        keryx.until("one two three four\n", "sessions", "show", session)


def test_transactions_of_other_programs_delay_neither_an_answer_nor_a_search(
    keryx_on_postgres: Cli, postgres: str
) -> None:
    keryx = keryx_on_postgres
    with (
        keryx.serving(),
        psycopg.connect(keryx.variables["KERYX_DATABASE"]) as here,
        psycopg.connect(postgres) as elsewhere,
    ):
        for other in (here, elsewhere):
            other.execute("select pg_current_xact_id()")
        assert "fjord" in keryx.ok("send", "--wait", "fjord").out
        assert "fjord" in keryx.ok("sessions", "search", "fjord").out


def test_a_sender_that_is_interrupted_leaves_the_turn_in_the_queue(keryx_on_postgres: Cli) -> None:
    keryx = keryx_on_postgres
    process = keryx.start("send", "--wait", "slow 20 one two three four")
    try:
        keryx.until("running", "turns")
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT) == 130
    finally:
        end(process)
    assert keryx.json("turns")["turns"][0]["state"] == "queued"


def test_a_server_that_is_not_there_is_named_without_its_password(keryx: Cli) -> None:
    keryx.variables["KERYX_DATABASE"] = "postgresql://ann:geheim@127.0.0.1:1/keryx"
    result = keryx("sessions", "list")
    assert result.code == 5
    assert "geheim" not in result.err
    assert result.err.count("\n") == 1


def test_a_node_whose_tables_are_kept_locked_is_not_ready_and_answers_otherwise(
    keryx_on_postgres: Cli,
) -> None:
    keryx = keryx_on_postgres
    keryx.session("hello")
    with keryx.serving() as node, httpx.Client(base_url=node.address, timeout=WAIT, verify=False) as browser:
        assert browser.get("/readyz").status_code == 200
        with psycopg.connect(keryx.variables["KERYX_DATABASE"]) as other:
            other.execute("lock table messages in access exclusive mode")
            # The last probe still counts for a moment.
            while (ready := browser.get("/readyz")).status_code == 200:
                time.sleep(0.05)
            assert (ready.status_code, "pg_terminate_backend" in ready.text) == (503, True)
            assert browser.get("/healthz").status_code == 200
            assert browser.get("/").status_code == 200
            assert browser.get("/api/sessions").status_code == 200
        assert browser.get("/readyz").status_code == 200


def test_a_table_that_is_away_for_a_while_does_not_end_a_node(keryx_on_postgres: Cli) -> None:
    keryx = keryx_on_postgres
    keryx.session("hello")
    with (
        keryx.serving() as node,
        httpx.Client(base_url=node.address, timeout=WAIT, verify=False) as browser,
        psycopg.connect(keryx.variables["KERYX_DATABASE"], autocommit=True) as other,
    ):
        other.execute("alter table messages rename to messages_away")
        while (ready := browser.get("/readyz")).status_code == 200:
            # Whoever follows the changes reads them then.
            other.execute("notify keryx")
            time.sleep(0.05)
        assert ready.status_code == 503
        assert browser.get("/healthz").status_code == 200
        other.execute("alter table messages_away rename to messages")
        while browser.get("/readyz").status_code != 200:
            time.sleep(0.05)
        assert browser.post("/api/sessions", json={"text": "again"}).status_code == 201
