// Sidebar: every conversation of every surface, live, by project and by day; what filters match, and search over all of
// them; several of them selected; and the way to the other screens.

import { h, icon, iconButton, isTouched, List, patch, say, t } from "./dom.js";
import { ago, cut, date, dayOf, groupOf, heldText, moment, placeView, plural, sign, surfaceName } from "./format.js";
import { unread } from "./link.js";

// Heights of a row and of the name of a group, in pixels and in letters. A section is opened by a finger, too.
const TOUCH = isTouched();
const ROW = [16, 2.5];
const GROUP = [TOUCH ? 24 : 12, 1.25];
const PLACES = [
  ["board", "board", t("Board")],
  ["deliveries", "deliveries", t("Deliveries")],
  ["lanes", "lanes", t("Lanes")],
  ["jobs", "clock", t("Jobs")],
  ["pairing", "pairing", t("Pairing")],
  ["usage", "usage", t("Usage")],
  ["settings", "settings", t("Settings")],
];
// Screens that are reached from the settings; `true`: for the operator only.
export const SETTINGS = [
  ["models", t("Models"), true],
  ["platforms", t("Chat platforms"), true],
  ["tools", t("Tools and agents"), true],
  ["permissions", t("Permissions"), false],
  ["people", t("People"), true],
  ["users", t("Sign-in"), false],
  ["profiles", t("Profiles"), true],
  ["guide", t("Guided start"), true],
];
const LINKS = { live: t("Live"), reconnecting: t("Reconnecting"), offline: t("Offline") };
const STATES = { running: t("Running"), waiting: t("Waiting"), failed: t("Failed"), pinned: t("Pinned"), archived: t("Archived"), deleted: t("Trash") };
// A filter as it is typed. What it does not match is searched for.
const FILTER = /(?:^|\s)(is|surface|person|project|tag|before|after):("[^"]*"|[^\s"()]+)(?=\s|$)/gi;
const CHATS = "gateway";
const KNOWN_SURFACES = new Set([CHATS, "web", "cli", "acp", "api", "job"]);
const AGE = /^(\d+)(h|d|w)$/;
const AGE_UNITS = { h: 3_600_000, d: 86_400_000, w: 604_800_000 };
const SECTIONS = "keryx:sections";
// How much is found at a time, and how much of one conversation is shown at first.
const HITS = 30;
const HITS_SHOWN = 3;
// How much of a project is shown at first, and when more is asked for.
const SECTION_FIRST = 5;
const SECTION_PAGE = 30;

// On a phone the list is not in sight: a screen says itself when the link is lost.
export const lostLink = (app) => app.narrow && app.link !== "live" && h("span", { class: `link ${app.link}`, role: "status" }, LINKS[app.link]);

const asking = (app, id) => Object.values(app.state.questions).some((q) => q.session === id);

// What a conversation does now, in a word: what wants the person goes first.
export function stateView(app, session) {
  if (app.unsent.of(session.id).some((e) => e.error)) return h("span", { class: "state unsent" }, t("not sent yet"));
  if (asking(app, session.id)) return h("span", { class: "state asking" }, t("asks you"));
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

// Rows of the list: what asks the person, what is not sent yet and has no row of its own, what runs, what is pinned, the
// projects, then by day. `asked` are the sessions with a question, `projects` those that have a section, each with its
// `state` if it is open.
export function rows(sessions, now, { asked = [], unsent = [], projects = [], deleted = false } = {}) {
  const out = [];
  const placed = new Set();
  const add = (label, members) => {
    if (!members.length) return;
    out.push({ key: `g:${label}`, label });
    for (const session of members) put(session);
  };
  const put = (session, project) => {
    if (placed.has(session.id)) return;
    placed.add(session.id);
    out.push({ key: session.id, session, project });
  };
  if (!deleted) {
    add(t("Needs you"), asked);
    add(t("Not sent yet"), unsent);
    add(t("Running"), sessions.filter((s) => busy(s) && !placed.has(s.id)));
    add(t("Pinned"), sessions.filter((s) => s.pinned && !placed.has(s.id)));
  }
  for (const { project, open, sessions: members, more } of projects) {
    out.push({ key: `p:${project.id}`, section: project, open });
    if (!open) continue;
    for (const session of members) put(session, project.id);
    if (more) out.push({ key: `m:${project.id}`, more: project });
  }
  const filed = new Set(projects.map(({ project }) => project.id));
  let label = "";
  const names = new Map();
  for (const session of sessions) {
    if (placed.has(session.id) || filed.has(session.project)) continue;
    const date = dayOf(deleted ? session.deleted_at : session.active_at);
    if (!names.has(date)) names.set(date, groupOf(date, now));
    const group = names.get(date);
    if (group !== label) out.push({ key: `g:${group}`, label: group, loose: true });
    label = group;
    put(session);
  }
  return out;
}

// Filters within a text, and what else is in it. States that only messages can have are searched for.
export function splitFilters(text) {
  const found = [];
  const rest = text.replace(FILTER, (whole, name, given) => {
    const value = given.replace(/^"|"$/g, "").trim();
    const fits = value && (name.toLowerCase() !== "is" || value.toLowerCase() in STATES);
    if (fits) found.push({ name: name.toLowerCase(), value: name.toLowerCase() === "is" ? value.toLowerCase() : value });
    return fits ? " " : whole;
  });
  return { found, rest: rest.trim() };
}

export const writeFilters = (filters) => filters.map(({ name, value }) => `${name}:${/[\s()]/.test(value) ? `"${value}"` : value}`).join(" ");

// What the page itself knows of a filter, to keep the list live; `fixed` if only the server can tell what else fits.
export function resolveFilters(filters, { projects = [], tags = [] }, now = Date.now()) {
  const out = { q: writeFilters(filters) };
  const same = (a, b) => a.toLowerCase() === b.toLowerCase();
  for (const { name, value } of filters) {
    if (name === "is" && ["archived", "pinned", "deleted"].includes(value)) out[value] = true;
    else if (name === "is" && !out.activity) out.activity = value;
    else if (name === "surface" && !out.surface && KNOWN_SURFACES.has(value)) out.surface = value;
    else if (name === "project" && !out.project && projects.some((p) => same(p.name, value))) out.project = projects.find((p) => same(p.name, value)).id;
    else if (name === "tag" && tags.some((tag) => same(tag.name, value))) out.tags = [...(out.tags ?? []), tags.find((tag) => same(tag.name, value)).id];
    else if (name === "after" && AGE.test(value)) out.since = Math.max(out.since ?? 0, now - AGE.exec(value)[1] * AGE_UNITS[AGE.exec(value)[2]]);
    else out.fixed = true;
  }
  return out;
}

function labelOf({ name, value }) {
  if (name === "is") return STATES[value] ?? value;
  if (name === "surface") return surfaceName(value);
  const [, days] = /^(\d+)d$/.exec(value) ?? [];
  if (name === "before") return days ? plural(Number(days), t("older than a day|older than {n} days")) : t("before {time}", { time: value });
  if (name === "after") return days ? plural(Number(days), t("last day|last {n} days")) : t("from {time}", { time: value });
  return value;
}

export function sidebar(root, app) {
  let query = "";
  let found = null;
  let searches = 0;
  let timer = 0;
  let stale = 0;
  let focus = null;
  let seen = null;
  let day = "";
  let items = [];
  let list = null;
  let typed = null;
  let failed = false;
  let chosen = [];
  let selected = new Set();
  let selecting = false;
  let picked = null;
  // Titles that are being changed, by conversation, and which of them the server could not be told of.
  const titles = new Map();
  const unkept = new Set();
  // Whether the filters could not be applied.
  let unloaded = false;
  let applied = 0;
  let moves = null;
  let unfolded = false;
  // The conversations of which all that was found is shown.
  const unfoldedHits = new Set();
  let heights = [];
  let folded = new Set(JSON.parse(localStorage.getItem(SECTIONS) ?? "[]"));
  // Questions, waiting messages, selection and the row that is renamed, as the rows show them.
  let marks = "";

  const filters = {
    has: (name, value) => chosen.some((f) => f.name === name && f.value.toLowerCase() === value.toLowerCase()),
    toggle(name, value) {
      const others = chosen.filter((f) => f.name !== name || f.value.toLowerCase() !== value.toLowerCase());
      apply(others.length < chosen.length ? others : [...chosen, { name, value }]);
    },
    set: (name, value) => apply([{ name, value }]),
    clear: () => apply([]),
  };
  const actions = { rename, select: (id) => ((selecting = true), toggle(id)) };
  const load = () => app.part("./list_actions.js");
  const busyWith = (session) => app.route.name === "s" && app.route.id === session.id;
  const current = () => items.filter((i) => i.session && selected.has(i.key)).map((i) => i.session);

  function frame() {
    const { state } = app;
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
          : h("kbd", { class: "only-wide", "aria-hidden": "true" }, "/")),
      h("div", { class: "filters", role: "group", "aria-label": t("Filters"), hidden: !state.sessions.length && !chosen.length && !state.projects.length && !query },
        h("button", { type: "button", class: "chip", key: "add", "aria-haspopup": "dialog", onclick: async () => (await load())?.chooseFilters(app, filters) }, icon("lanes"), t("Filter")),
        chosen.length && !filters.has("is", "deleted") && items.length ? iconButton("more", t("All of these"), allOfThese, { key: "all", class: "mark small-mark", "aria-haspopup": "menu" }) : null,
        chosen.map((f) => h("button", { type: "button", class: `chip chosen ${tagLook(f)}`, key: `${f.name}:${f.value}`, "aria-label": t("Remove the filter {name}", { name: labelOf(f) }), onclick: () => filters.toggle(f.name, f.value) }, labelOf(f), icon("close")))),
      h("nav", { class: "sessions", key: "list", "aria-label": t("Conversations"), own: true, hidden: Boolean(query) || unloaded || !items.length, ref: begin }),
      !query && unloaded ? h("p", { class: "hint grow", key: "unloaded" }, t("This cannot be shown now")) : null,
      !query && !unloaded && !items.length ? h("div", { class: "hint grow", key: "none" }, chosen.length ? (filters.has("is", "deleted") ? t("The trash is empty. What is deleted stays here until it is erased.") : t("No conversation fits this choice.")) : [t("Conversations appear here: those of this page, and those of every chat, editor and terminal that is connected."), h("p", {}, h("a", { class: "button main only-narrow", href: "#/new" }, t("Begin the first one")))]) : null,
      query ? h("nav", { class: "sessions", key: "hits", "aria-label": t("Search results"), onkeydown: hitKeys }, hits()) : null,
      selecting ? bulk() : foot(),
    ]);
  }

  const tagLook = ({ name, value }) => (name === "tag" ? `tag ${app.state.tags.find((tag) => tag.name.toLowerCase() === value.toLowerCase())?.colour ?? ""}` : "");

  // One line: the screens that have something to tell, and the way to all of them.
  function foot() {
    const name = app.route.name;
    const here = (id) => name === id || (id === "settings" && SETTINGS.some(([screen]) => screen === name));
    const link = ([id, shape, label]) => h("a", { href: `#/${id}`, key: id, "aria-current": here(id) ? "page" : null, onclick: () => unfold(false) }, icon(shape), h("span", { class: "cut" }, label), count(id));
    const told = PLACES.filter(([id]) => amount(id) || here(id));
    return h("nav", { class: "places", key: "places", "aria-label": t("Screens"), onkeydown: (e) => e.key === "Escape" && unfolded && (e.stopPropagation(), unfold(false), root.querySelector(".unfold").focus()) },
      unfolded ? h("div", { class: "all-places", key: "all" },
        PLACES.map(link),
        h("button", { type: "button", key: "archive", onclick: () => show("archived") }, icon("archive"), t("Archived")),
        h("button", { type: "button", key: "trash", onclick: () => show("deleted") }, icon("trash"), t("Trash"))) : null,
      h("div", { class: "one-line", key: "line" },
        h("button", { type: "button", class: "unfold", "aria-label": t("Screens"), "aria-expanded": String(unfolded), onclick: () => unfold(!unfolded) }, icon("more"), !unfolded && told.length > 1 ? null : t("Screens")),
        unfolded ? null : told.map(link)));
  }

  function unfold(wanted) {
    unfolded = wanted;
    frame();
  }

  function show(state) {
    unfolded = false;
    filters.set("is", state);
  }

  // What to do with the conversations that are selected.
  function bulk() {
    const some = current();
    const act = (name) => async () => {
      const part = await load();
      if (part && some.length) await part[name](app, some);
      if (name !== "exported") leave();
    };
    const every = (fact) => some.length > 0 && some.every((s) => s[fact]);
    const archive = ["archive", every("archived") ? t("Unarchive") : t("Archive"), act("archive")];
    const move = ["folder", t("Move"), act("move")];
    const remove = ["trash", t("Delete"), act("remove"), "danger"];
    const others = [["pin", every("pinned") ? t("Unpin") : t("Pin"), act("pin")], ["tag", t("Tags"), act("tag")], ["file", t("Export"), act("exported")], ...(some.some(busy) ? [["stop", t("Stop"), act("stop")]] : [])];
    const offered = filters.has("is", "deleted") ? [["undo", t("Bring back"), act("restore")], ["trash", t("Erase now"), act("erase"), "danger"]]
      : app.narrow ? [archive, move, remove, ["more", t("More"), async (e) => { const at = e.currentTarget; (await app.part("./dialogs.js"))?.menu(at, others); }]]
      : [archive, move, ...others, remove];
    return h("div", { class: "bulk", key: "bulk", role: "toolbar", "aria-label": t("Selected conversations"), onkeydown: (e) => e.key === "Escape" && (e.stopPropagation(), leave()) },
      h("div", { class: "one-line" },
        h("span", { class: "grow", role: "status" }, plural(some.length, t("{n} selected|{n} selected"))),
        h("button", { type: "button", class: "quiet", onclick: selectAll }, t("Select all")),
        iconButton("close", t("End the selection (Esc)"), leave)),
      h("div", { class: "deeds" }, offered.map(([shape, label, onclick, look = ""]) => h("button", { type: "button", key: shape, class: look || null, disabled: !some.length, "aria-haspopup": shape === "more" ? "menu" : null, onclick }, icon(shape), h("span", {}, label)))));
  }

  function selectAll() {
    selected = new Set(items.filter((i) => i.session).map((i) => i.key));
    redraw();
  }

  function leave() {
    selecting = false;
    selected = new Set();
    picked = null;
    redraw();
  }

  function toggle(id) {
    selected = new Set(selected);
    if (!selected.delete(id)) selected.add(id);
    picked = id;
    selecting = selected.size > 0;
    redraw();
  }

  // From the row that was chosen last to this one.
  function extend(id) {
    const all = items.filter((i) => i.session).map((i) => i.key);
    const [from, to] = [all.indexOf(picked ?? focus ?? id), all.indexOf(id)].sort((a, b) => a - b);
    selected = new Set([...selected, ...all.slice(Math.max(0, from), to + 1)]);
    selecting = true;
    redraw();
  }

  function redraw() {
    remark();
    frame();
    list?.draw();
  }

  function remark() {
    marks = [...app.unsent.held.map((e) => e.client), ...Object.keys(app.state.questions), `${selecting} ${[...titles.keys()]} ${Boolean(moves?.begin)}`, ...selected].join();
  }

  const amount = (id) => (id === "board" ? Object.keys(app.state.questions).length || Object.keys(app.state.turns).length : id === "deliveries" ? app.state.troubled : 0);

  function count(id) {
    const n = amount(id);
    if (!n) return null;
    const what = id === "board" ? (Object.keys(app.state.questions).length ? t("{n} question|{n} questions") : t("{n} active turn|{n} active turns")) : t("{n} in trouble|{n} in trouble");
    return h("span", { class: "count" }, h("span", { "aria-hidden": "true" }, n > 99 ? "99+" : n), h("span", { class: "unseen" }, plural(n, what)));
  }

  function measure() {
    const letter = parseFloat(getComputedStyle(document.documentElement).fontSize);
    heights = [ROW, GROUP].map(([pixels, letters]) => pixels + letters * letter);
  }

  function begin(element) {
    measure();
    list = new List(element, {
      row,
      height: (item) => heights[item.session ? 0 : 1],
      edge: (end) => end === "end" && app.more(),
      canvas: { role: "list" },
    });
    element.addEventListener("keydown", listKeys);
    element.addEventListener("focusin", (e) => (focus = e.target.closest("[data-id]")?.dataset.id ?? focus));
    element.addEventListener("contextmenu", (e) => {
      const session = sessionAt(e.target);
      if (!session || e.target.closest("input")) return;
      e.preventDefault();
      // A key has no place of its own.
      const point = e.clientX || e.clientY ? { x: e.clientX, y: e.clientY } : null;
      if (!moves?.held()) actionsOf(session, e.target.closest(".session-row").querySelector("a"), e.pointerType === "touch" || point === null ? null : point);
    });
    element.addEventListener("click", clicked, true);
    for (const name of ["pointerenter", "touchstart"]) element.addEventListener(name, gestures, { passive: true, once: true });
  }

  // Dragging and touching rows: loaded when a pointer comes near, which may be a finger that is on a row already.
  async function gestures(event) {
    if (moves) return;
    moves = { held: () => false };
    const part = await app.part("./list_gestures.js");
    moves = part ? part.gestures(event.currentTarget ?? list.scroller, { app, sessionAt, open: actionsOf, chosen: (session) => (selected.has(session.id) ? current() : [session]), idle: () => !selecting && !titles.size, move: async (some, project) => { await (await load())?.moveTo(app, some, project); leave(); } }) : null;
    if (event.type === "touchstart") moves?.begin(event);
    redraw();
  }

  function sessionAt(target) {
    const id = target.closest?.("[data-row]")?.dataset.row;
    return id ? items.find((i) => i.key === id)?.session : null;
  }

  async function actionsOf(session, anchor, point = null) {
    focus = session.id;
    (await load())?.rowMenu(app, anchor, session, actions, point);
  }

  async function allOfThese(event) {
    const at = event.currentTarget;
    const q = writeFilters(chosen);
    const part = await load();
    (await app.part("./dialogs.js"))?.menu(at, [
      ...(filters.has("is", "archived") ? [] : [["archive", t("Archive all of these…"), () => part.prune(app, q, false)], null]),
      ["trash", t("Delete all of these…"), () => part.prune(app, q, true), "danger"],
    ]);
  }

  function clicked(event) {
    const session = sessionAt(event.target);
    if (!session || event.target.closest("button, input")) return;
    const choose = event.ctrlKey || event.metaKey || selecting;
    if (!choose && !event.shiftKey && !session.deleted_at && !moves?.held()) return;
    event.preventDefault();
    event.stopPropagation();
    if (moves?.held()) moves.release();
    else if (event.shiftKey) extend(session.id);
    else if (choose) toggle(session.id);
    else actionsOf(session, event.target.closest("a"));
  }

  function rename(id) {
    if (!titles.has(id)) titles.set(id, items.find((i) => i.key === id)?.session.title ?? "");
    redraw();
    const field = list.element(id)?.querySelector("input");
    field?.focus();
    field?.select();
  }

  // Keeps the title that was typed. Leaving the field keeps it too. What cannot be kept now stays in the field until the
  // link is back.
  async function renamed(session, title, back = true) {
    if (!titles.delete(session.id)) return;
    unkept.delete(session.id);
    redraw();
    if (back) list.element(session.id)?.querySelector("a")?.focus();
    const wanted = title?.trim();
    if (wanted === undefined || wanted === (session.title ?? "") || (await app.change(session.id, { title: wanted })) !== undefined) return;
    titles.set(session.id, wanted);
    unkept.add(session.id);
    redraw();
  }

  function row(item) {
    if (item.section) return section(item);
    if (item.more) return h("div", { class: "group", key: item.key, role: "listitem" }, h("button", { type: "button", class: "quiet", onclick: () => unfoldSection(item.more) }, t("Show all of {name}", { name: item.more.name })));
    if (!item.session) return h("div", { class: "group", key: item.key, role: "listitem", "data-drop": item.loose ? "" : null }, item.label);
    const { session } = item;
    const open = busyWith(session);
    const tab = (focus ?? items.find((i) => i.session)?.key) === session.id ? "0" : "-1";
    return h("div", { class: item.project ? "session-row filed" : "session-row", key: item.key, role: "listitem", "data-row": session.id, memo: [session, open, tab, day, app.state.projects, app.state.tags, marks, item.project] }, () => (titles.has(session.id) ? nameField(session) : entry(item, open, tab)));
  }

  function section({ key, section: project, open }) {
    return h("div", { class: "group project-head", key, role: "listitem", "data-drop": project.id },
      h("button", { type: "button", class: "fold", "aria-expanded": String(open), onclick: () => fold(project.id) },
        icon("down"), h("span", { class: "dot", css: { "--tone": project.colour || "" } }), h("span", { class: "cut", dir: "auto" }, project.name), h("span", { class: "muted" }, project.sessions ?? 0)),
      iconButton("more", t("Actions of the project {name}", { name: project.name }), async (e) => { const at = e.currentTarget; (await load())?.projectMenu(app, at, project, filters); }, { class: "mark row-more", "aria-haspopup": "menu" }));
  }

  // Opens or closes the section of a project, here and on the next visit.
  function fold(id) {
    folded = new Set(folded);
    if (!folded.delete(id)) folded.add(id);
    localStorage.setItem(SECTIONS, JSON.stringify([...folded]));
    api.update(true);
  }

  // More of a project, then all of it.
  async function unfoldSection({ id, name }) {
    if (app.state.sections[id]?.sessions.length > SECTION_FIRST) return filters.set("project", name);
    await app.act(() => app.caught(() => app.api.sessions({ project: id, limit: SECTION_PAGE }), (page) => app.dispatch({ type: "section", project: id, page })));
  }

  function nameField(session) {
    return h("form", { class: "session rename", onsubmit: (e) => { e.preventDefault(); renamed(session, e.target.elements.title.value); } },
      h("input", { class: "field", name: "title", maxlength: "100", "aria-label": t("Title"), dir: "auto", ref: (e) => (e.value = titles.get(session.id)), oninput: (e) => titles.set(session.id, e.target.value), onblur: (e) => renamed(session, e.target.value, false), onkeydown: (e) => { e.stopPropagation(); if (e.key === "Escape") renamed(session, null); } }));
  }

  function entry({ session, project: filed }, open, tab) {
    const fresh = unread(session) && !open;
    const { projects, tags } = app.state;
    const project = !filed && session.project && projects.find((p) => p.id === session.project);
    const on = tags.filter((tag) => (session.tags ?? []).includes(tag.id));
    const most = project ? 1 : 2;
    return [
      selecting ? h("input", { type: "checkbox", class: "pick", key: "pick", checked: selected.has(session.id), tabindex: tab, "aria-label": t("Select {name}", { name: nameOf(session) }), onchange: () => toggle(session.id) }) : null,
      h("a", { class: fresh ? "session unread" : "session", key: "link", href: `#/s/${session.id}`, "data-id": session.id, tabindex: tab, "aria-current": open ? "page" : null, draggable: moves?.begin && !session.deleted_at ? "true" : "false" },
        h("span", { class: "name cut", dir: "auto", title: nameOf(session) }, nameOf(session)),
        h("span", { class: "when" }, session.erase_at ? t("until {time}", { time: date(session.erase_at) }) : ago(session.active_at)),
        h("span", { class: "from" },
          placeView(session),
          project && h("span", { class: "in-project" }, h("span", { class: "dot", css: { "--tone": project.colour || "" } }), h("span", { class: "cut" }, project.name)),
          on.slice(0, most).map((tag) => h("span", { class: `tag-mark tag cut ${tag.colour}`, key: tag.id }, tag.name)),
          on.length > most && h("span", { class: "rest", title: on.slice(most).map((tag) => tag.name).join(", ") }, `+${on.length - most}`)),
        h("span", { class: "signs" },
          session.pinned && [icon("pin"), h("span", { class: "unseen" }, t("pinned"))],
          stateView(app, session),
          fresh && h("span", { class: "unread-dot" }, h("span", { class: "unseen" }, t("unread"))))),
      selecting ? null : iconButton("more", t("Actions of {name}", { name: nameOf(session) }), (e) => actionsOf(session, e.currentTarget), { key: "more", class: "mark row-more", tabindex: tab, "aria-haspopup": "menu" }),
    ];
  }

  // Sessions with a question, those too that are not in the list.
  function asked() {
    const questions = Object.values(app.state.questions);
    const first = new Map(questions.map((q) => [q.session, { id: q.session, title: say(q.phrase, q.title), surface: "web", active_at: q.asked_at }]));
    for (const session of app.state.sessions) if (first.has(session.id)) first.set(session.id, session);
    return [...first.values()];
  }

  function unlisted() {
    const known = new Set([...app.state.sessions, ...asked()].map((s) => s.id));
    const names = new Set(app.unsent.held.map((e) => app.unsent.sessionOf(e.session) || e.session));
    return [...names].filter((id) => !known.has(id)).map((id) => unsentSession(id, app.unsent.of(id)));
  }

  // The projects with their sections, where nothing is filtered.
  function sections() {
    const { state } = app;
    if (chosen.length) return [];
    return state.projects.map((project) => {
      const open = !folded.has(project.id);
      if (state.sections[project.id]) return { project, open, ...state.sections[project.id] };
      const known = state.sessions.filter((s) => s.project === project.id);
      return { project, open, sessions: known.slice(0, SECTION_FIRST), more: (project.sessions ?? 0) > Math.min(known.length, SECTION_FIRST) };
    });
  }

  async function apply(wanted) {
    chosen = wanted;
    leave();
    if (list) list.scroller.scrollTop = 0;
    frame();
    const mine = ++applied;
    const done = await app.load(resolveFilters(chosen, app.state));
    if (mine !== applied) return;
    unloaded = done === undefined;
    frame();
  }

  // What was typed as a filter becomes one as soon as it is complete.
  function search(text, complete = / $/.test(text)) {
    if (complete) {
      const { found: more, rest } = splitFilters(text);
      if (more.length) {
        typed.value = text = rest;
        apply([...chosen.filter((f) => !more.some((m) => m.name === f.name && m.value === f.value)), ...more]);
      }
    }
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
    const answer = await app.act(() => app.api.search([writeFilters(chosen), query].filter(Boolean).join(" "), HITS));
    if (mine !== searches || !query) return;
    failed = answer === undefined;
    found = answer ?? null;
    unfoldedHits.clear();
    frame();
    if (found) app.announce(plural(found.length, t("{n} result|{n} results")));
  }

  function hits() {
    if (!found) return h("p", { class: "hint" }, failed ? t("This cannot be shown now") : t("Searching…"));
    if (!found.length) return h("div", { class: "hint" }, h("p", {}, t("Nothing is found for “{query}”.", { query })), h("p", {}, t("Try {one}, {other}, or the beginning of a word with {star}.", { one: "from:ann", other: "before:2026-01-01", star: "*" })));
    const groups = new Map();
    for (const hit of found) groups.set(hit.session.id, [...(groups.get(hit.session.id) ?? []), hit]);
    return [...Array.from(groups.values(), hitGroup), found.length >= HITS && h("p", { class: "hint", key: "more" }, t("These are the first {n}. Another word finds fewer.", { n: HITS }))];
  }

  // What was found in one conversation: its title and the first of it lead there, the rest stands below.
  function hitGroup(all) {
    const { session } = all[0];
    const title = all.find((hit) => !hit.seq);
    const [first = title, ...others] = all.filter((hit) => hit.seq);
    const shown = unfoldedHits.has(session.id) ? others : others.slice(0, HITS_SHOWN - 1);
    const link = (hit, ...inner) => h("a", { class: "hit", key: `${session.id}.${hit.seq ?? "t"}`, href: `#/s/${session.id}${hit.seq ? `/${hit.seq}` : ""}` }, inner, hit.seq && h("span", { class: "snippet", dir: "auto", html: hit.html }), sign(hit));
    return h("section", { class: "hits", key: session.id },
      link(first,
        h("span", { class: "name" }, title ? h("span", { class: "grow", dir: "auto", html: title.html }) : h("span", { class: "grow", dir: "auto" }, nameOf(session)), h("span", { class: "when" }, ago(session.active_at))),
        h("span", { class: "from" }, placeView(session), others.length > 0 && h("span", { class: "amount" }, plural(others.length + 1, t("{n} message|{n} messages"))))),
      shown.map((hit) => link(hit)),
      others.length > shown.length && h("button", { type: "button", class: "quiet", key: "all", onclick: () => { unfoldedHits.add(session.id); frame(); } }, plural(others.length - shown.length, t("{n} more|{n} more"))));
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
    } else if (event.key === "Enter" && query) {
      const { found: more, rest } = splitFilters(query);
      if (more.length && !rest) search(typed.value, true);
      else root.querySelector(".hit")?.click();
    } else if (event.key === "Backspace" && !typed.value && chosen.length) {
      // The last filter becomes text again.
      event.preventDefault();
      const last = chosen.at(-1);
      apply(chosen.slice(0, -1));
      typed.value = writeFilters([last]);
      search(typed.value, false);
    }
  }

  function hitKeys(event) {
    const here = document.activeElement.closest?.(".hit");
    if (event.key === "Escape") typed.focus();
    if (!here || !["ArrowDown", "ArrowUp", "j", "k"].includes(event.key)) return;
    event.preventDefault();
    event.stopPropagation();
    const down = event.key === "ArrowDown" || event.key === "j";
    const all = Array.from(root.querySelectorAll(".hit"));
    (all[all.indexOf(here) + (down ? 1 : -1)] ?? (down ? here : typed)).focus();
  }

  function listKeys(event) {
    const session = sessionAt(event.target);
    if (event.target.closest("input:not(.pick)")) return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      const step = event.key === "ArrowDown" ? 1 : -1;
      if (event.shiftKey && session) {
        picked ??= session.id;
        if (!selected.has(session.id)) extend(session.id);
        move(step);
        if (focus !== session.id) extend(focus);
      } else move(step);
    } else if (event.key === "Home" || event.key === "End") {
      event.preventDefault();
      move(event.key === "End" ? Infinity : -Infinity);
    } else if (session && event.key === "F2" && !session.deleted_at) {
      event.preventDefault();
      rename(session.id);
    } else if (session && event.key === "x" && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      toggle(session.id);
      refocus();
    } else if (session && event.key === "Delete") {
      event.preventDefault();
      const some = selecting ? current() : [session];
      load().then((part) => (session.deleted_at ? part?.erase(app, some) : selecting ? part?.remove(app, some) : app.remove(session))).then(leave);
    } else if (event.key === "Escape" && selecting) {
      event.stopPropagation();
      leave();
      refocus();
    }
  }

  function refocus() {
    list.element(focus)?.querySelector("a")?.focus({ preventScroll: true });
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

  const api = {
    update(again = false) {
      const { state } = app;
      const today = new Date().toDateString();
      remark();
      const signature = [state.sessions, state.projects, app.route.id, today, marks, state.sections, state.tags];
      if (!again && seen && signature.every((value, i) => value === seen[i])) return frame();
      if (again || !seen || [0, 1, 3, 4, 5].some((i) => seen[i] !== signature[i])) items = rows(state.sessions, Date.now(), { asked: chosen.length ? [] : asked(), unsent: chosen.length ? [] : unlisted(), projects: sections(), deleted: filters.has("is", "deleted") });
      if (selecting) selected = new Set(items.map((i) => i.key).filter((key) => selected.has(key)));
      seen = signature;
      day = today;
      frame();
      if (focus && !items.some((i) => i.key === focus)) focus = null;
      list.set(items);
    },
    // Where only the server knows what fits, it is asked again soon after something has changed.
    heard(event) {
      const { filter } = app.state;
      if (!(filter.fixed || filter.deleted) || !["session", "gone"].includes(event.type)) return;
      clearTimeout(stale);
      stale = setTimeout(() => app.load(filter), 500);
    },
    search() {
      if (app.narrow && app.route.name) app.go("/");
      typed.focus();
      typed.select();
    },
    resume() {
      if (query) ask();
      if (unloaded) apply(chosen);
      for (const id of [...unkept]) {
        const session = items.find((i) => i.key === id)?.session;
        if (session) renamed(session, titles.get(id), false);
      }
    },
    unsaved: () => unkept.size > 0,
    // Letters have another size.
    resize() {
      measure();
      api.update(true);
    },
    move,
    focused() {
      const id = root.contains(document.activeElement) ? document.activeElement.dataset?.id : null;
      return id ? items.find((i) => i.key === id)?.session ?? null : null;
    },
  };
  return api;
}

function mark() {
  return h("svg", { viewBox: "0 0 20 20", "aria-hidden": "true" },
    h("rect", { width: "20", height: "20", rx: "5", fill: "currentColor" }),
    h("path", { class: "letter", d: "M6 4.5v11M6 10.5l7.5-6M8.5 9l5.5 6.5" }));
}

// What can be done with the list and with each conversation in it.
export const shelf = (app) => ({
  async load(filter) {
    return app.act(() => app.caught(() => app.api.sessions({ q: filter.q }), (page) => app.dispatch({ type: "page", page, filter })));
  },

  async more() {
    const { next, filter } = app.state;
    if (!next || app.paging === next) return;
    app.paging = next;
    const page = await app.act(() => app.api.sessions({ q: filter.q, after: next, limit: 200 }));
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
