// List actions: what can be done with the conversations of the list, with one or with several, and with all that a
// filter matches; the choice of filters, tags and projects. Loaded when it is needed.

import { ask, chooseProject, dialog, menu } from "./dialogs.js";
import { h, iconButton, patch, t } from "./dom.js";
import { plural, surfaceName } from "./format.js";
import { isNew } from "./link.js";

const COLOURS = ["grey", "red", "orange", "yellow", "green", "teal", "blue", "purple", "pink"];
const COLOUR_NAMES = { grey: t("grey"), red: t("red"), orange: t("orange"), yellow: t("yellow"), green: t("green"), teal: t("teal"), blue: t("blue"), purple: t("purple"), pink: t("pink") };
const STATES = [["running", t("Running")], ["waiting", t("Waiting")], ["failed", t("Failed")], ["pinned", t("Pinned")], ["archived", t("Archived")], ["deleted", t("Trash")]];
const SURFACES = ["gateway", "web", "cli", "acp", "api", "job"];
const AGES = [["after", "1d", t("Last day")], ["after", "7d", t("Last 7 days")], ["after", "30d", t("Last 30 days")], ["before", "30d", t("Older than 30 days")], ["before", "365d", t("Older than a year")]];
const FORMATS = [["markdown", "Markdown"], ["html", t("Page")], ["jsonl", "JSONL"]];

// The actions of one row. `list` has what only the list can do: rename in place and select.
export function rowMenu(app, anchor, session, list, point = null) {
  const some = [session];
  const open = isNew(session.id) ? [] : session.deleted_at ? [
    ["undo", t("Bring back"), () => restore(app, some)],
    ["check", t("Select"), () => list.select(session.id)],
    null,
    ["trash", t("Erase now"), () => erase(app, some), "danger"],
  ] : [
    ["edit", t("Rename"), () => list.rename(session.id)],
    ["pin", session.pinned ? t("Unpin") : t("Pin"), () => app.pin(session)],
    ["archive", session.archived ? t("Unarchive") : t("Archive"), () => app.archive(session)],
    ["folder", t("Move to a project"), () => move(app, some)],
    ["tag", t("Tags"), () => tag(app, some)],
    null,
    ["file", t("Export"), () => exported(app, some)],
    ...(session.activity === "running" ? [["stop", t("Stop the answer"), () => stop(app, some)]] : []),
    ["check", t("Select"), () => list.select(session.id)],
    null,
    ["trash", t("Delete"), () => app.remove(session), "danger"],
  ];
  if (open.length) menu(anchor, open, { point, title: session.title || t("Untitled") });
}

// Makes one change of several conversations, and offers to take it back. `back` gives the change that does so for each.
async function change(app, some, body, told, back) {
  const done = await app.act(() => app.api.changeMany(some.map((s) => s.id), body));
  if (!done) return false;
  for (const session of done.sessions) app.dispatch(session.deleted_at && !app.state.filter.deleted ? { type: "gone", session: session.id } : { type: "session", session });
  if ("project" in body) await countProjects(app);
  if (told) app.toast(plural(some.length, told), back ? { action: t("Undo"), onclick: () => revert(app, some, back) } : {});
  return true;
}

// Conversations that were alike go back together.
async function revert(app, some, back) {
  const groups = Map.groupBy(some, (session) => JSON.stringify(back(session)));
  for (const [body, members] of groups) await change(app, members, JSON.parse(body));
}

async function countProjects(app) {
  const found = await app.act(() => app.api.projects());
  for (const project of found?.projects ?? []) app.dispatch({ type: "project", project });
}

export const pin = (app, some) => {
  const pinned = !some.every((s) => s.pinned);
  return change(app, some, { pinned }, pinned ? t("Pinned {n} conversation.|Pinned {n} conversations.") : t("Unpinned {n} conversation.|Unpinned {n} conversations."), (s) => ({ pinned: s.pinned ?? false }));
};

export const archive = (app, some) => {
  const archived = !some.every((s) => s.archived);
  return change(app, some, { archived }, archived ? t("Archived {n} conversation.|Archived {n} conversations.") : t("{n} conversation is back in the list.|{n} conversations are back in the list."), (s) => ({ archived: s.archived ?? false }));
};

export const stop = (app, some) => change(app, some, { stop: true }, t("Stopping {n} conversation.|Stopping {n} conversations."));

export const restore = (app, some) => change(app, some, { deleted: false }, t("{n} conversation is back in the list.|{n} conversations are back in the list.")).then((done) => done && app.load(app.state.filter));

export async function remove(app, some) {
  const sure = await ask({ title: plural(some.length, t("Delete {n} conversation?|Delete {n} conversations?")), text: t("They go to the trash and are erased after the grace period."), yes: t("Delete"), danger: true });
  if (!sure || !(await change(app, some, { deleted: true }, t("Deleted {n} conversation.|Deleted {n} conversations."), () => ({ deleted: false })))) return;
  if (some.some((s) => s.id === app.route.id)) app.go("/");
}

export async function erase(app, some) {
  const sure = await ask({ title: plural(some.length, t("Erase {n} conversation for good?|Erase {n} conversations for good?")), text: t("Messages and files are removed now. This cannot be taken back."), yes: t("Erase"), danger: true });
  if (!sure || !(await app.act(() => app.api.changeMany(some.map((s) => s.id), { erase: true })))) return;
  for (const { id } of some) app.dispatch({ type: "gone", session: id });
  app.toast(plural(some.length, t("Erased {n} conversation.|Erased {n} conversations.")));
}

export async function move(app, some) {
  const project = await chooseProject(app, some[0]);
  if (project !== undefined) await moveTo(app, some, project);
}

export function moveTo(app, some, project) {
  const name = app.state.projects.find((p) => p.id === project)?.name;
  const told = project ? t("{n} conversation is in {name} now.|{n} conversations are in {name} now.").replaceAll("{name}", name ?? "") : t("{n} conversation is in no project now.|{n} conversations are in no project now.");
  return change(app, some.filter((s) => (s.project ?? null) !== project), { project }, told, (s) => ({ project: s.project ?? null }));
}

// A file for one conversation, or one file for several.
export async function exported(app, some) {
  const format = await dialog((close) => h("div", { class: "ask" },
    h("h2", {}, plural(some.length, t("Export {n} conversation|Export {n} conversations"))),
    h("div", { class: "choices" }, FORMATS.map(([value, label], i) => h("button", { type: "button", class: "button", autofocus: !i, onclick: () => close(value) }, label))),
    h("div", { class: "ends" }, h("button", { type: "button", class: "button", onclick: () => close(null) }, t("Cancel")))), { label: t("Export") });
  if (!format) return;
  if (some.length === 1) {
    location.href = app.api.exported(some[0].id, format);
    return;
  }
  const blob = await app.act(() => app.api.exportMany(some.map((s) => s.id), format));
  if (!blob) return;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = `conversations.${{ markdown: "md" }[format] ?? format}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

// The tags of some conversations: each is on all of them, on some, or on none, and new ones are made by name.
export function tag(app, some) {
  let wanted = new Map(app.state.tags.map((tag) => [tag.name, some.filter((s) => (s.tags ?? []).includes(tag.id)).length / some.length]));
  const before = new Map(wanted);
  let box = null;
  const colour = (name) => app.state.tags.find((tag) => tag.name === name)?.colour ?? "grey";
  const draw = () => patch(box, [...wanted].map(([name, part]) => h("button", { type: "button", class: `chip tag ${colour(name)}`, key: name, "aria-pressed": part === 1 ? "true" : part ? "mixed" : "false", onclick: () => (wanted.set(name, part === 1 ? 0 : 1), draw()) }, name)));
  const add = (input) => {
    const name = input.value.trim().replace(/\s+/g, " ").replaceAll('"', "").slice(0, 40);
    if (name) wanted = new Map([...wanted, [name, 1]]);
    input.value = "";
    draw();
  };
  dialog((close) => h("form", { class: "ask", onsubmit: (e) => { e.preventDefault(); add(e.target.elements.words); close(true); } },
    h("h2", {}, some.length === 1 ? t("Tags") : plural(some.length, t("Tags of {n} conversation|Tags of {n} conversations"))),
    h("div", { class: "choices", own: true, ref: (e) => ((box = e), draw()) }),
    h("label", { class: "labelled" }, t("A new tag"), h("input", { class: "field", name: "words", maxlength: "40", autofocus: true, autocomplete: "off", onkeydown: (e) => { if (e.key === "Enter" && e.target.value.trim()) { e.preventDefault(); add(e.target); } } })),
    h("div", { class: "ends" },
      h("button", { type: "button", class: "button grow-left", onclick: () => { close(null); manageTags(app); } }, t("Edit tags")),
      h("button", { type: "button", class: "button", onclick: () => close(null) }, t("Cancel")),
      h("button", { class: "button main" }, t("Save")))), { label: t("Tags") }).then(async (saved) => {
    if (!saved) return;
    const add_tags = [...wanted].filter(([name, part]) => part === 1 && before.get(name) !== 1).map(([name]) => name);
    const remove_tags = [...wanted].filter(([name, part]) => !part && before.get(name)).map(([name]) => name);
    if (!add_tags.length && !remove_tags.length) return;
    if (await change(app, some, { add_tags, remove_tags })) await loadTags(app);
  });
}

async function loadTags(app) {
  const found = await app.act(() => app.api.tags());
  for (const tag of found?.tags ?? []) app.dispatch({ type: "tag", tag });
}

// Names and colours of all tags.
export function manageTags(app) {
  let box = null;
  const draw = () => patch(box, app.state.tags.length ? app.state.tags.map(line) : h("p", { class: "muted small" }, t("There are no tags yet. The actions of a conversation make some.")));
  const save = async (work) => {
    const tag = await app.act(work);
    if (tag?.id) app.dispatch({ type: "tag", tag });
    draw();
  };
  const line = (tag) => h("div", { class: "tag-line", key: tag.id },
    h("input", { class: "field grow", value: tag.name, maxlength: "40", "aria-label": t("Name of the tag {name}", { name: tag.name }), onchange: (e) => save(() => app.api.changeTag(tag.id, { name: e.target.value })) }),
    h("select", { class: `choice tag ${tag.colour}`, "aria-label": t("Colour of {name}", { name: tag.name }), onchange: (e) => save(() => app.api.changeTag(tag.id, { colour: e.target.value })) }, COLOURS.map((c) => h("option", { value: c, selected: c === tag.colour }, COLOUR_NAMES[c]))),
    iconButton("trash", t("Remove the tag {name}", { name: tag.name }), async () => {
      if ((await app.act(() => app.api.removeTag(tag.id))) === undefined) return;
      app.dispatch({ type: "tag_gone", tag: tag.id });
      draw();
    }));
  return dialog((close) => h("div", { class: "ask" }, h("h2", {}, t("Edit tags")), h("div", { class: "tag-lines", own: true, ref: (e) => ((box = e), draw()) }),
    h("div", { class: "ends" }, h("button", { type: "button", class: "button main", autofocus: true, onclick: () => close(null) }, t("Close")))), { label: t("Edit tags") });
}

// What the list can be filtered by. Each choice is put into effect at once; `filters` knows which are chosen.
export function chooseFilters(app, filters) {
  let box = null;
  const chip = (name, value, label, look = "") => h("button", { type: "button", class: `chip ${look}`, key: `${name}:${value}`, "aria-pressed": String(filters.has(name, value)), onclick: () => { filters.toggle(name, value); draw(); } }, label);
  const group = (label, ...chips) => h("fieldset", { class: "choice-group", key: label }, h("legend", {}, label), h("div", { class: "choices" }, chips));
  const platforms = [...new Set((app.info.connections ?? []).map((c) => c.platform))].filter((name) => name !== "local");
  const draw = () => patch(box, [
    group(t("State"), STATES.map(([value, label]) => chip("is", value, label))),
    app.state.tags.length ? group(t("Tag"), app.state.tags.map((tag) => chip("tag", tag.name, tag.name, `tag ${tag.colour}`))) : null,
    app.state.projects.length ? group(t("Project"), app.state.projects.map((p) => chip("project", p.name, p.name))) : null,
    group(t("Began in"), [...SURFACES, ...platforms].map((s) => chip("surface", s, surfaceName(s)))),
    group(t("Last message"), AGES.map(([name, value, label]) => chip(name, value, label)),
      h("div", { class: "dates" }, h("label", { class: "labelled" }, t("Since"), h("input", { class: "field", type: "date", onchange: (e) => e.target.value && (filters.toggle("after", e.target.value), draw()) })),
      h("label", { class: "labelled" }, t("Before"), h("input", { class: "field", type: "date", onchange: (e) => e.target.value && (filters.toggle("before", e.target.value), draw()) })))),
    app.info.who.operator ? group(t("Person"), person()) : null,
  ]);
  let names = [];
  async function suggest(prefix) {
    const found = await app.act(() => app.api.people(prefix));
    names = found?.people ?? [];
    draw();
  }
  const person = () => [
    h("label", { class: "labelled" }, t("Name"), h("input", { class: "field", autocomplete: "off", oninput: (e) => suggest(e.target.value) })),
    chip("person", "operator", t("Operator")),
    names.map((p) => chip("person", p.name, p.name)),
  ];
  return dialog((close) => h("div", { class: "ask" }, h("h2", {}, t("Filter the list")), h("div", { own: true, ref: (e) => ((box = e), draw()) }),
    h("p", {}, t("Filters can be typed into the search as well, such as {one} or {other}.", { one: "is:failed", other: "tag:later" })),
    h("div", { class: "ends" },
      h("button", { type: "button", class: "button", onclick: () => { filters.clear(); draw(); } }, t("Clear")),
      h("button", { type: "button", class: "button main", onclick: () => close(null) }, t("Done")))), { label: t("Filter the list") });
}

// Archives or deletes all that the filters match, after a look at them.
export async function prune(app, q, erase) {
  const seen = await app.act(() => app.api.prunable({ q, delete: erase, limit: 8 }));
  if (!seen) return;
  if (!seen.count) {
    app.toast(t("Nothing to do: pinned conversations and those at work stay."));
    return;
  }
  const rest = seen.count - seen.sessions.length;
  const sure = await ask({
    title: plural(seen.count, erase ? t("Delete {n} conversation?|Delete {n} conversations?") : t("Archive {n} conversation?|Archive {n} conversations?")),
    text: t("Pinned conversations and those at work stay. What is used from now on stays too."),
    items: [...seen.sessions.map((s) => s.title || t("Untitled")), ...(rest > 0 ? [plural(rest, t("and {n} more|and {n} more"))] : [])],
    yes: erase ? t("Delete") : t("Archive"),
    danger: erase,
  });
  if (!sure) return;
  const done = await app.act(() => app.api.prune({ q, delete: erase, before: seen.before }));
  if (!done) return;
  app.toast(plural(done.count, erase ? t("Deleted {n} conversation.|Deleted {n} conversations.") : t("Archived {n} conversation.|Archived {n} conversations.")) + (done.more ? ` ${t("More are left: do it again.")}` : ""));
  await app.load(app.state.filter);
}

// The actions of a project's section.
export function projectMenu(app, anchor, project, filters) {
  menu(anchor, [
    ["lanes", t("Show only these"), () => filters.set("project", project.name)],
    ["edit", t("Rename"), async () => {
      const name = await ask({ title: t("Rename the project"), input: project.name, yes: t("Rename") });
      const changed = name && (await app.act(() => app.api.changeProject(project.id, { name })));
      if (changed) app.dispatch({ type: "project", project: changed });
    }],
    null,
    ["trash", t("Remove"), async () => {
      const sure = await ask({ title: t("Remove {name}?", { name: project.name }), text: t("Its conversations stay."), yes: t("Remove"), danger: true });
      if (sure && (await app.act(() => app.api.removeProject(project.id))) !== undefined) app.dispatch({ type: "project_gone", project: project.id });
    }, "danger"],
  ], { title: project.name });
}
