// Composer: where a person writes. Keeps what is typed on the server, takes files, completes commands, and begins new
// conversations from the home screen.

import { h, icon, iconButton, isTouched, patch, t } from "./dom.js";
import { answererOf, bytes, codeView, count, cut, elapsed, heldView, plural, said, SIZES } from "./format.js";
import { createId, here, isNew, Problem, sentFiles } from "./link.js";

const PAUSE = 500;
const SHOWN = 8;
const MODES = [
  ["", t("Send as usual")],
  ["queue", t("Answer this next")],
  ["steer", t("Put into this answer")],
  ["collect", t("Join with what waits")],
  ["interrupt", t("Stop, answer this")],
];

// Commands whose usage lists all that may follow: "[on | off]".
const LISTED = new Set(["busy", "mode", "effort", "mirror", "queue", "temp", "personality", "home", "permissions", "jobs", "link"]);
// Words of a usage that stand for something to write are no values.
const NAMED = /^(?:text|name|number|title|id|words|answer|schedule|prompt|or)$/;
const FILE = /(?:^|\s)@([^\s@]*)$/;
const ROUND = 2 * Math.PI * 6;

// What the browser itself has for speech. It is given up for this visit where it turns out not to work.
export const speechHere = { recognition: (globalThis.isSecureContext && (globalThis.SpeechRecognition ?? globalThis.webkitSpeechRecognition)) || null };
// Whether a sound can be recorded here for a model of the server.
export const records = (app) => Boolean(app.info.transcribes && globalThis.navigator?.mediaDevices && globalThis.MediaRecorder);
// The voices of a browser are known some time after the page.
export const hasVoices = () => Boolean(globalThis.speechSynthesis?.getVoices().length);

// A keyboard on glass has no Shift that is held, so Enter makes a new line there, and the button sends.
const onTouch = () => matchMedia("(pointer: coarse) and (hover: none)").matches;

// `id` is a session, or "new". `send` gets {client, text, media, busy, model, temporary}. `last` begins to change the last question.
export function composer(root, app, { id, first, send, stop, last = () => false, placeholder }) {
  const kept = app.unsent.draftOf(id);
  let text = (kept ?? first).text ?? "";
  let media = (kept ?? first).media ?? [];
  let uploading = 0;
  let choice = 0;
  let closed = false;
  let saved = "";
  let mode = "";
  let model = answererOf(app).models.includes(app.info.preferences.model) ? app.info.preferences.model : "";
  // A conversation that is begun here is not to be kept: what is typed is not saved either.
  let temporary = false;
  let timer = 0;
  // Whether the server has another text than the field, and whether it could not be told so.
  let unsaved = Boolean(kept);
  let behind = Boolean(kept) && !isNew(id);
  let area = null;
  let picker = null;
  let dragging = false;
  let left = false;
  let files = { q: null, found: [] };
  let dictation = null;

  const open = () => (id === "new" ? null : app.state.open);
  // What completes what is being typed, each as {name, shown, usage, help, text}: `text` is what the field has then.
  function completions() {
    if (closed) return [];
    const named = /^\/([a-z-]*)$/i.exec(text);
    if (named) return app.info.commands.filter((c) => [c.name, ...(c.aliases ?? [])].some((n) => n.startsWith(named[1].toLowerCase()))).map((c) => ({ ...c, shown: `/${c.name}`, text: `/${c.name} ` }));
    const valued = /^\/([a-z-]+) (.*)$/i.exec(text);
    const command = valued && app.info.commands.find((c) => [c.name, ...(c.aliases ?? [])].includes(valued[1].toLowerCase()));
    if (command) return valuesOf(command).filter((v) => v.toLowerCase().startsWith(valued[2].toLowerCase()) && v !== valued[2]).slice(0, 200).map((v) => ({ name: v, shown: v, text: `/${valued[1]} ${v}` }));
    const file = area && FILE.exec(text.slice(0, area.selectionStart));
    return file && files.q === file[1] ? files.found.map((path) => ({ name: path, shown: path, text: `${text.slice(0, area.selectionStart - file[1].length)}${path} ${text.slice(area.selectionStart)}` })) : [];
  }

  function valuesOf({ name, usage = "" }) {
    if (name === "model") return [...answererOf(app, open()).models, "default"];
    if (name === "agent") return [...(app.info.agents ?? []), "default"];
    if (name === "project") return [...app.state.projects.map((p) => p.name), "none"];
    if (name === "resume") return app.state.sessions.filter((s) => s.title && s.id !== id).slice(0, 50).map((s) => s.title);
    if (name === "zone") return [Intl.DateTimeFormat().resolvedOptions().timeZone, ...Intl.supportedValuesOf("timeZone"), "default"];
    if (name === "handoff") return [...new Set((app.info.connections ?? []).map((c) => c.platform))].filter((platform) => platform !== "local");
    if (name === "tools") return ["on", "off"];
    return LISTED.has(name) ? [...new Set(usage.replace(/[[\]<>]/g, "").split(/[|,]/).map((v) => v.trim().split(" ")[0]).filter((v) => v && !NAMED.test(v)))] : [];
  }

  // Files of the conversation's folder whose path has the letters after an @.
  async function lookForFiles() {
    const q = FILE.exec(text.slice(0, area.selectionStart))?.[1];
    if (q === undefined || !open()?.session.cwd || !app.info.who.operator) return;
    const found = await app.api.files(id, q).catch((problem) => {
      if (!(problem instanceof Problem)) throw problem;
      return { files: [] };
    });
    // An answer to what was typed before may come after the answer to what is typed now.
    if (left || FILE.exec(text.slice(0, area.selectionStart))?.[1] !== q) return;
    files = { q, found: found.files };
    update();
  }

  // How much of the model's context the conversation takes.
  function ring(session) {
    if (!session?.context_limit) return null;
    const part = Math.min(1, (session.context_used ?? 0) / session.context_limit);
    const label = t("{used} of {limit} tokens of context", { used: count(session.context_used ?? 0), limit: count(session.context_limit) });
    return h("span", { class: part > 0.85 ? "ring full" : "ring", role: "img", "aria-label": label, title: label },
      h("svg", { viewBox: "0 0 16 16", "aria-hidden": "true" }, h("circle", { class: "all", cx: 8, cy: 8, r: 6 }), h("circle", { class: "part", cx: 8, cy: 8, r: 6, "stroke-dasharray": `${part * ROUND} ${ROUND}` })));
  }

  function update() {
    if (behind && !timer && app.link === "live") {
      behind = false;
      timer = setTimeout(save, PAUSE);
    }
    const session = open()?.session;
    const running = open()?.running;
    const found = completions();
    choice = Math.min(choice, Math.max(0, found.length - 1));
    const ready = (text.trim() || media.length) && !uploading;
    patch(root, h("div", {
      class: dragging ? "composer dropping" : "composer", key: "composer",
      ondragover: (e) => (e.preventDefault(), drag(true)), ondragleave: () => drag(false), ondrop: dropped,
    },
      heldView(open(), app),
      queue(),
      found.length ? menu(found) : null,
      dictationProblem(),
      h("div", { class: "box", key: "box" },
        media.length || uploading ? h("div", { class: "attached" },
          media.map((m, i) => h("span", { class: m.kind === "image" ? "attachment thumbnail" : "attachment", key: `${i}.${m.media || m.kept}` }, m.kind === "image" ? h("img", { src: here(m.url), alt: "" }) : icon("file"), h("span", { class: "cut" }, cut(m.name || m.kind, 40)), m.size > 0 && h("span", { class: "size" }, bytes(m.size)), h("button", { type: "button", class: "quiet", "aria-label": t("Remove {name}", { name: cut(m.name || m.kind, 40) }), onclick: () => detach(m) }, icon("close")))),
          uploading ? h("span", { class: "chip", key: "up" }, plural(uploading, t("Uploading {n} file…|Uploading {n} files…"))) : null) : null,
        h("textarea", {
          rows: "1", key: "text", dir: "auto", "aria-label": t("Message"), placeholder, "aria-autocomplete": "list", "aria-controls": found.length ? "commands" : null,
          "aria-activedescendant": found.length ? `command-${choice}` : null, enterkeyhint: onTouch() ? "enter" : "send",
          ref: made, oninput: typed, onkeydown: keys, onpaste: pasted,
        }),
        h("div", { class: "below", key: "below" },
          iconButton("attach", t("Attach files"), () => picker.click()),
          h("input", { type: "file", multiple: true, hidden: true, "aria-label": t("Files to attach"), ref: (e) => (picker = e), onchange: (e) => (attach(e.target.files), (e.target.value = "")) }),
          dictationControls(),
          models(),
          id === "new" ? h("button", { type: "button", class: "choice", key: "temporary", "aria-pressed": String(temporary), title: t("Not searched, exported or kept"), onclick: keepNothing }, t("Temporary")) : null,
          ring(session),
          running ? select("mode", t("What a message does while an answer is written"), MODES, mode, (value) => { mode = value; update(); }) : null,
          h("span", { class: dictationNote() ? "note grow cut" : "note grow cut saved", role: "status" }, dictationNote() ?? saved),
          running ? h("button", { type: "button", class: "round halt", key: "stop", "aria-label": running.cancelling ? t("Stopping") : t("Stop the answer"), title: t("Stop the answer"), disabled: Boolean(running.cancelling), onclick: stop }, icon("stop")) : null,
          h("button", { type: "button", class: "round", key: "send", "aria-label": running ? t("Send to the queue") : t("Send"), title: running ? t("Send to the queue") : t("Send"), disabled: !ready, onclick: submit }, icon("send"))))));
  }

  // Words of somebody who speaks are inserted where the next letter would be. They are never sent by themselves.
  async function dictate() {
    const part = await app.part("./speech.js");
    if (!part || left) return;
    dictation ??= new part.Dictation(app, { insert: insertSaid, changed: () => left || update() });
    dictation.start();
  }

  function insertSaid(words) {
    const before = area.value.slice(0, area.selectionStart);
    const after = area.value.slice(area.selectionEnd);
    const said = `${before && !/\s$/.test(before) ? " " : ""}${words.trim()}${after && !/^\s/.test(after) ? " " : ""}`;
    area.setRangeText(said, area.selectionStart, area.selectionEnd, "end");
    typed();
    if (!onTouch()) area.focus();
  }

  function dictationControls() {
    const state = dictation?.state;
    if (!state) return speechHere.recognition || records(app) ? iconButton("microphone", t("Dictate"), dictate, { key: "dictate" }) : null;
    return [
      state !== "writing" && iconButton("microphone", t("Finish dictating"), () => dictation.finish(), { class: "mark on", key: "dictate", "aria-pressed": "true" }),
      iconButton("close", t("Discard what was said"), () => dictation.cancel(), { key: "undictate" }),
    ];
  }

  // What is being heard, for as long as it may still become other words.
  function dictationNote() {
    switch (dictation?.state) {
      case "starting": return t("Waiting for the microphone…");
      case "listening": return dictation.heard || t("Listening…");
      case "recording": return [t("Recording…"), h("span", { "aria-hidden": "true" }, ` ${elapsed(Date.now() - dictation.began)}`)];
      case "writing": return t("Writing down what was said…");
      default: return null;
    }
  }

  function dictationProblem() {
    if (!dictation?.problem) return null;
    return h("div", { class: "trouble", key: "dictation", role: "alert" }, icon("warn"), h("span", { class: "grow" }, dictation.problem),
      (dictation.sound || speechHere.recognition || records(app)) && h("button", { type: "button", class: "button", onclick: () => (dictation.sound ? dictation.write() : dictation.start()) }, t("Try again")),
      h("button", { type: "button", class: "button", onclick: () => dictation.cancel() }, dictation.sound ? t("Discard") : t("Close")));
  }

  // What answers: a choice if there is one, else the name of the only model, or of an agent without models.
  function models() {
    const session = open()?.session;
    const { agent, models: all, standard, model: chosen } = answererOf(app, open());
    const now = session ? chosen : model || standard;
    const gone = all.length && !all.includes(now);
    if (all.length < 2 && !gone) return h("span", { class: "choice answerer cut", key: "model", title: t("What answers here") }, now || agent);
    const options = all.map((name) => [name === standard ? "" : name, name]);
    if (gone) options.push([now, t("{model}, not set up any more", { model: now })]);
    return select("model", t("Model"), options, now === standard ? "" : now, (name) => chooseModel(name, session));
  }

  // The words of the choice are as large as what stands beside them. A touched field is larger, so that phones do not zoom.
  function select(name, label, options, value, choose) {
    return h("span", { class: `choice picker ${name}`, key: name },
      h("span", { class: "cut", "aria-hidden": "true" }, options.find(([given]) => given === value)[1]),
      h("select", { "aria-label": label, title: label, onchange: (e) => choose(e.target.value) }, options.map(([given, text]) => h("option", { value: given, selected: given === value }, text))));
  }

  function chooseModel(name, session) {
    if (session) app.change(session.id, { settings: { ...session.settings, model: name || null } });
    else {
      model = name;
      update();
    }
  }

  function queue() {
    const waiting = (open()?.queue ?? []).filter((w) => w.message && !(w.turn.id === open().running?.id));
    if (!waiting.length || (!open().running && waiting.length === 1)) return null;
    return h("section", { class: "queue", key: "queue", "aria-label": t("Waiting messages") },
      h("h2", {}, plural(waiting.length, t("{n} message waiting|{n} messages waiting"))),
      h("ul", {}, waiting.map((w) => h("li", { key: w.turn.id },
        h("span", { class: "cut grow", dir: "auto" }, cut(said(w.message), 200)),
        iconButton("edit", t("Edit this waiting message"), () => rewrite(w.message)),
        iconButton("close", t("Remove this queued message"), () => app.act(() => app.api.drop(w.turn.id)))))));
  }

  const rewrite = (message) => app.reword(message, { title: t("Edit the waiting message"), yes: t("Save") }, async (text) => app.dispatch({ type: "message", message: await app.api.rewrite(message.id, text) }));

  function menu(found) {
    const from = Math.max(0, Math.min(choice - SHOWN + 3, found.length - SHOWN));
    return h("div", { class: "menu", id: "commands", key: "menu", role: "listbox", "aria-label": t("Commands") },
      found.map((c, i) => i >= from && i < from + SHOWN && h("div", { class: "option", id: `command-${i}`, role: "option", "aria-posinset": i + 1, "aria-setsize": found.length, "aria-selected": String(i === choice), key: c.name, onmousedown: (e) => (e.preventDefault(), complete(c)) },
        h("code", {}, c.shown), c.help && h("span", { class: "muted cut" }, codeView(c.help)), c.usage && h("span", { class: "usage muted small cut" }, c.usage))));
  }

  function complete(wanted) {
    const rest = text.length - area.selectionEnd;
    area.value = wanted.text;
    area.setSelectionRange(wanted.text.length - rest, wanted.text.length - rest);
    typed();
  }

  function made(element) {
    area = element;
    area.value = text;
    requestAnimationFrame(grow);
  }

  function grow() {
    area.style.height = "auto";
    area.style.height = `${Math.max(44, area.scrollHeight)}px`;
  }

  function typed() {
    text = area.value;
    closed = false;
    grow();
    keep();
    update();
    lookForFiles();
  }

  function keepNothing() {
    temporary = !temporary;
    clearTimeout(timer);
    app.unsent.dropDraft(id);
    app.act(() => app.api.compose(id, temporary ? { text: "", media: [] } : { text, ...sentFiles(media.filter((m) => !m.kept)) }));
    unsaved = false;
    update();
  }

  function keep() {
    if (temporary) return;
    saved = "";
    unsaved = true;
    behind = false;
    clearTimeout(timer);
    timer = setTimeout(save, PAUSE);
  }

  // What the server does not have is in the browser, so that it outlives the tab.
  async function save() {
    timer = 0;
    if (isNew(id)) {
      app.unsent.keepDraft(id, { text, media });
      return;
    }
    let draft = { text, media };
    try {
      await bring();
      draft = { text, media };
      await app.api.compose(id, { text, ...sentFiles(media.filter((m) => !m.kept)) });
      app.unsent.dropDraft(id);
      if (id === "new" && app.info) app.info = { ...app.info, composer: draft };
      saved = draft.text.trim() ? t("Draft saved") : "";
      unsaved = draft.text !== text || draft.media !== media;
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      app.unsent.keepDraft(id, draft);
      saved = draft.text.trim() ? t("Draft not saved yet") : "";
      behind = problem.status === 0;
    }
    if (!left) update();
  }

  // Files that were attached while the server was away are sent when it is back.
  async function bring() {
    for (const part of media.filter((m) => m.kept)) {
      const sent = await app.unsent.sendFile(part).catch((problem) => {
        if (!(problem instanceof Problem) || problem.waits || problem.status === 401) throw problem;
        app.toast(problem.message, { bad: true });
        return null;
      });
      // It may have been removed meanwhile, or be on its way in a message.
      if (!media.includes(part)) continue;
      if (sent) SIZES.set(sent.media, sent.size);
      media = media.flatMap((m) => (m !== part ? m : sent ?? []));
      await app.unsent.dropFile(part);
    }
  }

  // Before what is typed goes out of sight.
  function store(now = false) {
    if (unsaved || now === true) app.unsent.keepDraft(id, { text, media });
  }

  function keys(event) {
    if (event.isComposing || event.keyCode === 229) return;
    const found = completions();
    if (found.length && ["ArrowDown", "ArrowUp", "Tab", "Escape"].includes(event.key)) {
      event.preventDefault();
      if (event.key === "Tab") complete(found[choice]);
      else if (event.key === "Escape") closed = true;
      else choice = (choice + (event.key === "ArrowDown" ? 1 : found.length - 1)) % found.length;
      update();
    } else if (event.key === "Enter" && !event.shiftKey && ((app.info.preferences.send_with === "enter" && !onTouch()) || event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      const exact = found.some((c) => c.shown === text);
      if (found.length && !exact) complete(found[choice]);
      else submit();
    } else if (event.key === "ArrowUp" && !text && !media.length && !event.shiftKey && last()) event.preventDefault();
    else if (event.key === "Escape") area.blur();
  }

  function submit() {
    if ((!text.trim() && !media.length) || uploading) return;
    const given = { client: createId(), text, media, busy: mode || null, model, temporary };
    clearTimeout(timer);
    text = area.value = saved = "";
    media = [];
    unsaved = true;
    store();
    grow();
    update();
    send(given);
    save();
  }

  // Takes a text to be edited, if nothing is being written.
  function offer(words) {
    if (text.trim() || media.length || uploading) return;
    area.value = words;
    typed();
    area.focus();
  }

  function detach(gone) {
    media = media.filter((m) => m !== gone);
    if (gone.kept) app.unsent.dropFile(gone);
    keep();
    update();
  }

  async function attach(files) {
    for (const file of Array.from(files)) {
      uploading += 1;
      update();
      const sent = await app.act(() => upload(file));
      uploading -= 1;
      if (!sent) continue;
      if (sent.media) SIZES.set(sent.media, file.size);
      media = [...media, { ...sent, size: file.size }];
      if (sent.kept) store(true);
    }
    keep();
    update();
    area.focus();
  }

  // A file that the server cannot take now is kept in this browser, unless nothing of the conversation is to be kept.
  async function upload(file) {
    try {
      return await app.api.upload(file, open()?.session);
    } catch (problem) {
      if (!(problem instanceof Problem) || !problem.waits || temporary || open()?.session.temporary) throw problem;
      return app.unsent.keepFile(file);
    }
  }

  function pasted(event) {
    if (!event.clipboardData.files.length) return;
    event.preventDefault();
    attach(event.clipboardData.files);
  }

  function drag(over) {
    if (dragging === over) return;
    dragging = over;
    update();
  }

  function dropped(event) {
    event.preventDefault();
    drag(false);
    attach(event.dataTransfer.files);
  }

  addEventListener("pagehide", store);
  update();
  return {
    update,
    offer,
    focus: () => area.focus({ preventScroll: true }),
    unsaved: () => Boolean(uploading || dictation?.state || dictation?.sound || (unsaved && (text.trim() || media.length))),
    // The conversation has begun on the server.
    rename(session) {
      id = session;
      if (text || media.length) keep();
    },
    leave() {
      left = true;
      dictation?.cancel();
      removeEventListener("pagehide", store);
      store();
      if (timer) {
        clearTimeout(timer);
        save();
      }
    },
  };
}

let homes = 0;

// The home screen: begins a conversation, and on the first day says what to do next.
export function home(root, app) {
  const mine = ++homes;
  let bringing = false;
  let over = false;

  // Brings in the conversations of files that were exported here or by another program.
  async function bring(files) {
    bringing = true;
    frame();
    for (const file of Array.from(files)) {
      const done = await app.act(() => app.api.importFile(file));
      if (!done) continue;
      const added = (done.created ?? 0) + (done.extended ?? 0);
      app.toast([
        added ? `${plural(added, t("{n} conversation of {program}|{n} conversations of {program}")).replace("{program}", done.program)}, ${plural(done.messages ?? 0, t("{n} message|{n} messages"))}.` : t("Everything in {name} is here already.", { name: file.name }),
        done.losses?.length ? t("Not kept: {what}.", { what: done.losses.join("; ") }) : "",
      ].filter(Boolean).join(" "));
    }
    bringing = false;
    frame();
  }

  const drag = (now) => (event) => {
    if (!app.info.who.operator || !event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    if (over !== now) {
      over = now;
      frame();
    }
  };

  function frame() {
    const fresh = !app.state.sessions.length && !app.state.filter.q;
    const { agent, model } = answererOf(app);
    patch(root, [
      h("div", { class: "bar only-narrow", key: "bar" }, iconButton("back", t("Back to the list"), () => app.go("/")), h("span", {}, t("New conversation"))),
      h("div", { class: over ? "screen dropping" : "screen", key: "home", ondragover: drag(true), ondragleave: drag(false), ondrop: (e) => { if (e.dataTransfer.files.length && app.info.who.operator) { e.preventDefault(); over = false; bring(e.dataTransfer.files); } } }, h("div", { class: "welcome" },
        h("h1", {}, fresh ? t("Keryx is running") : t("What is on your mind?")),
        h("p", { class: "lead" }, fresh ? t("One conversation, reachable from chat platforms, your editor, the terminal and this page. Nothing is lost when something breaks.") : t("Answered by {agent}. Every conversation, from every place, is in the list.", { agent: agent === "echo" ? t("echo, the offline agent") : model || agent })),
        h("div", { class: "cards" }, fresh && app.guided ? app.guide(true) : fresh ? first(app) : next(app),
          app.info.who.operator && card("file", t("Bring conversations along"), t("Drop an export of ChatGPT, Claude, Open WebUI, LibreChat or a coding agent here, or one of Keryx."),
            h("p", { class: "deed" }, h("label", { class: "button" }, bringing ? t("Importing…") : t("Choose a file"), h("input", { type: "file", class: "unseen", multiple: true, disabled: bringing, "aria-label": t("Files to import"), onchange: (e) => (bring(e.target.files), (e.target.value = "")) }))))))),
      h("div", { key: `write-${mine}`, own: true, id: "home-composer" }),
    ]);
  }
  frame();
  const write = composer(document.getElementById("home-composer"), app, {
    id: "new",
    first: app.info.composer ?? {},
    placeholder: t("Begin a conversation"),
    stop: () => {},
    send(message) {
      const session = `~${message.client}`;
      app.info = { ...app.info, composer: {} };
      app.unsent.add({ ...message, session });
      app.go(`/s/${session}`);
    },
  });
  if (!app.narrow || app.route.name === "new") write.focus();
  return {
    update() {
      if (app.route.name === "s") return;
      frame();
      write.update();
    },
    leave: write.leave,
    unsaved: write.unsaved,
  };
}

const card = (shape, title, text, ...more) => h("section", { class: "card" }, icon(shape), h("h2", {}, title), h("p", {}, text), more);

function first(app) {
  const echo = answererOf(app).agent === "echo";
  const operator = app.info.who.operator;
  return [
    card("edit", t("Talk here"), echo ? [t("Write below. The offline agent echoes your words; "), h("code", {}, "slow 5 one two three"), t(" shows how an answer streams.")] : t("Write below. The answer streams in, and stays if the server is stopped in the middle.")),
    operator && card("settings", echo ? t("Connect a model") : t("Change the model"), t("Any provider that speaks the protocol of OpenAI, or a program on your machine. You can try it before it is saved."), h("p", { class: "deed" }, h("a", { class: "button", href: "#/models" }, echo ? t("Add a model") : t("Models")))),
    operator && card("pairing", t("Connect a chat"), t("Telegram, Signal, Matrix, Discord and others: talk from there, and go on here."), h("p", { class: "deed" }, h("a", { class: "button", href: "#/platforms" }, t("Choose a platform")))),
  ];
}

function next(app) {
  const last = !app.state.filter.q && app.state.sessions.reduce((a, b) => (Date.parse(b.active_at) > Date.parse(a.active_at) ? b : a));
  const echo = answererOf(app).agent === "echo";
  return [
    last && h("section", { class: "card" }, icon("redo"), h("h2", {}, t("Go on")), h("p", {}, t("Where you were last: "), h("a", { href: `#/s/${last.id}` }, last.title || t("the last conversation")), ".")),
    !isTouched() && card("search", t("Find anything"), t("Ctrl K finds conversations and commands. The search field looks through every message. Press ? for all keys.")),
    echo && app.info.who.operator && (app.info.models.length
      ? card("settings", t("Let a model answer"), codeView(t("The offline agent answers, because `agent` is `echo` in the settings. With `auto` the models do.")))
      : card("settings", t("Connect a model"), t("Only the offline agent answers now."), h("p", { class: "deed" }, h("a", { class: "button", href: "#/models" }, t("Add a model"))))),
  ];
}
