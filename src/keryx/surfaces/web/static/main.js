// Main: the page put together. Holds the state, follows the stream, knows which screen is shown, and offers every part
// what it may do.

import { copyText, h, icon, patch, t } from "./dom.js";
import { plural, said, setCurrency, SIZES } from "./format.js";
import { api, EMPTY, isNew, listUnread, OPENING, UnsentMessages, Problem, reduce, Stream } from "./link.js";
import { shelf, sidebar } from "./sidebar.js";

const SCREENS = {
  board: ["./board.js", t("Board")],
  deliveries: ["./deliveries.js", t("Deliveries")],
  lanes: ["./lanes.js", t("Lanes")],
  jobs: ["./jobs.js", t("Jobs")],
  pairing: ["./pairing.js", t("Pairing")],
  usage: ["./usage.js", t("Usage")],
  settings: ["./settings.js", t("Settings")],
  models: ["./models.js", t("Models")],
  platforms: ["./platforms.js", t("Chat platforms")],
  tools: ["./tools.js", t("Tools and agents")],
  permissions: ["./permissions.js", t("Permissions")],
  people: ["./people.js", t("People")],
  users: ["./users.js", t("Sign-in")],
  profiles: ["./profiles.js", t("Profiles")],
  guide: ["./guide.js", t("Guided start")],
};
// So long after the page is there the worker comes, in milliseconds.
const SETTLED = 1500;
const NOWHERE = { name: "", id: "", seq: 0 };
const NARROW = matchMedia("(max-width: 720px)");
const SHEET = matchMedia("(max-width: 1100px)");
const ICON = document.querySelector("link[rel=icon]");
const PLAIN = ICON.href;
// What a mark in the icon of the tab looks like: a question waits, or there is something unread.
const MARKS = { asked: "fill='%23c2620a' stroke='%23fff'", unread: "fill='%23fff' stroke='%231d2f7a'" };

let view = null;
let side = null;
let details = null;
let wanted = false;
let route = NOWHERE;
let visit = 0;
let early = null;
let sheet = false;
let interrupted = false;
let rewording = false;
let title = "Keryx";
const held = new Set();
const failures = new Map();
const alerted = new Set();
const $ = (id) => document.getElementById(id);

const app = {
  state: EMPTY,
  info: null,
  link: "reconnecting",
  // A restart was asked for on this page.
  restarting: false,
  // The worker, once it is there: see background.js.
  background: null,
  // What the browser shows outside of the page, as far as this page has asked for it.
  notifications: new Set(),
  api,
  get narrow() {
    return NARROW.matches;
  },
  get route() {
    return route;
  },
  // The open conversation, if the server knows it.
  get open() {
    return app.state.open && !isNew(app.state.open.id) ? app.state.open : null;
  },

  dispatch(event) {
    const next = reduce(app.state, event);
    if (next === app.state) return;
    app.state = next;
    draw();
  },

  // Runs a request and shows what went wrong where nothing better can. Gives `undefined` then.
  async act(work) {
    try {
      return (await work()) ?? null;
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      if (problem.status === 401) await gate();
      else app.toast(problem.message, { bad: true });
      return undefined;
    }
  },

  // Applies an answer of the server, then what the stream told meanwhile: whichever was first, nothing is lost.
  async caught(ask, apply) {
    const heard = [];
    held.add(heard);
    try {
      const answer = await ask();
      apply(answer);
      for (const event of heard) app.dispatch(event);
      return answer;
    } finally {
      held.delete(heard);
    }
  },

  go(path) {
    if (location.hash === `#${path}`) visited();
    else location.hash = path;
  },

  // What the tab is called, beside what waits.
  name(text) {
    if (title === text) return;
    title = text;
    draw();
  },

  // Gives what is shown another address: a conversation that has begun.
  replace(path) {
    history.replaceState(null, "", `#${path}`);
    route = parse();
    draw();
  },

  // Shows another profile. Its address can be kept: other tabs stay where they are.
  enter(profile) {
    location.assign(`/p/${encodeURIComponent(profile)}/`);
  },

  toast(text, { bad = false, action = null, onclick = null } = {}) {
    const box = document.createElement("div");
    const close = () => box.remove();
    patch(box, [
      h("span", { class: "grow" }, text),
      action && h("button", { type: "button", class: "button", onclick: () => (close(), onclick()) }, action),
      h("button", { type: "button", class: "mark", "aria-label": t("Close"), onclick: close }, icon("close")),
    ]);
    box.className = bad ? "toast bad" : "toast";
    box.setAttribute("role", bad ? "alert" : "status");
    $("toasts").append(box);
    while ($("toasts").children.length > 3) $("toasts").firstChild.remove();
    setTimeout(close, bad ? 9000 : 6000);
  },

  // Copies a text, or what a promise gives, and says so.
  async copy(text, told = t("Copied.")) {
    const done = await app.act(() => copyText(text));
    if (done && told) app.toast(told);
    else if (done === false) app.toast(t("The browser does not let this page copy. Select the text and press Ctrl C."), { bad: true });
    return Boolean(done);
  },

  announce(text) {
    $("announce").textContent = text;
  },

  // Asks in a dialog. Gives the text that was typed, true for a plain yes, or null.
  async ask(question) {
    return (await app.part("./dialogs.js"))?.ask(question) ?? null;
  },

  // Asks for other words of a message. What is typed is kept in this browser until `save` has brought it to the server or
  // the person gives it up. Gives what `save` gave, or null.
  async reword(message, question, save) {
    const name = `words.${message.id}`;
    const before = said(message);
    let given = null;
    const attempt = async (text) => {
      try {
        given = (await save(text)) ?? true;
      } catch (problem) {
        if (!(problem instanceof Problem)) throw problem;
        if (problem.status === 401) await gate();
        return problem.message;
      }
      return "";
    };
    const part = await app.part("./dialogs.js");
    if (!part) return null;
    rewording = true;
    await part.ask({ ...question, input: unsent.draftOf(name)?.text ?? before, long: true, typed: (text) => unsent.keepDraft(name, { text, media: [] }), save: attempt });
    rewording = false;
    // Where the session has ended, the words are kept until the same person is here again.
    if (app.info) unsent.dropDraft(name);
    return given;
  },

  // A part of the page that is loaded when it is needed; `undefined` if it cannot be loaded now.
  part: (path) => app.act(() => load(path)),

  theme(name) {
    if (name === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
    localStorage.setItem("theme", name);
  },

  // How large all text is. That is kept in this browser, because screens differ.
  size(name) {
    document.documentElement.dataset.size = name;
    localStorage.setItem("size", name);
    side?.resize();
  },

  async prefer(change) {
    const { preferences } = app.info;
    const conversations = { ...preferences.conversations, ...change.conversations };
    for (const id in conversations) if (conversations[id] === "default") delete conversations[id];
    app.info = { ...app.info, preferences: { ...preferences, ...change, conversations } };
    if (change.theme) app.theme(change.theme);
    draw();
    await app.act(() => api.prefer(change));
  },

  // Beside the conversation the details are a preference; where they would cover it, they are open for this visit only.
  get details() {
    return SHEET.matches ? sheet : app.info.preferences.details;
  },

  async toggleDetails() {
    if (SHEET.matches) sheet = !sheet;
    else await app.prefer({ details: !app.info.preferences.details });
    draw();
  },

  // Offers a text to the field of a conversation, which keeps what is being written there.
  offer(id, text) {
    if (route.name === "s" && route.id === id) view?.offer?.(text);
  },

  // The first steps of an operator: until they leave them, in place of what the home otherwise shows.
  get guided() {
    return app.info.who.operator && !app.info.preferences.guided;
  },

  // `here`: the field for a message stands below.
  guide(here = false) {
    const { models, connections, answering, preferences } = app.info;
    const echo = answering.agent === "echo";
    let next = true;
    const step = (done, shape, title, text, label, path) => {
      const main = next && !done;
      next &&= done;
      return card(done, main, shape, title, text, label, path);
    };
    const card = (done, main, shape, title, text, label, path) => h("section", { class: done ? "card done" : "card" }, icon(done ? "check" : shape), h("h2", {}, title, done && h("span", { class: "unseen" }, ` ${t("(done)")}`)), h("p", {}, text), label && h("p", { class: "deed" }, h("a", { class: main ? "button main" : "button", href: `#/${path}` }, label)));
    return [
      step(app.state.sessions.length > 0, "edit", t("Talk now"), echo ? t("The offline agent repeats your words, which shows how answers stream and stay.") : t("Write a first message. The answer streams in, and stays if the server is stopped in the middle."), !here && t("Begin a conversation"), "new"),
      step(models.some((m) => m.host !== "local:"), "settings", t("Connect a better model"), t("Any provider that speaks the protocol of OpenAI, or a program on your machine. You can try it before it is saved."), t("Connect a model"), "models"),
      step(connections.some((c) => c.platform !== "local"), "pairing", t("Connect a chat"), t("Telegram, Signal, Matrix, Discord and others: talk from there, and go on here."), t("Choose a platform"), "platforms"),
      preferences.guided
        ? h("p", {}, t("You have left the guided start; it stays here."))
        : h("p", { class: "muted small" }, h("button", { type: "button", class: "quiet", onclick: async () => { await app.prefer({ guided: true }); app.go("/"); } }, t("Leave the guided start")), " · ", t("It stays in the settings.")),
    ];
  },

  // The snapshot that came with the beginning, once.
  begun(id) {
    const { open } = app.info;
    if (open?.session.id !== id) return null;
    app.info = { ...app.info, open: null };
    return open;
  },

  // What is typed before the palette is there is meant for it, not for the field that still has the focus.
  async palette() {
    if (early !== null) return;
    early = "";
    try {
      (await app.part("./palette.js"))?.palette(app, early);
    } finally {
      early = null;
    }
  },

  draw,
};
Object.assign(app, shelf(app));

const unsent = new UnsentMessages({
  changed: draw,
  refused: gate,
  async departed() {
    if ((await signedOut()) === false) unsent.enter(app.info.who);
  },
  returned: begin,
  replaced: () => location.reload(),
  sent(entry, { reply, session, seq }) {
    const open = app.state.open;
    const shown = open?.id === entry.session || open?.id === session;
    rememberSizes(entry.media);
    const told = (type, more) => shown && app.dispatch({ type, session: open.id, client: entry.client, ...more });
    if (reply && shown) told("replied", { reply: { client: entry.client, text: reply } });
    else if (reply) app.toast(reply);
    told(seq === undefined || open?.messages.some((m) => m.seq === seq) ? "dropped" : "sent");
    view?.sent?.(entry, session);
  },
});
app.unsent = unsent;

const stream = new Stream({
  tell,
  link(name) {
    app.link = name;
    if (name !== "live") interrupted = true;
    else if (interrupted) resume();
    draw();
  },
  refused: signedOut,
});

// Asks the server whether somebody is signed in, and for a sign-in if not; undefined if it does not answer.
async function signedOut() {
  try {
    await api.prefer({});
    return false;
  } catch (problem) {
    if (problem.status !== 401) return undefined;
    await gate();
    return true;
  }
}

function tell(event) {
  if (event.type === "expired") {
    begin();
    return;
  }
  if (event.type === "message" && event.message.client) {
    // The stream may be faster than the answer to what was sent.
    rememberSizes(unsent.entries.find(({ client }) => client === event.message.client)?.media ?? []);
    unsent.settle(event.message.client, event.message.session);
  }
  for (const heard of held) heard.push(event);
  app.dispatch(event);
  view?.heard?.(event);
  side?.heard(event);
  if (event.type === "gone" && route.id === event.session) app.go("/");
  if (event.type === "delivery") later(countTroubled);
  const kind = KINDS[event.type === "question" ? `asked ${event.question.state}` : event.turn?.state];
  if (kind) alert(kind, event.question ?? event.turn);
}

function rememberSizes(parts) {
  for (const part of parts) if (part.media && part.size) SIZES.set(part.media, part.size);
}

const KINDS = { "asked open": "question", done: "finished", failed: "failed", parked: "failed" };

// Tells of what happened, once, as the person wants it.
async function alert(kind, { id, session, surface, title: text = "" }) {
  if (alerted.has(id) || !app.info) return;
  alerted.add(id);
  const { muted, conversations } = app.info.preferences;
  const level = conversations[session] ?? (muted.includes(kind) || (kind === "finished" && surface !== "web") ? "none" : "all");
  if (level === "all") (await load("./alerts.js").catch(() => null))?.alert(app, kind, { id, session, text });
}

// The link is back: what waits is sent, and what is shown is asked for again where the stream does not tell it.
function resume() {
  interrupted = false;
  // The page begins anew with the settings that are in force then.
  if (app.restarting) return location.reload();
  unsent.flush();
  if (!app.info || !side) return;
  side.resume();
  if (view?.resume) view.resume();
  else if (!view) visited();
  details?.then((shown) => shown.resume());
}

let counting = 0;
function later(work) {
  clearTimeout(counting);
  counting = setTimeout(work, 400);
}

async function countTroubled() {
  const found = await api.deliveries({ limit: 100 }).catch(() => null);
  const bad = new Set(["failed", "dead", "unknown", "held"]);
  if (found) app.dispatch({ type: "troubled", count: found.deliveries.filter((d) => bad.has(d.state)).length });
}

function draw() {
  if (wanted) return;
  wanted = true;
  if (document.hidden) setTimeout(drawn, 200);
  else requestAnimationFrame(drawn);
}

function drawn() {
  if (!wanted) return;
  wanted = false;
  if (!app.info || !side) return;
  side.update();
  view?.update?.();
  head();
  const shown = Boolean(app.open && route.name === "s" && app.details);
  $("app").classList.toggle("with-details", shown);
  $("details").hidden = !shown;
  if (shown) showDetails();
}

// The tab itself says what waits: questions first, then how many conversations have something unread.
function head() {
  const asked = Object.keys(app.state.questions).length;
  const fresh = listUnread(app.state).filter((id) => document.hidden || route.id !== id).length;
  const name = `${fresh ? `(${fresh > 99 ? "99+" : fresh}) ` : ""}${title}`;
  document.title = asked ? `${plural(asked, t("{n} question|{n} questions"))} · ${name}` : name;
  const mark = asked ? MARKS.asked : fresh ? MARKS.unread : "";
  const href = mark ? PLAIN.replace("%3C/svg%3E", `%3Ccircle cx='14.5' cy='14.5' r='4.5' ${mark}/%3E%3C/svg%3E`) : PLAIN;
  if (ICON.href !== href) ICON.href = href;
}

async function showDetails() {
  if (!details) details = load("./details.js").then((m) => m.details($("details"), app));
  try {
    (await details).update();
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    details = null;
  }
}

// Browsers remember by its address what could not be loaded.
async function load(path) {
  try {
    return await import(failures.has(path) ? `${path}?${failures.get(path)}` : path);
  } catch {
    failures.set(path, (failures.get(path) ?? 0) + 1);
    throw new Problem(0, t("The server cannot be reached. It is tried again as soon as the link is back."));
  }
}

function shell() {
  $("page").className = "";
  patch($("page"), [
    h("a", { class: "skip", href: "#main", onclick: (e) => (e.preventDefault(), $("main").focus()) }, t("Skip to the conversation")),
    h("div", { id: "app", key: "app" },
      h("div", { id: "side", own: true }),
      h("main", { id: "main", tabindex: "-1", own: true }),
      h("aside", { id: "details", "aria-label": t("Details"), hidden: true, own: true })),
    h("div", { id: "toasts", class: "toasts", key: "toasts", own: true }),
  ]);
  side = sidebar($("side"), app);
}

// Begins, or begins anew when the stream cannot go on from where it was.
async function begin() {
  stream.close();
  try {
    const start = await api.start(asked());
    app.info = start;
    setCurrency(start.currency ?? "USD");
    app.info.preferences = { theme: "system", send_with: "enter", details: false, model: "", muted: [], sound: false, guided: false, conversations: {}, ...start.preferences };
    app.theme(app.info.preferences.theme);
    if (!side) shell();
    app.dispatch({ type: "start", start });
    if (unsent.waiting().length) await keepBeside();
    unsent.enter(start.who);
    backstage();
    stream.follow(start.cursor);
    if (start.open && app.state.open?.id === start.open.session.id) app.dispatch({ type: "open", snapshot: app.begun(app.state.open.id) });
    else if (app.open || !view) {
      if (app.open) forget();
      await takeShared();
      await visited();
    } else view.resume?.();
    if (Object.keys(app.state.filter).length) await app.load(app.state.filter);
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    if (problem.status === 401) await gate();
    else if (problem.status === 403 || problem.status === 404) lost(problem);
    else trouble(problem);
  }
}

let background = null;

// The worker comes after the page: what it keeps is what the page has loaded.
async function backstage() {
  background ??= new Promise((done) => setTimeout(done, SETTLED)).then(() => load("./background.js")).then((part) => part.start(app)).catch(() => null);
  app.background = (await background) ?? null;
  if (!app.info || !app.background) return;
  await keepBeside();
  await unsent.copy();
  unsent.flush();
  await app.background.enter();
}

// What waits is kept where the worker finds it, too; what the worker has sent is known before anything is sent again.
async function keepBeside() {
  unsent.outbox ??= (await load("./background.js").catch(() => null))?.outbox ?? null;
}

// What another app shared stands in the field of a new conversation, behind what was written there. It is not sent.
async function takeShared() {
  const what = new URLSearchParams(location.search).get("shared");
  if (!what) return;
  history.replaceState(null, "", `${location.pathname}#/new`);
  const found = what === "yes" && (await (await load("./background.js")).takeShared(app.info.who.principal));
  if (!found) return app.toast(what === "large" ? t("What was shared is too large.") : t("What was shared did not arrive. Share it again."), { bad: true });
  const before = unsent.draftOf("new") ?? app.info.composer ?? {};
  const parts = [];
  for (const file of found.files) {
    const part = await app.act(() => unsent.keepFile(file));
    if (part) parts.push(part);
  }
  unsent.keepDraft("new", { text: [before.text, found.text].filter(Boolean).join("\n\n"), media: [...(before.media ?? []), ...parts] });
}

// The address names a profile that is not there, or not for this person.
function lost(problem) {
  patch($("page"), h("div", { class: "gate", key: "lost" }, h("div", { class: "empty" }, h("h2", {}, t("There is nothing here")), h("p", {}, problem.message), h("a", { class: "button main", href: "/" }, t("Go to the first page")))));
}

// The conversation is not there any more: its place on the page is made anew, and says so.
function forget() {
  app.dispatch({ type: "close" });
  route = NOWHERE;
}

// What the address asks for, so that it comes with the first answer; around what is being read, if that is shown already.
function asked() {
  const { name, id, seq } = parse();
  if (name !== "s" || isNew(id)) return {};
  load("./conversation.js").catch(() => {});
  const around = app.state.open?.id === id && view?.reader ? view.reader() : seq;
  return { session: id, around: around || null, limit: OPENING };
}

function trouble(problem) {
  if (side) {
    app.link = "offline";
    draw();
  } else {
    const waiting = unsent.waiting();
    patch($("page"), h("main", { class: "gate", key: "trouble" }, h("div", { class: "empty" }, h("h2", {}, t("Keryx does not answer")), h("p", {}, problem.message),
      waiting.length > 0 && [
        h("h3", { key: "head" }, plural(waiting.length, t("{n} message waits in this browser|{n} messages wait in this browser"))),
        h("ul", { class: "items waiting", key: "waiting" }, waiting.map((entry) => h("li", { key: entry.client, dir: "auto" }, entry.text || entry.media.map((m) => m.name).join(", ")))),
        h("p", { class: "muted small", key: "when" }, t("Sent as soon as the server is back.")),
      ],
      h("button", { type: "button", class: "button main", onclick: begin }, t("Try again")))));
  }
  setTimeout(begin, 3000);
}

async function gate() {
  stream.close();
  view?.leave?.();
  unsent.leave();
  if (app.background) app.background.push = null;
  load("./background.js").then((part) => part.leave()).catch(() => {});
  side = view = details = null;
  route = NOWHERE;
  app.info = null;
  app.state = EMPTY;
  clear();
  const { signIn } = await import("./signin.js");
  signIn($("page"), app, begin);
}

// What stands in front of the page, beside it and outside of it may say something of the person who was here.
function clear() {
  for (const box of document.querySelectorAll("dialog")) box.close();
  for (const box of document.querySelectorAll(".pop, #paper")) box.remove();
  for (const shown of app.notifications) shown.close();
  app.notifications.clear();
  app.announce("");
  title = "Keryx";
  ICON.href = PLAIN;
}

function parse() {
  const [name = "", id = "", seq = "0"] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  return { name, id, seq: Number(seq) || 0 };
}

async function visited() {
  if (!app.info) return;
  const mine = ++visit;
  const before = route;
  route = parse();
  sheet = false;
  $("app").classList.toggle("at-list", route.name === "");
  if (before.name === "s" && route.name === "s" && before.id === route.id && view?.jump) {
    view.jump(route.seq);
    draw();
    return;
  }
  view?.leave?.();
  view = null;
  if (route.name !== "s" && app.state.open) app.dispatch({ type: "close" });
  try {
    const made = await screen(mine);
    if (mine !== visit) made?.leave?.();
    else view = made;
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    if (mine === visit) view = missing(problem);
  }
  draw();
}

// In place of a screen whose code could not be loaded.
function missing(problem) {
  patch($("main"), h("div", { class: "screen", key: "missing" }, h("div", { class: "empty" }, h("h2", {}, t("This cannot be shown now")), h("p", {}, problem.message), h("button", { type: "button", class: "button main", onclick: visited }, t("Try again")))));
  return { resume: visited };
}

async function screen(mine) {
  const root = $("main");
  if (route.name === "s") {
    const { conversation } = await load("./conversation.js");
    return mine === visit ? conversation(root, app, route.id, route.seq) : null;
  }
  if (SCREENS[route.name]) {
    const [path, label] = SCREENS[route.name];
    app.name(`${label} · Keryx`);
    const { show } = await load(path);
    return mine === visit ? show(root, app) : null;
  }
  app.name("Keryx");
  const { home } = await load("./composer.js");
  return mine === visit ? home(root, app) : null;
}

function typing(target) {
  return target.closest?.("input, textarea, select, [contenteditable], dialog");
}

const current = () => side?.focused() ?? (route.name === "s" ? app.open?.session : null);
const KEYS = {
  n: () => app.go("/new"),
  "/": () => side.search(),
  j: () => side.move(1),
  k: () => side.move(-1),
  e: () => current() && app.archive(current()),
  p: () => current() && app.pin(current()),
  u: () => app.open && app.undo(app.open.id),
  r: () => app.open && app.retry(app.open.id),
  i: () => app.open && app.toggleDetails(),
  "?": async () => (await app.part("./dialogs.js"))?.keys(),
  Escape: () => app.details && app.open && app.toggleDetails(),
};

addEventListener("keydown", (event) => {
  if (!app.info || event.isComposing) return;
  if (event.key === "Enter" && event.target.matches?.("figure.diagram")) event.target.click();
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    app.palette();
  } else if (!event.ctrlKey && !event.metaKey && !event.altKey && KEYS[event.key] && !typing(event.target)) {
    event.preventDefault();
    KEYS[event.key]();
  }
});

addEventListener("keydown", (event) => {
  if (early === null || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  event.stopPropagation();
  if (event.key.length === 1) early += event.key;
  else if (event.key === "Backspace") early = early.slice(0, -1);
}, { capture: true });

addEventListener("click", async (event) => {
  // A footnote, and the place that names it, are in the same text; the address belongs to the page.
  const note = event.target.closest?.(".prose a[href^='#note-']");
  if (note) {
    event.preventDefault();
    const end = note.closest(".prose").querySelector(`[id="${CSS.escape(decodeURIComponent(note.hash.slice(1)))}"]`);
    end?.scrollIntoView({ block: "nearest" });
    end?.focus({ preventScroll: true });
  }
  const drawing = event.target.closest?.(".prose figure.diagram");
  if (drawing && !event.target.closest("a")) return void (await app.part("./dialogs.js"))?.enlarge(drawing);
  const wrap = event.target.closest?.(".code .wrap");
  if (wrap) wrap.setAttribute("aria-pressed", String(wrap.closest(".code").classList.toggle("wrapped")));
  const copy = event.target.closest?.(".code .copy");
  if (!copy) return;
  if (!(await app.copy(copy.closest(".code").querySelector("pre").textContent, ""))) return;
  copy.textContent = t("Copied");
  setTimeout(() => (copy.textContent = t("Copy")), 1500);
});

document.addEventListener("visibilitychange", draw);
// Text that is in this browser alone would be out of sight.
addEventListener("beforeunload", (event) => {
  const answering = Array.from(document.querySelectorAll(".question input.field")).some((field) => field.value.trim());
  if (unsent.entries.length || view?.unsaved?.() || side?.unsaved() || rewording || answering) event.preventDefault();
});
addEventListener("hashchange", visited);
app.theme(localStorage.getItem("theme") ?? "system");
app.size(localStorage.getItem("size") ?? "normal");
begin();
