// Dialogs: questions to the person, menus, the keyboard map and the story of a message.

import { h, icon, isTouched, patch, t } from "./dom.js";
import { exact, savedAs } from "./format.js";
import { here } from "./link.js";

const KEYS = [
  [`${t("Ctrl")} K`, t("Find conversations and commands")],
  ["n", t("New conversation")],
  ["/", t("Search")],
  ["j k", t("Down and up in the list")],
  ["Enter", t("Open, or send")],
  [`${t("Shift")} Enter`, t("New line")],
  ["e", t("Archive")],
  ["p", t("Pin")],
  ["F2", t("Rename")],
  ["x", t("Select in the list")],
  [`${t("Shift")} F10`, t("Actions of a conversation")],
  [t("Del"), t("Delete")],
  [`${t("Ctrl")} F`, t("Search in this conversation")],
  ["o", t("Questions and dates")],
  ["↑", t("Change the last question, in an empty field")],
  ["u", t("Undo the last turn")],
  ["r", t("Ask again")],
  ["i", t("Details")],
  ["Esc", t("Close, or leave a field")],
  ["?", t("These keys")],
];

// Shows a dialog until it is closed; gives what `close` was given, or null.
export function dialog(content, { label, className = "" } = {}) {
  return new Promise((resolve) => {
    const box = document.createElement("dialog");
    if (label) box.setAttribute("aria-label", label);
    if (className) box.className = className;
    let result = null;
    const close = (value) => {
      result = value;
      box.close();
    };
    patch(box, content(close));
    box.addEventListener("close", () => {
      box.remove();
      resolve(result);
    });
    box.addEventListener("mousedown", (event) => event.target === box && box.close());
    document.body.append(box);
    box.showModal();
  });
}

// Gives the text that was typed, true for a yes without text, or null. `save` may keep the dialog open: it gives what went
// wrong with the text. `typed` is told of each change.
export function ask({ title, text, items, input, long = false, yes = "OK", danger = false, empty = false, typed = () => {}, save = async () => "" }) {
  const wanted = input !== undefined;
  let trouble = null;
  async function submit(value, close) {
    trouble.textContent = wanted && value ? await save(value) : "";
    if (!trouble.textContent) close(wanted ? (empty ? value : value || null) : true);
  }
  return dialog((close) => h("form", { class: "ask", onsubmit: (e) => { e.preventDefault(); submit(e.target.elements.words?.value.trim(), close); } },
    h("h2", {}, title),
    text && h("p", {}, text),
    items && h("ul", { class: "items small" }, items.map((item) => h("li", {}, item))),
    wanted && h(long ? "textarea" : "input", { class: "field", name: "words", dir: "auto", "aria-label": title, rows: long ? "6" : null, autofocus: true, ref: (e) => (e.value = input), oninput: (e) => typed(e.target.value) }),
    h("p", { class: "small wrong", role: "alert", ref: (e) => (trouble = e) }),
    h("div", { class: "ends" },
      h("button", { type: "button", class: "button", onclick: () => close(null) }, t("Cancel")),
      h("button", { class: danger ? "button danger" : "button main", autofocus: !wanted }, yes))), { label: title });
}

export function keys() {
  return dialog((close) => h("div", { class: "ask" }, h("h2", {}, t("Keys")),
    h("div", { class: "keys" }, KEYS.map(([key, what]) => h("div", {}, h("span", {}, what), h("kbd", {}, key)))),
    h("div", { class: "ends" }, h("button", { type: "button", class: "button main", onclick: () => close(null) }, t("Close")))), { label: t("Keys") });
}

export function story(told) {
  return dialog((close) => h("div", { class: "ask" }, h("h2", {}, t("Why")), h("p", {}, t("This message: {outcome}.", { outcome: told.outcome })),
    h("ul", { class: "items story small" }, told.events.map((e) => h("li", {}, h("time", { datetime: e.at }, exact(e.at)), h("span", {}, e.what)))),
    h("div", { class: "ends" }, h("button", { type: "button", class: "button main", onclick: () => close(null) }, t("Close")))), { label: t("The story of this message") });
}

// A picture in front of the page.
export function lightBox(part) {
  const name = part.name || part.kind;
  return dialog((close) => [
    h("img", { src: here(part.url), alt: name }),
    h("div", { class: "ends" }, h("span", { class: "cut grow" }, name), h("a", { class: "button", href: savedAs(part), download: part.name || "" }, t("Save")), h("button", { type: "button", class: "button", autofocus: true, onclick: () => close(null) }, t("Close"))),
  ], { label: name, className: "light-box" });
}

// A drawing in front of the page, larger than it fits between words.
export function enlarge(drawing) {
  const copy = drawing.querySelector("svg").cloneNode(true);
  const natural = Number(copy.getAttribute("width")) || 640;
  copy.style.width = `${Math.round(Math.max(natural * 1.25, Math.min(natural * 2, innerWidth - 96)))}px`;
  return dialog((close) => [
    h("div", { class: "drawing", tabindex: "0", own: true, ref: (e) => e.append(copy) }),
    h("div", { class: "ends" }, h("span", { class: "grow" }), h("button", { type: "button", class: "button", autofocus: true, onclick: () => close(null) }, t("Close"))),
  ], { label: t("Diagram"), className: "light-box" });
}

// Gives a project's id, null for none, undefined when nothing was chosen.
export async function chooseProject(app, session) {
  const NEW = "+";
  let named = null;
  const name = (wanted) => {
    named.hidden = !wanted;
    if (wanted) named.querySelector("input").focus();
  };
  const chosen = await dialog((close) => h("form", { class: "ask", onsubmit: (e) => { e.preventDefault(); close([e.target.elements.project.value, e.target.elements.words.value.trim()]); } },
    h("h2", {}, t("Move to a project")),
    h("div", { class: "control" }, h("label", { for: "project-chosen" }, t("Project")),
      h("select", { class: "field", name: "project", id: "project-chosen", onchange: (e) => name(e.target.value === NEW) },
        h("option", { value: "", selected: !session.project }, t("No project")),
        app.state.projects.map((p) => h("option", { value: p.id, selected: p.id === session.project }, p.name)),
        h("option", { value: NEW, selected: !app.state.projects.length }, t("A new project")))),
    h("div", { class: "control", hidden: Boolean(app.state.projects.length), ref: (e) => (named = e) }, h("label", { for: "project-name" }, t("Name of a new project")),
      h("input", { class: "field", name: "words", id: "project-name", maxlength: "100" })),
    h("div", { class: "ends" }, h("button", { type: "button", class: "button", onclick: () => close(null) }, t("Cancel")), h("button", { class: "button main" }, t("Move")))), { label: t("Move to a project") });
  if (!chosen) return undefined;
  const [id, words] = chosen;
  if (id !== NEW) return id || null;
  if (!words) return undefined;
  const made = await app.act(() => app.api.addProject({ name: words, colour: tone(words) }));
  if (!made) return undefined;
  app.dispatch({ type: "project", project: made });
  return made.id;
}

// A colour that follows from a name, so that projects differ without being asked.
export function tone(name) {
  let sum = 0;
  for (const c of name) sum = (sum * 31 + c.codePointAt(0)) % 360;
  return `hsl(${sum} 55% 50%)`;
}

// A menu below a button, or at a point of the window; where fingers touch, a sheet at the foot of the window, with `title`.
// Entries are [icon, label, what to do, look]; entries instead of what to do open in its place, and null is a line between groups.
export function menu(anchor, entries, { point = null, title = "" } = {}) {
  const sheet = isTouched();
  const box = h("div", { class: "pop", role: "menu", "aria-label": title || anchor.getAttribute("aria-label"), onkeydown: keys });
  const root = document.createElement("div");
  root.className = sheet ? "menu-sheet" : "menu-place";
  patch(root, box);
  const pop = root.firstChild;
  const close = () => {
    root.remove();
    removeEventListener("pointerdown", outside, true);
  };
  const outside = (event) => !pop.contains(event.target) && close();
  const take = (what) => {
    close();
    anchor.focus();
    what();
  };
  const item = ([shape, label, what, look = ""], n) => h("button", { type: "button", role: "menuitem", tabindex: "-1", key: `${n} ${label}`, class: look || null, "aria-haspopup": Array.isArray(what) ? "menu" : null, onclick: () => (Array.isArray(what) ? fill(what, label) : take(what)) },
    icon(shape), h("span", { class: "grow" }, label), Array.isArray(what) && icon("forth"));
  function fill(some, from = "") {
    patch(pop, [
      from ? h("button", { type: "button", role: "menuitem", tabindex: "-1", key: "back", class: "back", "aria-label": t("Back"), onclick: () => { fill(entries); pop.querySelector("[aria-haspopup]").focus(); } }, icon("back"), from) : sheet && title && h("p", { class: "menu-title cut", key: "title", "aria-hidden": "true" }, title),
      some.map((entry, n) => (entry ? item(entry, `${from}${n}`) : h("hr", { key: `line ${from}${n}` }))),
    ]);
    if (!sheet) lay();
    pop.querySelector("button").focus();
  }
  function keys(event) {
    const all = Array.from(pop.querySelectorAll("button"));
    const at = all.indexOf(document.activeElement);
    event.stopPropagation();
    if (event.key === "Escape" || event.key === "Tab") {
      close();
      anchor.focus();
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      all[(at + (event.key === "ArrowDown" ? 1 : all.length - 1)) % all.length].focus();
    } else if (event.key === "ArrowRight") all[at]?.matches("[aria-haspopup]") && all[at].click();
    else if (event.key === "ArrowLeft") pop.querySelector(".back")?.click();
  }
  // What opens in place of the menu stands where the menu stood, as far as there is room.
  function lay() {
    const place = anchor.getBoundingClientRect();
    const below = point?.y ?? place.bottom + 4;
    const room = innerHeight - pop.offsetHeight - 8;
    pop.style.top = `${Math.max(8, below > room ? Math.min(room, (point?.y ?? place.top - 4) - pop.offsetHeight) : below)}px`;
    pop.style.left = `${Math.max(8, Math.min(point?.x ?? place.right - pop.offsetWidth, innerWidth - pop.offsetWidth - 8))}px`;
  }
  // The finger that opened the menu by staying on a row is lifted above it, which is not meant for it.
  let pressed = false;
  root.addEventListener("pointerdown", () => (pressed = true));
  root.addEventListener("click", (event) => {
    if (event.detail && !pressed) event.stopPropagation();
    else if (event.target === root) close();
  }, true);
  document.body.append(root);
  fill(entries);
  if (!sheet) addEventListener("pointerdown", outside, true);
}
