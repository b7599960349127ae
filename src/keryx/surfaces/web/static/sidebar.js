// Sidebar: every conversation of every surface, live; search over all of them; and the way to the other screens.

import { h, icon, iconButton, List, patch, t } from "./dom.js";
import { ago, badge, cut, dayOf, groupOf, heldText, moment, plural, surfaceName } from "./format.js";
import { unread } from "./link.js";

const GROUP = 32;
const ROW = 56;
const PLACES = [
  ["board", "board", t("Board")],
  ["deliveries", "deliveries", t("Deliveries")],
  ["lanes", "lanes", t("Lanes")],
  ["jobs", "clock", t("Jobs")],
  ["pairing", "pairing", t("Pairing")],
  ["usage", "usage", t("Usage")],
  ["settings", "settings", t("Settings")],
];
const LINKS = { live: t("Live"), reconnecting: t("Reconnecting"), offline: t("Offline") };
const FILTERS = [
  ["", t("All conversations")],
  ["activity:running", t("Running")],
  ["activity:waiting", t("Waiting")],
  ["activity:failed", t("Failed")],
  ["archived:yes", t("Archived")],
  ["surface:job", t("Scheduled runs")],
];
const SURFACES = ["gateway", "web", "cli", "acp", "api"];

// On a phone the list is not in sight: a screen says itself when the link is lost.
export const lostLink = (app) => app.narrow && app.link !== "live" && h("span", { class: `link ${app.link}`, role: "status" }, LINKS[app.link]);

const asking = (app, id) => Object.values(app.state.questions).some((q) => q.session === id);

// What a conversation does now, in a word: what wants the person goes first.
export function stateView(app, session) {
  if (app.unsent.of(session.id).some((e) => e.error)) return h("span", { class: "state unsent" }, t("not sent yet"));
  if (asking(app, session.id)) return h("span", { class: "state asking" }, t("asking"));
  const held = Object.values(app.state.turns).find((turn) => turn.session === session.id && turn.held_until);
  if (held) return h("span", { class: "state waiting", title: heldText(held) }, t("waits until {time}", { time: moment(held.held_until) }));
  return session.activity && session.activity !== "idle" && h("span", { class: `state ${session.activity}` }, t(session.activity));
}

// The way to questions that wait in other conversations than the one that is shown.
export function askedElsewhere(app, id = "") {
  const others = Object.values(app.state.questions).filter((q) => q.session !== id);
  if (!others.length) return null;
  return h("a", { class: "button asks", key: "asks", href: others.length === 1 ? `#/s/${others[0].session}` : "#/board" }, h("span", { class: "state asking" }, plural(others.length, t("{n} question|{n} questions"))));
}

export const nameOf = (session) => session.title || t("Untitled");
const busy = (session) => session.activity === "running" || session.activity === "waiting";

// A conversation that is known by the messages alone that wait for it: it has not begun, or is not in the list.
export const unsentSession = (id, [first]) => ({ id, title: cut(first.text.trim().split("\n")[0], 60), surface: "web", created_at: first.at, active_at: first.at });

// Rows of the list: what asks the person, what is not sent yet and has no row of its own, what runs, what is pinned, then
// by day. `asked` are the sessions with a question.
export function rows(sessions, now, asked = [], unsent = []) {
  const first = new Set(asked.map((s) => s.id));
  const running = sessions.filter((s) => busy(s) && !first.has(s.id));
  const pinned = sessions.filter((s) => s.pinned && !busy(s) && !first.has(s.id));
  const out = [];
  const add = (label, members) => {
    if (!members.length) return;
    out.push({ key: `g:${label}`, label });
    for (const session of members) out.push({ key: session.id, session });
  };
  add(t("Needs you"), asked);
  add(t("Not sent yet"), unsent);
  add(t("Running"), running);
  add(t("Pinned"), pinned);
  let label = "";
  const names = new Map();
  for (const session of sessions) {
    if (busy(session) || session.pinned || first.has(session.id)) continue;
    const date = dayOf(session.active_at);
    if (!names.has(date)) names.set(date, groupOf(date, now));
    const group = names.get(date);
    if (group !== label) out.push({ key: `g:${group}`, label: group });
    label = group;
    out.push({ key: session.id, session });
  }
  return out;
}

export function sidebar(root, app) {
  let query = "";
  let found = null;
  let searches = 0;
  let timer = 0;
  let focus = null;
  let seen = null;
  let day = "";
  let items = [];
  let list = null;
  let typed = null;
  let failed = false;
  // Questions and waiting messages, as the rows show them.
  let marks = "";

  function frame() {
    const { state } = app;
    const name = app.route.name;
    patch(root, [
      h("header", { class: "side-top" },
        h("a", { class: "brand", href: "#/", "aria-label": t("Keryx, home") }, mark(), "Keryx"),
        h("span", { class: `link ${app.link}`, role: "status", title: t("How this page stands with the server") }, LINKS[app.link]),
        iconButton("plus", t("New conversation (n)"), () => app.go("/new"))),
      app.info.profiles?.length > 1 ? h("div", { class: "filters", key: "profiles" },
        h("select", { class: "choice", "aria-label": t("Profile"), onchange: (e) => app.enter(e.target.value) },
          app.info.profiles.map((p) => h("option", { key: p, value: p, selected: p === app.info.who.profile }, t("Profile {name}", { name: p }))))) : null,
      h("div", { class: "search", role: "search" },
        icon("search"),
        h("input", {
          type: "search", "aria-label": t("Search all conversations"), placeholder: t("Search"), autocomplete: "off", spellcheck: "false",
          ref: (e) => (typed = e), oninput: (e) => search(e.target.value), onkeydown: searchKeys,
        }),
        h("button", { type: "button", class: "unseen", onclick: () => app.palette() }, t("Open the command palette")),
        query
          ? iconButton("close", t("Clear the search (Esc)"), clear)
          : h("kbd", { class: "only-wide", "aria-hidden": "true" }, `${t("Ctrl")} K`)),
      h("div", { class: "filters", hidden: Boolean(query) || (!state.sessions.length && !chosen()) },
        h("select", { class: "choice", "aria-label": t("Which conversations are shown"), onchange: (e) => filter(e.target.value) },
          FILTERS.map(([value, label]) => h("option", { value, selected: value === chosen() }, label)),
          state.projects.length ? h("optgroup", { label: t("Projects") }, state.projects.map((p) => h("option", { key: p.id, value: `project:${p.id}`, selected: chosen() === `project:${p.id}` }, p.name))) : null,
          h("optgroup", { label: t("Began in") }, SURFACES.map((s) => h("option", { value: `surface:${s}`, selected: chosen() === `surface:${s}` }, surfaceName(s)))))),
      h("nav", { class: "sessions", key: "list", "aria-label": t("Conversations"), own: true, hidden: Boolean(query) || !items.length, ref: begin }),
      !query && !items.length ? h("div", { class: "hint grow", key: "none" }, chosen() ? t("No conversation fits this choice.") : [t("Conversations appear here: those of this page, and those of every chat, editor and terminal that is connected."), h("p", {}, h("a", { class: "button main only-narrow", href: "#/new" }, t("Begin the first one")))]) : null,
      query ? h("nav", { class: "sessions", key: "hits", "aria-label": t("Search results"), onkeydown: hitKeys }, hits()) : null,
      h("nav", { class: "places", "aria-label": t("Screens") },
        PLACES.map(([id, shape, label]) => h("a", { href: `#/${id}`, "aria-current": name === id ? "page" : null }, icon(shape), label, count(id)))),
    ]);
  }

  function count(id) {
    const { state } = app;
    const amount = id === "board" ? Object.keys(state.questions).length || Object.keys(state.turns).length : id === "deliveries" ? state.troubled : 0;
    if (!amount) return null;
    const what = id === "board" ? (Object.keys(state.questions).length ? t("{n} question|{n} questions") : t("{n} active turn|{n} active turns")) : t("{n} in trouble|{n} in trouble");
    return h("span", { class: "count" }, h("span", { "aria-hidden": "true" }, amount > 99 ? "99+" : amount), h("span", { class: "unseen" }, plural(amount, what)));
  }

  function begin(element) {
    list = new List(element, {
      row,
      height: (item) => (item.session ? ROW : GROUP),
      edge: (end) => end === "end" && app.more(),
      canvas: { role: "list" },
    });
    element.addEventListener("keydown", listKeys);
    element.addEventListener("focusin", (e) => (focus = e.target.closest("[data-id]")?.dataset.id ?? focus));
  }

  function row(item) {
    if (!item.session) return h("div", { class: "group", key: item.key, role: "listitem" }, item.label);
    const { session } = item;
    const open = app.route.name === "s" && app.route.id === session.id;
    const tab = (focus ?? items.find((i) => i.session)?.key) === session.id ? "0" : "-1";
    return h("div", { class: "session-row", key: item.key, role: "listitem", memo: [session, open, tab, day, app.state.projects, marks] }, () => entry(session, open, tab));
  }

  function entry(session, open, tab) {
    const fresh = unread(session) && !open;
    const project = session.project && app.state.projects.find((p) => p.id === session.project);
    return h("a", { class: fresh ? "session unread" : "session", href: `#/s/${session.id}`, "data-id": session.id, tabindex: tab, "aria-current": open ? "page" : null },
      h("span", { class: "name cut", title: nameOf(session) }, nameOf(session)),
      h("span", { class: "when" }, ago(session.active_at)),
      h("span", { class: "from" },
        h("span", { class: "badge", title: session.platform || session.surface }, badge(session.platform || session.surface)),
        h("span", { class: "cut" }, session.place || surfaceName(session.surface)),
        project && h("span", { class: "dot", title: t("Project {name}", { name: project.name }), css: { "--tone": project.colour || "" } })),
      h("span", { class: "signs" },
        session.pinned && [icon("pin"), h("span", { class: "unseen" }, t("pinned"))],
        stateView(app, session),
        fresh && h("span", { class: "unread-dot" }, h("span", { class: "unseen" }, t("unread")))));
  }

  // Sessions with a question, those too that are not in the list.
  function asked() {
    const questions = Object.values(app.state.questions);
    const first = new Map(questions.map((q) => [q.session, { id: q.session, title: q.title, surface: "web", active_at: q.asked_at }]));
    for (const session of app.state.sessions) if (first.has(session.id)) first.set(session.id, session);
    return [...first.values()];
  }

  function unlisted() {
    const known = new Set([...app.state.sessions, ...asked()].map((s) => s.id));
    const names = new Set(app.unsent.held.map((e) => app.unsent.sessionOf(e.session) || e.session));
    return [...names].filter((id) => !known.has(id)).map((id) => unsentSession(id, app.unsent.of(id)));
  }

  function chosen() {
    const { filter } = app.state;
    if (filter.archived) return "archived:yes";
    const name = ["activity", "project", "surface"].find((n) => filter[n]);
    return name ? `${name}:${filter[name]}` : "";
  }

  function filter(value) {
    const [name, given] = value.split(/:(.*)/s);
    app.load(name === "archived" ? { archived: true } : name ? { [name]: given } : {});
    if (list) list.scroller.scrollTop = 0;
  }

  function search(text) {
    query = text.trim();
    clearTimeout(timer);
    if (query) timer = setTimeout(ask, 120);
    else found = null;
    frame();
  }

  function clear() {
    typed.value = "";
    search("");
    typed.focus();
  }

  async function ask() {
    const mine = ++searches;
    const answer = await app.act(() => app.api.search(query));
    if (mine !== searches || !query) return;
    failed = answer === undefined;
    found = answer ?? null;
    frame();
    if (found) app.announce(plural(found.length, t("{n} result|{n} results")));
  }

  function hits() {
    if (!found) return h("p", { class: "hint" }, failed ? t("This cannot be shown now") : t("Searching…"));
    if (!found.length) return h("div", { class: "hint" }, h("p", {}, t("Nothing is found for “{query}”.", { query })), h("p", {}, t("Try {one}, {other}, or the beginning of a word with {star}.", { one: "from:ann", other: "before:2026-01-01", star: "*" })));
    return found.map((hit, i) =>
      h("a", { class: "hit", key: `${hit.session.id}.${hit.seq ?? "t"}.${i}`, href: `#/s/${hit.session.id}${hit.seq ? `/${hit.seq}` : ""}` },
        h("span", { class: "name" }, h("span", { class: "badge" }, badge(hit.session.platform || hit.session.surface)), h("span", { class: "cut grow" }, nameOf(hit.session)), h("span", { class: "muted small" }, ago(hit.at ?? hit.session.active_at))),
        h("span", { class: "snippet", html: hit.html })));
  }

  function searchKeys(event) {
    if (event.isComposing) return;
    if (event.key === "Escape") {
      clear();
      typed.blur();
    } else if (event.key === "ArrowDown") {
      event.preventDefault();
      if (query) root.querySelector(".hit")?.focus();
      else move(1);
    } else if (event.key === "Enter" && query) root.querySelector(".hit")?.click();
  }

  function hitKeys(event) {
    const here = document.activeElement.closest?.(".hit");
    if (event.key === "Escape") typed.focus();
    if (!here || !["ArrowDown", "ArrowUp", "j", "k"].includes(event.key)) return;
    event.preventDefault();
    event.stopPropagation();
    const down = event.key === "ArrowDown" || event.key === "j";
    const next = down ? here.nextElementSibling : here.previousElementSibling;
    (next ?? (down ? here : typed)).focus();
  }

  function listKeys(event) {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      move(event.key === "ArrowDown" ? 1 : -1);
    } else if (event.key === "Home" || event.key === "End") {
      event.preventDefault();
      move(event.key === "End" ? Infinity : -Infinity);
    }
  }

  // Moves the focus through the list: the row it stood on, else the open one, is where it begins.
  function move(step) {
    const all = items.filter((i) => i.session);
    if (!all.length) return;
    const inside = root.contains(document.activeElement) && document.activeElement.dataset?.id;
    const from = inside || focus || (app.route.name === "s" ? app.route.id : "");
    const at = all.findIndex((i) => i.key === from);
    const next = all[Math.max(0, Math.min(all.length - 1, at < 0 ? 0 : inside || step === Infinity || step === -Infinity ? at + step : at))];
    focus = next.key;
    list.reveal(focus);
    list.draw();
    list.element(focus)?.querySelector("a")?.focus({ preventScroll: true });
  }

  return {
    update() {
      const { state } = app;
      const today = new Date().toDateString();
      marks = [...app.unsent.held.map((e) => e.client), ...Object.keys(state.questions)].join();
      const signature = [state.sessions, state.projects, app.route.id, today, marks];
      if (seen && signature.every((value, i) => value === seen[i])) return frame();
      if (!seen || seen[0] !== state.sessions || seen[3] !== today || seen[4] !== marks) items = rows(state.sessions, Date.now(), asked(), unlisted());
      seen = signature;
      day = today;
      frame();
      if (focus && !items.some((i) => i.key === focus)) focus = null;
      list.set(items);
    },
    search() {
      if (app.narrow && app.route.name) app.go("/");
      typed.focus();
      typed.select();
    },
    resume() {
      if (query) ask();
    },
    move,
    focused() {
      const id = root.contains(document.activeElement) ? document.activeElement.dataset?.id : null;
      return id ? app.state.sessions.find((s) => s.id === id) : null;
    },
  };
}

function mark() {
  return h("svg", { viewBox: "0 0 20 20", "aria-hidden": "true" },
    h("rect", { width: "20", height: "20", rx: "5", fill: "currentColor" }),
    h("path", { class: "letter", d: "M6 4.5v11M6 10.5l7.5-6M8.5 9l5.5 6.5" }));
}

// What the server is asked for so that the list shows what a filter lets through.
const query = ({ archived, project, activity, surface }) => ({ archived: archived ? "yes" : null, project, activity, surface });

// What can be done with the list and with each conversation in it.
export const shelf = (app) => ({
  async load(filter) {
    await app.act(() => app.caught(() => app.api.sessions(query(filter)), (page) => app.dispatch({ type: "page", page, filter })));
  },

  async more() {
    const { next, filter } = app.state;
    if (!next || app.paging === next) return;
    app.paging = next;
    const page = await app.act(() => app.api.sessions({ ...query(filter), after: next, limit: 200 }));
    if (page && app.paging === next && app.state.next === next) app.dispatch({ type: "page", page });
    app.paging = null;
  },

  change: (id, change) =>
    app.act(async () => {
      const session = await app.api.change(id, change);
      app.dispatch({ type: "session", session });
      return session;
    }),

  async archive(session) {
    const archived = !session.archived;
    if ((await app.change(session.id, { archived })) === undefined) return;
    app.toast(archived ? t("Archived.") : t("Back in the list."), { action: t("Undo"), onclick: () => app.change(session.id, { archived: !archived }) });
  },

  pin: (session) => app.change(session.id, { pinned: !session.pinned }),

  async remove(session) {
    const sure = await app.ask({ title: t("Delete this conversation?"), text: t("It disappears now and is erased after the grace period."), yes: t("Delete"), danger: true });
    if (!sure || (await app.act(() => app.api.remove(session.id))) === undefined) return;
    app.dispatch({ type: "gone", session: session.id });
    if (app.route.id === session.id) app.go("/");
    app.toast(t("Deleted."), {
      action: t("Undo"),
      onclick: () => app.act(async () => app.dispatch({ type: "session", session: await app.api.undelete(session.id) })),
    });
  },

  async project(session) {
    const chosen = await (await app.part("./dialogs.js"))?.chooseProject(app, session);
    if (chosen !== undefined) await app.change(session.id, { project: chosen });
  },

  // Takes the last turn back, or all from that of a message on.
  async undo(id, message) {
    const undone = await app.act(() => app.api.undo(id, message ? { message: message.seq } : {}));
    if (!undone) return;
    app.toast(plural(undone.turns, t("Took back {n} turn.|Took back {n} turns.")), { action: t("Redo"), onclick: () => app.act(() => app.api.redo(id)) });
    app.offer(id, undone.text);
  },

  retry: (id) => app.act(() => app.api.retry(id)),
});
