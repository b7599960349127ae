import time
from unicodedata import category, normalize

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keryx.core.search.tokens import LONGEST_TOKEN, Token, fold, locate_tokens, tokenize, tokenize_query

AWKWARD = st.text(
    st.sampled_from(
        "aZ9é ßİøй-_./@#:+\\~$\"'*()東京都がｶﾞ가ᄒ\u0301\u3099\u200d\ufe0f\u20e3\u0e31\u093f👩💻👍🏽🇩🇪🏴\x00\ud800\u2028"
    ),
    max_size=30,
)
ANY = st.one_of(st.text(), AWKWARD)


def test_words_lose_case_and_accents() -> None:
    assert tokenize("Crème Brûlée, ŁÓDŹ; İstanbul Straße!").words == [
        "creme",
        "brulee",
        "lodz",
        "istanbul",
        "strasse",
    ]


def test_composed_and_decomposed_letters_are_the_same() -> None:
    text = "Ångström がぎぐ 한국어 हिन्दी"
    assert tokenize(normalize("NFD", text)) == tokenize(normalize("NFC", text))


@pytest.mark.parametrize("word", ["हिन्दी", "ภาษาไทย", "й", "ё", "שָׁלוֹם", "বাংলা"])
def test_letters_of_other_scripts_stay_whole(word: str) -> None:
    assert tokenize(word).words == [normalize("NFKC", word)]


def test_invisible_characters_do_not_split_a_word() -> None:
    assert tokenize("co\u00adope\u200crate \ufeffme\u202e").words == ["cooperate", "me"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("東京都", ["東京", "京都", "都"]),
        ("東", ["東"]),
        ("ｶﾞｷﾞ", ["ガギ", "ギ"]),
        ("Python入門", ["python", "入門", "門"]),
        ("他说：你好。", ["他说", "说", "你好", "好"]),
    ],
)
def test_cjk_runs_become_pairs_and_their_last_character(text: str, words: list[str]) -> None:
    assert tokenize(text).words == words


def test_what_is_looked_for_is_open_at_its_end() -> None:
    assert tokenize_query("東京").words == ["東京"]
    assert tokenize_query("京").words == ["京"]
    assert tokenize_query("東京 tower").words == ["東京", "京", "tower"]


@pytest.mark.parametrize("emoji", ["😀", "👩‍💻", "👍🏽", "🇩🇪", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "1️⃣", "❤️", "👨‍👩‍👧‍👦", "🏳️‍🌈"])
def test_an_emoji_is_one_word(emoji: str) -> None:
    assert len(tokenize(emoji).words) == 1
    assert tokenize(f"so {emoji}good").words == ["so", *tokenize(emoji).words, "good"]


def test_neighbouring_emoji_are_apart() -> None:
    assert len(tokenize("🇩🇪🇫🇷👩‍💻👍🏽😀").words) == 5


@pytest.mark.parametrize(
    ("text", "mark", "words"),
    [
        ("foo.bar_baz", "foo.bar_baz", ["foo", "bar", "baz"]),
        ("(src/keryx/core/ids.py)", "src/keryx/core/ids.py", ["src", "keryx", "core", "ids", "py"]),
        ("Ann@Example.org.", "ann@example.org", ["ann", "example", "org"]),
        ("@ann,", "@ann", ["ann"]),
        ("v1.2.3", "v1.2.3", ["v1", "2", "3"]),
        ("C++", "c++", ["c"]),
        ("#tag!", "#tag", ["tag"]),
        ("https://x.y/z?q=1.", "https://x.y/z?q=1", ["https", "x", "y", "z", "q", "1"]),
        ("C:\\Users\\x", "c:\\users\\x", ["c", "users", "x"]),
        ("naïve-été", "naive-ete", ["naive", "ete"]),
    ],
)
def test_an_identifier_is_kept_whole_and_in_parts(text: str, mark: str, words: list[str]) -> None:
    found = tokenize(text)
    assert (found.marks, found.words) == ([mark], words)


def test_a_word_with_punctuation_around_it_is_no_mark() -> None:
    assert tokenize("...end. -- (Really?) 'yes': -item") == tokenize("end really yes item")


def test_long_tokens_are_cut_alike() -> None:
    assert tokenize("x" * 500).words == ["x" * LONGEST_TOKEN]
    assert tokenize("a." * 500).marks == [("a." * LONGEST_TOKEN)[:LONGEST_TOKEN]]


@given(ANY)
def test_any_text_gives_tokens_fit_for_an_index(text: str) -> None:
    found = tokenize(text)
    for token in found.words + found.marks:
        assert 0 < len(token) <= LONGEST_TOKEN
        assert not {category(c) for c in token} & {"Cc", "Cf", "Cs", "Co", "Zs", "Zl", "Zp"}


@given(ANY)
def test_the_words_of_words_are_the_words(text: str) -> None:
    words = tokenize(text).words
    assert set(words) <= set(tokenize(" ".join(words)).words)


@given(ANY)
def test_folding_twice_is_folding_once(text: str) -> None:
    assert fold(fold(text)) == fold(text)


@given(ANY, ANY)
def test_a_blank_keeps_two_texts_apart(left: str, right: str) -> None:
    assert tokenize(f"{left} {right}").words == tokenize(left).words + tokenize(right).words


@given(AWKWARD)
def test_places_lie_in_the_text_and_in_order(text: str) -> None:
    found = [token for token in everywhere(text) if not token.mark]
    assert all(0 <= token.start < token.end <= len(text) for token in found)
    assert [token.start for token in found] == sorted(token.start for token in found)


@given(st.text(st.sampled_from("aZ9éß ./@東京🇩🇪ガ"), max_size=30))
def test_places_go_with_the_tokens_of_the_document(text: str) -> None:
    found = tokenize(text)
    assert [token.text for token in everywhere(text) if not token.mark] == found.words
    assert {token.text for token in everywhere(text) if token.mark} == set(found.marks)


@given(st.text(st.sampled_from("abA9é ./-@東京🇩🇪ガ"), max_size=40), st.integers(1, 4), st.data())
def test_what_is_wanted_is_located_with_the_words_after_it(
    text: str, length: int, data: st.DataObject
) -> None:
    tokens = everywhere(text)
    wanted = data.draw(st.sampled_from(tokens)).text if tokens else "a"
    words = [token for token in tokens if not token.mark]
    runs = list(locate_tokens(text, [wanted], length))
    for token in tokens:
        if token.text == wanted and token.mark:
            assert any(token in run for run in runs)
    for i, token in enumerate(words):
        if token.text == wanted:
            assert any(_holds([t for t in run if not t.mark], words[i : i + length]) for run in runs)


def everywhere(text: str) -> list[Token]:
    return [token for run in locate_tokens(text) for token in run]


def _holds(run: list[Token], part: list[Token]) -> bool:
    return any(run[i : i + len(part)] == part for i in range(len(run)))


@pytest.mark.parametrize(
    "unit",
    [
        "a",
        "a.",
        ".",
        "_é",
        "\u0301\u0323",
        "\u05b0\u0591\u200d",
        "\u0591\uff9e",
        "👩‍",
        "東",
        "https://",
        "\ud800",
        "\u0591\u034f\u05b0",
    ],
)
def test_garbage_takes_linear_time(unit: str) -> None:
    text = unit * (1_000_000 // len(unit))
    start = time.process_time()
    tokenize(text)
    assert time.process_time() - start < 4


@settings(max_examples=25)
@given(st.integers(0xA0, 0x10FFFF - 200))
def test_every_character_is_accepted(first: int) -> None:
    tokenize("".join(map(chr, range(first, first + 200))))
