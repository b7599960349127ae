// Palette: everything by name: conversations, screens and commands.

import { dialog } from "./dialogs.js";
import { h, icon, patch, t } from "./dom.js";
import { badge } from "./format.js";
import { nameOf, SETTINGS } from "./sidebar.js";

const PLACES = ["board", "deliveries", "lanes", "jobs", "pairing", "usage", "settings"];
const USUAL = new Set(["retry", "stop", "pin", "archive", "plus"]);

// What can be done here, then elsewhere, then where one can go.
function commands(app, query) {
  const { open } = app;
  const done = [
    ...(open ? [
      ["retry", t("Ask the last question again"), () => app.retry(open.id)],
      ...(open.running ? [["stop", t("Stop the answer"), () => app.act(() => app.api.stop(open.id))]] : []),
      ["undo", t("Undo the last turn"), () => app.undo(open.id)],
      ["redo", t("Redo"), () => app.act(() => app.api.redo(open.id))],
      ["pin", open.session.pinned ? t("Unpin this conversation") : t("Pin this conversation"), () => app.pin(open.session)],
      ["archive", open.session.archived ? t("Unarchive this conversation") : t("Archive this conversation"), () => app.archive(open.session)],
      ["folder", t("Move this conversation to a project"), () => app.project(open.session)],
      ["info", t("Details of this conversation"), () => app.toggleDetails()],
    ] : []),
    ["plus", t("New conversation"), () => app.go("/new")],
    ...(open ? [["trash", t("Delete this conversation"), () => app.remove(open.session)]] : []),
  ];
  const places = [
    ...PLACES.map((name) => [name === "jobs" ? "clock" : name, t("Go to {place}", { place: t(`${name[0].toUpperCase()}${name.slice(1)}`) }), () => app.go(`/${name}`)]),
    // They are found by name alone.
    ...SETTINGS.filter(([, , operator]) => query && (app.info.who.operator || !operator)).map(([name, place]) => ["settings", t("Go to {place}", { place }), () => app.go(`/${name}`)]),
    ...(app.info.profiles ?? []).filter((p) => p !== app.info.who.profile).map((p) => ["pairing", t("Go to profile {name}", { name: p }), () => app.enter(p)]),
    ["info", t("Show the keys"), async () => (await app.part("./dialogs.js"))?.keys()],
    ...["system", "light", "dark"].map((theme) => ["settings", t("Theme: {theme}", { theme: t(`${theme[0].toUpperCase()}${theme.slice(1)}`) }), () => app.prefer({ theme })]),
  ];
  return { done, places };
}

export async function palette(app, typed = "") {
  if (document.querySelector("dialog.palette")) return;
  let query = "";
  let choice = 0;
  let remote = [];
  let asked = 0;
  let timer = 0;
  let box = null;
  let close = null;

  const fits = (text) => query.toLowerCase().split(/\s+/).every((word) => text.toLowerCase().includes(word));

  function entries() {
    const local = app.state.sessions.filter((s) => s.id !== app.open?.id && fits(nameOf(s))).slice(0, query ? 8 : 5);
    const known = new Set(local.map((s) => s.id));
    const sessions = [...local, ...remote.filter((s) => !known.has(s.id))];
    const { done, places } = commands(app, query);
    const command = (group) => ([shape, label, run]) => ({ key: label, group, mark: icon(shape), label, run });
    const all = [
      // Before anything is typed, what is wanted most: the rest is found by its name.
      ...(query ? done : done.filter(([shape]) => USUAL.has(shape))).map(command(t("Do"))),
      ...sessions.map((s) => ({ key: s.id, group: t("Conversations"), mark: h("span", { class: "badge" }, badge(s.platform || s.surface)), label: nameOf(s), run: () => app.go(`/s/${s.id}`) })),
      ...places.map(command(t("Go to"))),
    ].filter(({ group, label }) => group === t("Conversations") || fits(label));
    // Whoever types the beginning of a name means it.
    const begins = ({ label }) => query !== "" && label.toLowerCase().startsWith(query.toLowerCase());
    const groups = [...new Set(all.map(({ group }) => group))].sort((a, b) => all.some((e) => e.group === b && begins(e)) - all.some((e) => e.group === a && begins(e)));
    return groups.flatMap((group) => all.filter((e) => e.group === group));
  }

  function draw() {
    const all = entries();
    choice = Math.max(0, Math.min(choice, all.length - 1));
    box.setAttribute("aria-activedescendant", all.length ? `found-${choice}` : "");
    patch(box.nextElementSibling, all.length
      ? all.map((entry, i) => [entry.group !== all[i - 1]?.group && h("h3", { key: `g${entry.group}`, role: "presentation" }, entry.group), h("div", { class: "option", id: `found-${i}`, role: "option", key: entry.key, "aria-selected": String(i === choice), onclick: () => take(entry) }, entry.mark, h("span", { class: "cut grow" }, entry.label))])
      : h("div", { class: "hint", role: "option", "aria-selected": "false" }, t("Nothing by this name. The search field looks through every message.")));
    document.getElementById(`found-${choice}`)?.scrollIntoView({ block: "nearest" });
  }

  function take(entry) {
    close(null);
    entry.run();
  }

  async function ask() {
    const mine = ++asked;
    const found = await app.act(() => app.api.search(query, 20));
    if (mine !== asked || !found) return;
    remote = Array.from(new Map(found.map((hit) => [hit.session.id, hit.session])).values()).slice(0, 8);
    draw();
  }

  function look() {
    query = box.value.trim();
    // Enter alone goes to the last conversation: nothing that costs or changes anything is done by two keys.
    choice = query ? 0 : entries().findIndex(({ group }) => group === t("Conversations"));
    remote = [];
    clearTimeout(timer);
    if (query) timer = setTimeout(ask, 120);
    draw();
  }

  function keys(event) {
    if (event.isComposing) return;
    const all = entries();
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      choice = (choice + (event.key === "ArrowDown" ? 1 : all.length - 1)) % Math.max(1, all.length);
      draw();
    } else if (event.key === "Enter" && all.length) {
      event.preventDefault();
      take(all[choice]);
    }
  }

  const done = dialog((shut) => {
    close = shut;
    return [
      h("input", {
        type: "text", role: "combobox", "aria-expanded": "true", "aria-controls": "found", "aria-label": t("Find conversations and commands"), placeholder: t("Find conversations and commands"), autocomplete: "off",
        ref: (e) => (box = e), onkeydown: keys,
        oninput: look,
      }),
      h("div", { class: "found", id: "found", role: "listbox", "aria-label": t("Found"), own: true }),
    ];
  }, { label: t("Command palette"), className: "palette" });
  box.value = typed;
  look();
  box.focus();
  await done;
  clearTimeout(timer);
}
