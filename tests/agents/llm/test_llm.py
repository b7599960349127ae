"""Named models, their keys, and the waits between tries."""

import socket
import ssl
from datetime import timedelta
from pathlib import Path

import httpx2
import msgspec
import openai
import pytest

from keryx.agents.llm import Model, Models, provider_errors, resolve_endpoint
from keryx.agents.llm.chat_client import RetryPolicy
from keryx.core.errors import AgentFailed, Invalid
from keryx.core.texts import Catalogue, Reader


def a_model(key: str = "") -> Model:
    return Model(name="m", base_url="https://user:secret@api.example/v1", id="gpt", key=key)


def test_a_key_comes_from_a_variable_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("from-file\n")
    assert resolve_endpoint(a_model("env:KEY"), {"KEY": " from-env "}).key == "from-env"
    assert resolve_endpoint(a_model(f"file:{file}"), {}).key == "from-file"
    assert resolve_endpoint(a_model(), {}).key == ""


def test_a_key_that_is_not_there_says_where_it_was_looked_for(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(Invalid, match=r"key of model 'm' is missing: set the variable KEY$"):
        resolve_endpoint(a_model("env:KEY"), {})
    with pytest.raises(Invalid, match=r"cannot be read from .*/none: no such file or directory"):
        resolve_endpoint(a_model(f"file:{tmp_path}/none"), {})
    with pytest.raises(Invalid, match="empty is empty"):
        resolve_endpoint(a_model(f"file:{tmp_path}/empty"), {})


def test_what_is_wrong_with_a_key_is_told_in_the_language_of_the_person() -> None:
    german = Catalogue(language="de").speak(None, "", Reader.OPERATOR)
    for key, words in (
        ("env:KEY", "Der Schlüssel des Modells 'm' fehlt: setze die Variable KEY"),
        (
            "file:/none",
            "Der Schlüssel des Modells 'm' kann nicht aus /none gelesen werden: Datei oder Ordner nicht vorhanden",
        ),
    ):
        with pytest.raises(Invalid) as caught:
            resolve_endpoint(a_model(key), {})
        assert german.render(caught.value.text) == words


def test_a_key_in_clear_is_refused_and_not_repeated() -> None:
    with pytest.raises(msgspec.ValidationError, match="write env:NAME or file:PATH") as caught:
        msgspec.convert({"name": "m", "base_url": "https://x", "id": "y", "key": "sk-123"}, Model)
    assert "sk-123" not in str(caught.value)


def test_a_host_is_shown_without_the_password() -> None:
    assert a_model().host == "api.example"


def test_no_model_at_all_says_where_to_add_one() -> None:
    with pytest.raises(AgentFailed, match=r"\[\[models\]\]"):
        Models([]).pick(None)


def test_waits_double_up_to_a_limit_and_differ_a_little() -> None:
    plan = RetryPolicy(tries=8)
    waits = [plan.compute_delay(n, None, lambda: 0.5) for n in range(1, 9)]
    assert waits == [*(timedelta(seconds=s) for s in (1, 2, 4, 8, 16, 30, 30)), None]
    assert plan.compute_delay(1, None, lambda: 0) == timedelta(seconds=0.75)


def test_what_the_provider_asks_for_is_obeyed_within_patience() -> None:
    assert RetryPolicy().compute_delay(1, timedelta(seconds=100)) == timedelta(seconds=100)
    assert RetryPolicy().compute_delay(1, timedelta(seconds=121)) is None


NEAR = Model(name="m", base_url="http://[::1]:11434/v1", id="x")
FAR = Model(name="m", base_url="https://models.example/v1", id="x")
BARE = Model(name="m", base_url="127.0.0.1:11434/v1", id="x")


@pytest.mark.parametrize(
    ("model", "cause", "transient", "sentence"),
    [
        (NEAR, ConnectionRefusedError(), True, "start Ollama with `ollama serve`"),
        (FAR, ConnectionRefusedError(), True, "(models.example) cannot be reached; check its base_url"),
        (FAR, socket.gaierror(socket.EAI_NONAME, "no"), False, "There is no host 'models.example'"),
        (FAR, socket.gaierror(socket.EAI_AGAIN, "later"), True, "cannot be reached"),
        (FAR, ssl.SSLCertVerificationError(), False, "cannot be trusted: self-signed certificate."),
        (FAR, ssl.SSLEOFError(), True, "cannot be reached"),
        (BARE, OSError(), False, "The base_url of model 'm' is no web address: it begins with http://"),
    ],
)
def test_what_somebody_must_mend_first_is_not_waited_for(
    model: Model, cause: OSError, transient: bool, sentence: str
) -> None:
    if isinstance(cause, ssl.SSLCertVerificationError):
        cause.verify_message = "self-signed certificate"
    error = openai.APIConnectionError(request=httpx2.Request("POST", FAR.base_url))
    error.__cause__ = ExceptionGroup("all attempts failed", [cause])
    failure = provider_errors.classify(error, model)
    assert failure.transient is transient
    assert sentence in str(failure.error)


def test_only_the_beginning_of_an_error_is_looked_at() -> None:
    """It may have megabytes, and is shown in a few words."""
    request = httpx2.Request("POST", FAR.base_url)
    body = {"message": "busy " + " " * 100_000 + "end"}
    error = openai.APIStatusError("", response=httpx2.Response(400, request=request), body=body)
    assert str(provider_errors.classify(error, FAR, secret="key").error).endswith(": busy.")
