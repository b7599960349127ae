"""Dictation and reading aloud: by the browser itself, by models of the server, and where neither can."""

import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Locator, expect
from tests.browser.driver import House, Tab, tab
from tests.browser.test_access import faults
from tests.fakes.endpoint import EARS, KEY, MOUTH, Endpoint, Raw, Refusal, Stall, make_sound

# What a browser with a service of its own has. Tests say what it hears.
HEARING = """window.SpeechRecognition = class {
  start() { window.listener = this; }
  stop() { setTimeout(() => this.onend()); }
};
window.hear = (transcript, isFinal) => listener.onresult({resultIndex: 0, results: [Object.assign([{transcript}], {isFinal})]});
window.refuse = (error) => { listener.onerror({error}); listener.onend(); };"""
SPEAKING = """window.spoken = [];
Object.defineProperty(window, "speechSynthesis", {value: {
  getVoices: () => [{name: "one"}],
  speak(words) { spoken.push(words.text); window.finish = () => words.onend(); },
  cancel() { spoken.push("(cancel)"); },
}});
window.SpeechSynthesisUtterance = class { constructor(text) { this.text = text; } };"""
DEAF = "delete window.webkitSpeechRecognition; delete window.SpeechRecognition;"
ANSWER = "First words. Second words.\n\n```python\nprint(1)\n```\n\n- one\n- two"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as opened:
        yield opened


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, endpoint: Endpoint) -> Iterator[House]:
    """A home with models for speech, that one Keryx serves for all tests here."""
    house = House(tmp_path_factory.mktemp("speech"))
    with house.serving(
        KERYX_LLM_API_KEY=KEY,
        KERYX_LLM_BASE_URL=endpoint.base_url,
        KERYX_LLM_MODEL="chat",
        KERYX_TRANSCRIPTION_MODEL=EARS,
        KERYX_SPEECH_MODEL=MOUTH,
    ):
        yield house


@pytest.fixture(autouse=True)
def forget(endpoint: Endpoint) -> None:
    endpoint.sounds.clear()
    endpoint.spoken.clear()
    endpoint.transcripts[:] = ["hello there"]
    endpoint.voices[:] = [make_sound(0.2)]


@contextmanager
def a_tab(browser: Browser, house: House, *, script: str = DEAF, microphone: bool = True) -> Generator[Tab]:
    with tab(browser, house) as page:
        page.page.context.add_init_script(script)
        if microphone:
            page.page.context.grant_permissions(["microphone", "clipboard-read", "clipboard-write"])
        yield page


def button(page: Tab, name: str) -> Locator:
    return page.page.get_by_role("button", name=name, exact=True)


def test_what_is_said_is_written_into_the_field_by_a_model_and_not_sent(
    browser: Browser, shared: House, endpoint: Endpoint
) -> None:
    with a_tab(browser, shared) as page:
        page.open("/new")
        page.composer.fill("Say  to Ann")
        page.composer.evaluate("field => field.setSelectionRange(4, 4)")
        button(page, "Dictate").click()
        expect(page.page.locator(".composer .note")).to_contain_text("Recording")
        assert faults(page) == []
        button(page, "Finish dictating").click()
        expect(page.composer).to_have_value("Say hello there to Ann")
        expect(button(page, "Dictate")).to_be_visible()
        expect(page.questions).to_have_count(0)
        name, sound = endpoint.sounds[0]
        assert name == "sound.webm"
        assert len(sound) > 100
        # What was said after a thought better of is not sent to anybody.
        button(page, "Dictate").click()
        expect(page.page.locator(".composer .note")).to_contain_text("Recording")
        button(page, "Discard what was said").click()
        expect(button(page, "Dictate")).to_be_visible()
        page.composer.press("End")
        page.say("Say it")
        expect(page.questions).to_have_text(["Say it"])
        assert len(endpoint.sounds) == 1


def test_what_could_not_be_written_down_is_kept_until_it_is(
    browser: Browser, shared: House, endpoint: Endpoint
) -> None:
    endpoint.transcripts[:] = [Refusal(status=400, message="too short"), "at last"]
    with a_tab(browser, shared) as page:
        page.open("/new")
        button(page, "Dictate").click()
        button(page, "Finish dictating").click()
        alert = page.page.locator(".composer").get_by_role("alert")
        expect(alert).to_contain_text("too short")
        expect(alert).not_to_contain_text("/retry")
        assert faults(page) == []
        alert.get_by_role("button", name="Try again").click()
        expect(page.composer).to_have_value("at last")
        expect(alert).to_have_count(0)
        assert endpoint.sounds[0] == endpoint.sounds[1]


def test_a_sound_without_words_and_one_that_is_given_up_change_nothing(
    browser: Browser, shared: House, endpoint: Endpoint
) -> None:
    endpoint.transcripts[:] = ["", Stall()]
    with a_tab(browser, shared) as page:
        page.open("/new")
        button(page, "Dictate").click()
        button(page, "Finish dictating").click()
        expect(page.page.get_by_role("alert")).to_contain_text("Nothing was understood")
        page.press("Close")
        button(page, "Dictate").click()
        button(page, "Finish dictating").click()
        expect(page.page.locator(".composer .note")).to_have_text("Writing down what was said…")
        button(page, "Discard what was said").click()
        endpoint.release()
        expect(button(page, "Dictate")).to_be_visible()
        expect(page.composer).to_have_value("")


def test_a_refused_microphone_is_explained_beside_the_field(browser: Browser, shared: House) -> None:
    with a_tab(browser, shared, microphone=False) as page:
        page.open("/new")
        page.composer.fill("kept")
        button(page, "Dictate").click()
        alert = page.page.locator(".composer").get_by_role("alert")
        expect(alert).to_contain_text("Allow it beside the address")
        expect(page.composer).to_have_value("kept")
        alert.get_by_role("button", name="Close").click()
        expect(alert).to_have_count(0)
        page.composer.fill("")


def test_the_browser_listens_itself_where_it_can(browser: Browser, shared: House, endpoint: Endpoint) -> None:
    with a_tab(browser, shared, script=HEARING) as page:
        page.open("/new")
        page.composer.fill("Dear Ann,")
        button(page, "Dictate").click()
        expect(page.page.locator(".composer .note")).to_have_text("Listening…")
        page.page.evaluate("hear('see yo', false)")
        expect(page.page.locator(".composer .note")).to_have_text("see yo")
        expect(page.composer).to_have_value("Dear Ann,")
        page.page.evaluate("hear('see you', true)")
        page.page.evaluate("hear(' tomorrow', true)")
        expect(page.composer).to_have_value("Dear Ann, see you tomorrow")
        button(page, "Finish dictating").click()
        expect(button(page, "Dictate")).to_be_visible()
        # A service that the browser does not have here is left for the model.
        button(page, "Dictate").click()
        page.page.evaluate("refuse('service-not-allowed')")
        expect(page.page.locator(".composer .note")).to_contain_text("Recording")
        button(page, "Finish dictating").click()
        expect(page.composer).to_have_value("Dear Ann, see you tomorrow hello there")
        assert len(endpoint.sounds) == 1
        page.composer.fill("")


def test_an_answer_is_read_aloud_by_a_model_without_its_code(
    browser: Browser, shared: House, endpoint: Endpoint
) -> None:
    endpoint.voices[:] = [make_sound(0.1), make_sound(60)]
    with a_tab(browser, shared) as page:
        page.open("/new")
        page.say(ANSWER)
        answer = page.page.locator(".message.assistant")
        expect(answer.locator("pre")).to_be_visible()
        answer.hover()
        button(page, "Read aloud").click()
        expect(page.page.locator(".kept")).to_contain_text("Reading aloud")
        expect(button(page, "Stop reading aloud")).to_be_visible()
        assert faults(page) == []
        expect(page.page.locator(".kept")).to_have_count(0)
        assert [asked["input"] for asked in endpoint.spoken] == ["First words. Second words. Code. one two"]
        answer.hover()
        button(page, "Read aloud").click()
        button(page, "Stop reading aloud").click()
        expect(page.page.locator(".kept")).to_have_count(0)
        expect(button(page, "Read aloud")).to_be_visible()


def test_a_long_answer_is_asked_for_in_pieces_and_read_on_after_a_failure(
    browser: Browser, shared: House, endpoint: Endpoint
) -> None:
    endpoint.voices[:] = [make_sound(0.1), Raw("<html>down</html>"), make_sound(0.1)]
    with a_tab(browser, shared) as page:
        page.open("/new")
        page.say(" ".join(f"This is the sentence number {n}." for n in range(40)))
        page.page.locator(".message.assistant").hover()
        button(page, "Read aloud").click()
        expect(page.page.locator(".kept")).to_contain_text("sent no sound")
        page.page.locator(".kept").get_by_role("button", name="Try again").click()
        expect(page.page.locator(".kept")).to_have_count(0)
        inputs = [asked["input"] for asked in endpoint.spoken]
        assert len(inputs[0]) <= 200
        assert inputs[1] == inputs[2]
        assert all(len(text) <= 1000 for text in inputs)
        heard = " ".join([inputs[0], *inputs[2:]])
        assert re.findall(r"\d+", heard) == [str(n) for n in range(40)]


def test_the_browser_reads_aloud_itself_where_it_can(
    browser: Browser, shared: House, endpoint: Endpoint
) -> None:
    with a_tab(browser, shared, script=SPEAKING) as page:
        page.begin("One thing. Another thing.", "One thing. Another thing.")
        page.page.locator(".message.assistant").hover()
        button(page, "Read aloud").click()
        page.page.wait_for_function("spoken.at(-1)?.startsWith('One')")
        page.page.evaluate("finish()")
        expect(page.page.locator(".kept")).to_have_count(0)
        button(page, "Read aloud").click()
        expect(page.page.locator(".kept")).to_be_visible()
        # Whoever leaves the conversation has heard enough.
        page.open("/new")
        assert page.page.evaluate("spoken.at(-1)") == "(cancel)"
        assert endpoint.spoken == []


def test_nothing_is_offered_where_neither_the_browser_nor_a_model_can(browser: Browser, house: House) -> None:
    with house.serving(), a_tab(browser, house) as page:
        page.begin("hello", "hello")
        page.page.locator(".message.assistant").hover()
        expect(button(page, "Copy")).to_have_count(2)
        expect(button(page, "Read aloud")).to_have_count(0)
        expect(button(page, "Dictate")).to_have_count(0)
