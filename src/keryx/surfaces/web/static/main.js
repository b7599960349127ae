// Main: the page put together. Holds the state, follows the stream, knows which screen is shown, and offers every part
// what it may do.

import { h, icon, patch, t } from "./dom.js";
import { api, EMPTY, OPENING, Problem, reduce, Stream } from "./link.js";
import { shelf, sidebar } from "./sidebar.js";

const SCREENS = {
  board: ["./board.js", t("Board")],
  deliveries: ["./deliveries.js", t("Deliveries")],
  lanes: ["./lanes.js", t("Lanes")],
  jobs: ["./jobs.js", t("Jobs")],
  pairing: ["./pairing.js", t("Pairing")],
  usage: ["./usage.js", t("Usage")],
  settings: ["./settings.js", t("Settings")],
};
const NOWHERE = { name: "", id: "", seq: 0 };
const NARROW = matchMedia("(max-width: 720px)");
const SHEET = matchMedia("(max-width: 1100px)");

let view = null;
let side = null;
let details = null;
let wanted = false;
let route = NOWHERE;
let visit = 0;
let early = null;
let sheet = false;
const held = new Set();
const $ = (id) => document.getElementById(id);

const app = {
  state: EMPTY,
  info: null,
  link: "reconnecting",
  api,
  get narrow() {
    return NARROW.matches;
  },
  get route() {
    return route;
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

  announce(text) {
    $("announce").textContent = text;
  },

  // Asks in a dialog. Gives the text that was typed, true for a plain yes, or null.
  async ask(question) {
    const { ask } = await import("./dialogs.js");
    return ask(question);
  },

  theme(name) {
    if (name === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
    localStorage.setItem("theme", name);
  },

  async prefer(change) {
    app.info = { ...app.info, preferences: { ...app.info.preferences, ...change } };
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
      const { palette } = await import("./palette.js");
      palette(app, early);
    } finally {
      early = null;
    }
  },

  draw,
};
Object.assign(app, shelf(app));

const stream = new Stream({
  tell,
  link(name) {
    app.link = name;
    draw();
  },
  async refused() {
    try {
      await api.prefer({});
    } catch (problem) {
      if (problem.status === 401) {
        await gate();
        return true;
      }
    }
    return false;
  },
});

function tell(event) {
  if (event.type === "expired") {
    begin();
    return;
  }
  for (const heard of held) heard.push(event);
  app.dispatch(event);
  view?.heard?.(event);
  if (event.type === "gone" && route.id === event.session) app.go("/");
  if (event.type === "delivery") later(countTroubled);
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
  const open = app.state.open;
  const shown = Boolean(open && route.name === "s" && app.details);
  $("app").classList.toggle("with-details", shown);
  $("details").hidden = !shown;
  if (shown) showDetails();
}

async function showDetails() {
  if (!details) details = import("./details.js").then((m) => m.details($("details"), app));
  (await details).update();
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
    app.info.preferences = { theme: "system", send_with: "enter", details: false, model: "", ...start.preferences };
    app.theme(app.info.preferences.theme);
    if (!side) shell();
    app.dispatch({ type: "start", start });
    stream.follow(start.cursor);
    if (start.open && app.state.open?.id === start.open.session.id) app.dispatch({ type: "open", snapshot: app.begun(app.state.open.id) });
    else {
      if (app.state.open) forget();
      await visited();
    }
    if (Object.keys(app.state.filter).length) await app.load(app.state.filter);
  } catch (problem) {
    if (!(problem instanceof Problem)) throw problem;
    if (problem.status === 401) await gate();
    else if (problem.status === 403 || problem.status === 404) lost(problem);
    else trouble(problem);
  }
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
  if (name !== "s") return {};
  import("./conversation.js");
  const around = app.state.open?.id === id && view?.reader ? view.reader() : seq;
  return { session: id, around: around || null, limit: OPENING };
}

function trouble(problem) {
  if (side) {
    app.link = "offline";
    draw();
  } else {
    patch($("page"), h("div", { class: "gate", key: "trouble" }, h("div", { class: "empty" }, h("h2", {}, t("Keryx does not answer")), h("p", {}, problem.message), h("button", { type: "button", class: "button main", onclick: begin }, t("Try again")))));
  }
  setTimeout(begin, 3000);
}

async function gate() {
  stream.close();
  side = view = details = null;
  app.info = null;
  app.state = EMPTY;
  const { signIn } = await import("./signin.js");
  signIn($("page"), app, begin);
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
  const made = await screen(mine);
  if (mine !== visit) made?.leave?.();
  else view = made;
  draw();
}

async function screen(mine) {
  const root = $("main");
  if (route.name === "s") {
    const { conversation } = await import("./conversation.js");
    return mine === visit ? conversation(root, app, route.id, route.seq) : null;
  }
  if (SCREENS[route.name]) {
    const [path, title] = SCREENS[route.name];
    document.title = `${title} · Keryx`;
    const { show } = await import(path);
    return mine === visit ? show(root, app) : null;
  }
  document.title = "Keryx";
  const { home } = await import("./composer.js");
  return mine === visit ? home(root, app) : null;
}

function typing(target) {
  return target.closest?.("input, textarea, select, [contenteditable], dialog");
}

const current = () => side?.focused() ?? (route.name === "s" ? app.state.open?.session : null);
const KEYS = {
  n: () => app.go("/new"),
  "/": () => side.search(),
  j: () => side.move(1),
  k: () => side.move(-1),
  e: () => current() && app.archive(current()),
  p: () => current() && app.pin(current()),
  u: () => app.state.open && app.undo(app.state.open.id).then((undone) => undone && view?.fill?.(undone.text)),
  r: () => app.state.open && app.retry(app.state.open.id),
  i: () => app.state.open && app.toggleDetails(),
  "?": async () => (await import("./dialogs.js")).keys(),
  Escape: () => app.details && app.state.open && app.toggleDetails(),
};

addEventListener("keydown", (event) => {
  if (!app.info || event.isComposing) return;
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
  const copy = event.target.closest?.(".code > .copy");
  if (!copy) return;
  await navigator.clipboard.writeText(copy.parentElement.querySelector("pre").textContent);
  copy.textContent = t("Copied");
  setTimeout(() => (copy.textContent = t("Copy")), 1500);
});

addEventListener("hashchange", visited);
app.theme(localStorage.getItem("theme") ?? "system");
begin();
