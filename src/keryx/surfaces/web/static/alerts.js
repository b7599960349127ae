// Alerts: how a person is told of what happened while they look elsewhere: by the page, by the browser, by a sound. One
// tab tells, and none of what is before their eyes.

import { t } from "./dom.js";
import { here } from "./link.js";
import { nameOf } from "./sidebar.js";

const TEXTS = { finished: t("An answer is finished"), question: t("An agent needs you"), failed: t("An answer failed") };
// A tab that has the focus goes first, and says it as long as the others may ask.
const OTHERS_WAIT = 300;
const HOLD = 3000;
const TONES = { finished: [660, 880], question: [880, 660], failed: [440, 330] };

// `text` says more than the kind does, such as the question itself.
export async function alert(app, kind, { id, session, text }) {
  if (!document.hasFocus()) await new Promise((done) => setTimeout(done, OTHERS_WAIT));
  const say = () => tell(app, kind, { id, session, text: text || TEXTS[kind] });
  if (!navigator.locks) return say();
  await navigator.locks.request(`alert ${id}`, { ifAvailable: true }, async (lock) => {
    if (!lock) return;
    say();
    await new Promise((done) => setTimeout(done, HOLD));
  });
}

function tell(app, kind, { id, session, text }) {
  const open = () => app.go(`/s/${session}`);
  const present = document.hasFocus() && !document.hidden;
  // A conversation that has just begun here may not have its own address yet.
  const inView = !document.hidden && app.route.name === "s" && app.unsent.sessionOf(app.route.id) === session;
  if (present && inView) return;
  if (app.info?.preferences.sound) play(TONES[kind]);
  const found = app.state.sessions.find((s) => s.id === session);
  const name = found ? nameOf(found) : "Keryx";
  // What is in view needs no second notice on the same page.
  if ((present || !show(app, kind, { id, session, name, text, open })) && !inView) app.toast(`${name}: ${text}`, { bad: kind === "failed", action: t("Open"), onclick: open });
}

// Says it outside of the page. False if the browser does not. Where the worker tells of the same, it knows so by the id.
function show(app, kind, { id, session, name, text, open }) {
  if (globalThis.Notification?.permission !== "granted") return false;
  const byWorker = () => app.background?.show(kind, { id, session, path: here(`/#/s/${session}`), title: name, text }) ?? false;
  if (app.background?.push) return byWorker();
  try {
    const shown = new Notification(name, { body: text, tag: session });
    app.notifications.add(shown);
    shown.onclose = () => app.notifications.delete(shown);
    shown.onclick = () => {
      window.focus();
      open();
      shown.close();
    };
    return true;
  } catch (problem) {
    // Phones leave notifications to service workers.
    if (!(problem instanceof TypeError)) throw problem;
    return byWorker();
  }
}

function play(tones) {
  const context = new AudioContext();
  tones.forEach((pitch, i) => {
    const from = context.currentTime + i * 0.16;
    const tone = new OscillatorNode(context, { frequency: pitch });
    const volume = new GainNode(context, { gain: 0 });
    volume.gain.setValueAtTime(0.0001, from);
    volume.gain.exponentialRampToValueAtTime(0.12, from + 0.02);
    volume.gain.exponentialRampToValueAtTime(0.0001, from + 0.15);
    tone.connect(volume).connect(context.destination);
    tone.start(from);
    tone.stop(from + 0.16);
    if (i === tones.length - 1) tone.onended = () => context.close();
  });
}
