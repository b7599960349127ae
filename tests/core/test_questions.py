import pytest

from keryx.core.errors import Invalid
from keryx.core.ids import DEFAULT_PROFILE, OPERATOR, QuestionId, SessionId, TurnId
from keryx.core.questions import (
    PERMISSION_OPTIONS,
    AskedQuestion,
    Consent,
    Option,
    Question,
    QuestionState,
    build_option,
    find_consent,
    find_remembered_answer,
    format_confirmation,
    format_hint,
    format_question,
    label_option,
    parse_answer,
)
from keryx.core.texts import ENGLISH, NO_CHANGES, Phrase
from keryx.testing import START_TIME

PERMIT = Question(key="1", title="May it?", detail="rm x")
COLOURS = Question(key="1", title="Which?", options=(Option("r", "Red"), Option("g", "Green")))
FREE = Question(key="1", title="Where?", options=())


@pytest.mark.parametrize(
    ("said", "chosen"),
    [("1", "allow"), ("yes", "allow"), ("Y", "allow"), ("ALLOW", "allow"), ("always", "always"), ("2", "always"),
     ("n", "deny"), (" no ", "deny"), ("Deny", "deny")],
)  # fmt: skip
def test_a_permission_is_answered_in_many_ways(said: str, chosen: str) -> None:
    assert parse_answer(PERMIT, said) == chosen


@pytest.mark.parametrize("said", ["", " ", "4", "0", "perhaps", "yes please", "1 2"])
def test_anything_else_is_refused_with_what_can_be_said(said: str) -> None:
    with pytest.raises(Invalid, match="answer 1, 2 or 3"):
        parse_answer(PERMIT, said)


def test_options_that_are_no_permission_take_no_yes() -> None:
    assert parse_answer(COLOURS, "green") == "g" == parse_answer(COLOURS, "2")
    with pytest.raises(Invalid, match="answer 1 or 2"):
        parse_answer(COLOURS, "yes")
    assert format_hint(COLOURS) == "answer 1 or 2"


def test_without_options_any_words_will_do() -> None:
    assert parse_answer(FREE, " in Oslo ") == "in Oslo"
    with pytest.raises(Invalid):
        parse_answer(FREE, "\n")


def test_a_detail_cannot_end_its_block_early() -> None:
    assert "````\na ``` b\n````" in format_question(
        Question(key="1", title="May it?", detail="a ``` b"), ENGLISH
    )


def test_a_long_detail_is_cut_and_says_so() -> None:
    text = format_question(Question(key="1", title="May\nit?", detail="x" * 5000), ENGLISH)
    assert text.startswith("May it?\n") and len(text) < 3300
    assert "2,000 more characters are not shown here" in text


def test_no_answer_allows_nothing() -> None:
    assert find_consent(PERMIT, None) is Consent.OTHER and not find_consent(PERMIT, None).allows
    assert find_consent(PERMIT, "always").allows


def test_a_lasting_consent_chooses_an_option_of_its_kind() -> None:
    assert find_remembered_answer(PERMIT, Consent.ALLOW_ALWAYS) == "allow"
    assert find_remembered_answer(PERMIT, Consent.DENY_ALWAYS) == "deny"
    assert find_remembered_answer(COLOURS, Consent.ALLOW_ALWAYS) is None
    assert (
        find_remembered_answer(
            Question(key="1", title="?", options=PERMISSION_OPTIONS[:2]), Consent.DENY_ALWAYS
        )
        is None
    )


def test_options_that_keryx_words_itself_are_in_the_language_of_the_person() -> None:
    covers = Phrase("question.agent_decides", label="Immer", agent="codex")
    options = (build_option("true", Phrase("question.yes")), build_option("x", covers))
    german = NO_CHANGES.speak("de")
    assert [label_option(o, german) for o in options] == ["Ja", "Immer (codex entscheidet, was das umfasst)"]
    question = Question(key="1", title="Sure?", options=options)
    assert parse_answer(question, "ja") == parse_answer(question, "yes") == "true"


def test_a_tool_that_was_allowed_is_confirmed_by_its_name() -> None:
    title = Phrase("question.may_use", tool="run_in_terminal")
    asked = AskedQuestion(
        id=QuestionId("q"),
        profile=DEFAULT_PROFILE,
        owner=OPERATOR,
        session=SessionId("s"),
        turn=TurnId("t"),
        asker=OPERATOR,
        question=Question(key="1", title=str(title), phrase=title.store(), tool="run_in_terminal"),
        state=QuestionState.ANSWERED,
        created_at=START_TIME,
        expires_at=START_TIME,
        answer="allow",
    )
    assert format_confirmation(asked, ENGLISH) == "Allowed once: run_in_terminal."
    assert format_confirmation(asked, NO_CHANGES.speak("de")) == "Einmal erlaubt: run_in_terminal."
