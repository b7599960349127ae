"""Keys and proofs of the relay, and which events a rule names."""

import pytest

from keryx.core.deliveries import Target
from keryx.core.errors import Invalid
from keryx.core.ports import relay
from keryx.core.ports.relay import RelayRule
from keryx.core.source import ChatType, Source

KEY = relay.generate_key()
CHALLENGE, NONCE = relay.generate_nonce(), relay.generate_nonce()


def test_a_key_has_256_bits_and_is_read_as_it_was_written() -> None:
    assert len(KEY.secret) * 8 == 256
    assert relay.parse_key(f" {KEY}\n") == KEY
    assert KEY.secret.hex() not in repr(KEY)


@pytest.mark.parametrize(
    "text",
    ["", "krx_", "krx_0_0", str(KEY)[:-1], str(KEY).upper()],
    ids=["empty", "prefix", "short", "cut", "upper case"],
)
def test_another_text_is_no_key_and_is_not_repeated_in_the_error(text: str) -> None:
    with pytest.raises(Invalid) as caught:
        relay.parse_key(text)
    assert not text or text not in str(caught.value)


def test_a_proof_holds_for_its_key_and_its_connection_only() -> None:
    proof = relay.prove_key(KEY, CHALLENGE, NONCE)
    assert relay.check_proof(KEY.digest, proof, CHALLENGE, NONCE)
    assert not relay.check_proof(KEY.digest, proof, relay.generate_nonce(), NONCE)
    assert not relay.check_proof(KEY.digest, proof, CHALLENGE, relay.generate_nonce())
    assert not relay.check_proof(relay.generate_key().digest, proof, CHALLENGE, NONCE)


def test_neither_the_secret_nor_the_digest_is_in_a_proof() -> None:
    proof = relay.prove_key(KEY, CHALLENGE, NONCE)
    answer = relay.prove_digest(KEY.digest, CHALLENGE, NONCE)
    assert not {proof, answer} & {KEY.secret.hex(), KEY.digest}
    assert not relay.check_proof(KEY.digest, KEY.digest, CHALLENGE, NONCE)
    assert not relay.check_proof(KEY.digest, answer, CHALLENGE, NONCE)


@pytest.mark.parametrize("proof", ["", "zz", "0" * 64, "0" * 63, "é" * 64, "0" * 10_000])
def test_a_malformed_proof_is_wrong(proof: str) -> None:
    assert not relay.check_proof(KEY.digest, proof, CHALLENGE, NONCE)
    assert not relay.check_proof(KEY.digest, "0" * 64, CHALLENGE, proof + "x")


ANN = Source(platform="telegram", account="bot", chat="7", user="7")
ROOM = Source(platform="telegram", account="bot", chat="-5", chat_type=ChatType.GROUP, user="7")


def test_the_most_specific_rule_wins() -> None:
    rules = [
        (RelayRule(platform="telegram"), "all"),
        (RelayRule(platform="telegram", account="bot"), "bot"),
        (RelayRule(platform="telegram", person="7"), "ann"),
        (RelayRule(platform="telegram", chat="-5"), "room"),
        (RelayRule(platform="matrix"), "matrix"),
    ]

    def choose(source: Source) -> str | None:
        found = relay.choose_rule(rules, source)
        return found and found[1]

    assert choose(ANN) == "ann"
    assert choose(ROOM) == "room"
    assert choose(Source(platform="telegram", account="bot", chat="8", user="8")) == "bot"
    assert choose(Source(platform="telegram", account="other", chat="8", user="8")) == "all"
    assert choose(Source(platform="slack", chat="8", user="8")) is None


def test_a_rule_allows_the_chats_that_it_names() -> None:
    assert RelayRule(platform="telegram").allows(Target("telegram", "bot", "99"))
    assert RelayRule(platform="telegram", person="7").allows(Target("telegram", "bot", "7"))
    assert not RelayRule(platform="telegram", person="7").allows(Target("telegram", "bot", "8"))
    assert not RelayRule(platform="telegram", chat="-5").allows(Target("telegram", "bot", "7"))
    assert not RelayRule(platform="telegram", account="bot").allows(Target("telegram", "other", "7"))


@pytest.mark.parametrize("name", ["", "Ann", "a b", "-a", "a" * 65, "ann\n"])
def test_a_name_of_an_instance_is_plain(name: str) -> None:
    with pytest.raises(Invalid):
        relay.parse_name(name)
