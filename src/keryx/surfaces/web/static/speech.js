// Speech: what is said becomes words in the field, and answers are read aloud: by the browser itself where it can, else by
// models of the server.

import { hasVoices, records, speechHere } from "./composer.js";
import { t } from "./dom.js";
import { api, Problem } from "./link.js";

const LONGEST = 10 * 60_000;
const TICK = 1000;
const TYPES = ["audio/webm;codecs=opus", "audio/mp4", "audio/ogg;codecs=opus"];
const BITS = 32_000;
// Characters of what is read at once: browsers break off long ones, and a model takes longer until it begins.
const SPOKEN = 200;
const ASKED = 1000;
// The recognition of the browser does not work, or not here; a recording may.
const MISSING = new Set(["service-not-allowed", "language-not-supported", "network", "audio-capture"]);
// Parts of an answer that nobody wants to hear.
const SILENT = "pre, .code, .thought, .tool, .notice, .sign, .files, .diagram, svg, button, .unseen, .answer-facts";
const ENDS = "p, li, h1, h2, h3, h4, h5, h6, tr, blockquote, summary, div";

// What goes wrong with a microphone, in words that say what to do next.
function explain(name, message = "") {
  if (name === "NotAllowedError" || name === "not-allowed") return t("The browser does not let this page use the microphone. Allow it beside the address, then try again.");
  if (name === "NotFoundError" || name === "audio-capture") return t("No microphone was found.");
  if (name === "NotReadableError") return t("The microphone cannot be used now: another program may have it.");
  if (name === "network") return t("The speech recognition of this browser cannot be reached.");
  if (name === "service-not-allowed" || name === "language-not-supported") return t("This browser has no speech recognition here.");
  return t("The microphone does not work: {reason}", { reason: message || name });
}

// Listens until it is told to end. `insert` takes the words, `changed` is called whenever the rest is different: `state` is
// "" or one of starting, listening, recording and writing, `heard` what may still become other words, `problem` what went
// wrong, `sound` what was recorded and is not written down yet.
export class Dictation {
  constructor(app, { insert, changed }) {
    Object.assign(this, { app, insert, changed, state: "", heard: "", problem: "", sound: null, began: 0 });
    this.end = () => {};
    this.run = 0;
  }

  start() {
    this.problem = "";
    this.sound = null;
    stopReading();
    return speechHere.recognition ? this.listen() : this.record();
  }

  set(state) {
    this.state = state;
    this.changed();
  }

  fail(text) {
    this.problem = text;
    this.heard = "";
    this.set("");
  }

  // What was said until now is taken.
  finish() {
    this.end();
  }

  // Nothing that was said and is not written down is taken.
  cancel() {
    this.run += 1;
    const end = this.end;
    this.end = () => {};
    this.sound = null;
    this.problem = this.heard = "";
    end();
    this.set("");
  }

  listen() {
    const mine = ++this.run;
    const own = new speechHere.recognition();
    own.lang = navigator.language;
    // Phones give the same words again and again to those who listen on.
    own.continuous = !matchMedia("(pointer: coarse)").matches;
    own.interimResults = true;
    let failed = "";
    own.onresult = (event) => {
      if (mine !== this.run) return;
      this.heard = "";
      for (const result of Array.from(event.results).slice(event.resultIndex)) {
        if (result.isFinal) this.insert(result[0].transcript);
        else this.heard += result[0].transcript;
      }
      this.changed();
    };
    own.onerror = ({ error }) => (failed = error);
    own.onend = () => {
      if (mine !== this.run) return;
      this.end = () => {};
      this.heard = "";
      const missing = MISSING.has(failed);
      if (missing && records(this.app)) {
        speechHere.recognition = null;
        this.record();
      } else if (missing && failed !== "audio-capture" && failed !== "network") {
        speechHere.recognition = null;
        this.fail(explain(failed));
      } else if (failed && failed !== "aborted" && failed !== "no-speech") this.fail(explain(failed));
      else this.set("");
    };
    this.end = () => own.stop();
    this.set("listening");
    own.start();
  }

  async record() {
    const mine = ++this.run;
    this.set("starting");
    let stream;
    try {
      stream = await navigator.mediaDevices.getUserMedia({ audio: true });
    } catch (problem) {
      if (mine === this.run) this.fail(explain(problem.name, problem.message));
      return;
    }
    const release = () => stream.getTracks().forEach((track) => track.stop());
    if (mine !== this.run) return release();
    const type = TYPES.find((name) => MediaRecorder.isTypeSupported(name));
    const recorder = new MediaRecorder(stream, { audioBitsPerSecond: BITS, ...(type && { mimeType: type }) });
    const pieces = [];
    recorder.ondataavailable = ({ data }) => data.size && pieces.push(data);
    recorder.onstop = () => {
      clearInterval(ticking);
      release();
      if (mine === this.run) this.write(new Blob(pieces, { type: recorder.mimeType.split(";")[0] }));
    };
    this.began = Date.now();
    const ticking = setInterval(() => (Date.now() - this.began > LONGEST ? this.finish() : this.changed()), TICK);
    this.end = () => {
      this.end = () => {};
      if (recorder.state !== "inactive") recorder.stop();
    };
    recorder.start();
    this.set("recording");
  }

  // A sound that could not be written down is kept until it is, or is given up.
  async write(sound = this.sound) {
    const mine = ++this.run;
    this.end = () => {};
    this.sound = sound;
    this.problem = "";
    this.set("writing");
    try {
      const { text = "" } = await api.transcribe(sound);
      if (mine !== this.run) return;
      this.sound = null;
      if (!text) return this.fail(t("Nothing was understood."));
      this.insert(text);
      this.set("");
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      if (mine === this.run) this.fail(problem.message);
    }
  }
}

// The words of an answer as they are read: what stands in code, tools and thoughts is left out.
export function wordsOf(body) {
  const copy = body.cloneNode(true);
  for (const part of copy.querySelectorAll(".code")) part.replaceWith(`\n${t("Code.")}\n`);
  for (const part of copy.querySelectorAll(SILENT)) part.remove();
  for (const part of copy.querySelectorAll("math[alttext]")) part.replaceWith(part.getAttribute("alttext"));
  for (const part of copy.querySelectorAll("td, th")) part.append(", ");
  for (const part of copy.querySelectorAll(ENDS)) part.append("\n");
  return copy.textContent.replace(/[^\S\n]+/g, " ").replace(/\s*\n\s*/g, "\n").trim();
}

// A text in pieces of whole sentences, of at most so many characters where a sentence is not longer than that.
function pieces(text, most) {
  const sentences = text.split("\n").flatMap((line) => Array.from(new Intl.Segmenter(navigator.language, { granularity: "sentence" }).segment(line), (s) => s.segment.trim()));
  const out = [];
  for (const sentence of sentences.flatMap((s) => divide(s, most))) {
    const last = out.at(-1);
    // The first one is short, so that it is heard soon.
    if (last !== undefined && last.length + sentence.length < (out.length > 1 ? most : Math.min(most, SPOKEN))) out[out.length - 1] = `${last} ${sentence}`;
    else out.push(sentence);
  }
  return out;
}

function divide(sentence, most) {
  if (!/[\p{L}\p{N}]/u.test(sentence)) return [];
  if (sentence.length <= most) return [sentence];
  const space = sentence.lastIndexOf(" ", most);
  const end = space > 0 ? space : most;
  return [sentence.slice(0, end), ...divide(sentence.slice(end).trim(), most)];
}

// One thing is read at a time. `id` says which, `problem` why it went no further.
export const reading = { id: "", problem: "", app: null, text: "", at: 0, changed() {} };
let run = 0;
let player = null;

export function read(app, { id, text, changed }) {
  stopReading();
  Object.assign(reading, { id, text, app, changed, problem: "", at: 0 });
  return go();
}

export const readAgain = () => {
  reading.problem = "";
  return go();
};

export function stopReading() {
  run += 1;
  player?.pause();
  player = null;
  globalThis.speechSynthesis?.cancel();
  const { id, changed } = reading;
  Object.assign(reading, { id: "", problem: "", app: null, text: "", changed() {} });
  if (id) changed();
}

// Goes on from the piece that was not read to its end.
async function go() {
  const mine = ++run;
  const own = hasVoices();
  const all = pieces(reading.text, own ? SPOKEN : ASKED);
  reading.changed();
  try {
    let next = null;
    for (; reading.at < all.length; reading.at += 1) {
      const now = own ? null : await (next ?? api.speak(all[reading.at]));
      if (mine !== run) return;
      next = own || reading.at + 1 === all.length ? null : api.speak(all[reading.at + 1]);
      // Its failure is told when its turn comes.
      next?.catch(() => {});
      await (own ? utter(all[reading.at]) : play(now));
      if (mine !== run) return;
    }
    stopReading();
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    if (mine !== run) return;
    reading.problem = problem.message;
    reading.changed();
  }
}

function utter(text) {
  return new Promise((done, failed) => {
    const words = new SpeechSynthesisUtterance(text);
    words.lang = navigator.language;
    words.onend = done;
    words.onerror = ({ error }) => (error === "interrupted" || error === "canceled" ? done() : failed(new Problem(0, t("This browser cannot read aloud now: {reason}", { reason: error }))));
    speechSynthesis.speak(words);
  });
}

function play(blob) {
  const address = URL.createObjectURL(blob);
  const sound = new Audio(address);
  player = sound;
  const heard = new Promise((done, failed) => {
    const unplayable = () => failed(new Problem(0, t("This browser cannot play the sound of the server.")));
    sound.onended = done;
    // Also by the keys of a keyboard or headset, which ends it.
    sound.onpause = () => {
      if (sound.ended) return;
      if (player === sound) stopReading();
      done();
    };
    sound.onerror = unplayable;
    sound.play().catch(({ name }) => {
      if (name === "NotAllowedError") failed(new Problem(0, t("The browser wants another press before it plays a sound.")));
      else if (name !== "AbortError") unplayable();
    });
  });
  return heard.finally(() => URL.revokeObjectURL(address));
}
