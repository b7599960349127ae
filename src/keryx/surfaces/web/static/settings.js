// Settings: how the page looks and sends, projects, signed-in browsers, and what is in force on the server.

import { standardModel } from "./composer.js";
import { tone } from "./dialogs.js";
import { h, t } from "./dom.js";
import { full, plural } from "./format.js";
import { screen, table } from "./screen.js";

export function show(root, app) {
  return screen(root, app, {
    title: t("Settings"),
    lead: t("How this page behaves is kept on the server, the same in every browser."),
    live: ["project", "project_gone"],
    load: async () => {
      const [signIns, settings] = await Promise.all([app.api.signIns(), app.info.who.operator ? app.api.settings() : { settings: [] }]);
      return { ...signIns, ...settings };
    },
    body: (data, reload) => [page(app), projects(app, reload), browsers(data.sign_ins, app, reload), inForce(data.settings, app)],
  });
}

function choice(app, name, title, text, options) {
  return h("div", { class: "settings" }, h("div", {}, h("div", { id: `${name}-name` }, title), h("p", {}, text)),
    h("select", { class: "field", "aria-labelledby": `${name}-name`, onchange: (e) => app.prefer({ [name]: e.target.value }) },
      options.map(([value, label]) => h("option", { value, selected: app.info.preferences[name] === value }, label))));
}

function page(app) {
  const { models } = app.info;
  return h("section", { class: "block", key: "page" }, h("h2", {}, t("This page")),
    choice(app, "theme", t("Theme"), t("Light, dark, or as the system says."), [["system", t("System")], ["light", t("Light")], ["dark", t("Dark")]]),
    choice(app, "send_with", t("Send with"), t("The other one makes a new line."), [["enter", "Enter"], ["ctrl_enter", "Ctrl Enter"]]),
    models.length > 1 && choice(app, "model", t("Model of new conversations"), t("Those that you begin on this page. Each can be given another one later."), [["", t("{model}, as set", { model: standardModel(models) })], ...models.map((m) => [m.name, m.name])]));
}

function projects(app, reload) {
  const act = (work) => app.act(async () => { await work(); await reload(); });
  const add = (event) => {
    event.preventDefault();
    const field = event.target.elements[0];
    const name = field.value.trim();
    if (name) act(async () => { app.dispatch({ type: "project", project: await app.api.addProject({ name, colour: tone(name) }) }); field.value = ""; });
  };
  const rename = async (p) => {
    const name = await app.ask({ title: t("Rename the project"), input: p.name, yes: t("Rename") });
    if (name) act(async () => app.dispatch({ type: "project", project: await app.api.changeProject(p.id, { name }) }));
  };
  const remove = async (p) => {
    if (await app.ask({ title: t("Remove {name}?", { name: p.name }), text: t("Its conversations stay."), yes: t("Remove"), danger: true })) act(async () => { await app.api.removeProject(p.id); app.dispatch({ type: "project_gone", project: p.id }); });
  };
  return h("section", { class: "block", key: "projects" }, h("h2", {}, t("Projects")),
    app.state.projects.map((p) => h("div", { class: "settings", key: p.id }, h("div", { class: "stack" }, h("span", { class: "dot", css: { "--tone": p.colour || "" } }), p.name),
      h("div", { class: "stack" }, h("button", { type: "button", class: "button", onclick: () => rename(p) }, t("Rename")), h("button", { type: "button", class: "button danger", onclick: () => remove(p) }, t("Remove"))))),
    h("form", { class: "settings", key: "add", onsubmit: add }, h("input", { class: "field", "aria-label": t("Name of a new project"), placeholder: t("Name of a new project"), maxlength: "100" }), h("button", { class: "button" }, t("Add"))));
}

function browsers(list, app, reload) {
  if (!app.info.who.password) return null;
  const end = (s) => app.act(async () => { await app.api.revoke(s.id); await (s.current ? app.api.signOut() : null); await reload(); });
  return h("section", { class: "block", key: "browsers" }, h("h2", {}, t("Signed-in browsers")),
    table([t("Browser"), t("Last seen"), ""], list.map((s) => h("tr", { key: s.id }, h("td", {}, s.browser || t("unknown"), s.current ? t(" (this one)") : ""), h("td", {}, full(s.seen_at)), h("td", {}, h("div", { class: "acts" }, h("button", { type: "button", class: "button danger", onclick: () => end(s) }, s.current ? t("Sign out") : t("End")))))), t("Signed-in browsers")));
}

// What somebody has set is shown; what nobody touched is folded.
function inForce(list, app) {
  if (!list.length) return null;
  const home = list.find((s) => s.name === "home");
  const set = list.filter((s) => s.source !== "default");
  const others = list.filter((s) => s.source === "default");
  const sheet = (some, label) => table([t("Setting"), t("Value"), t("From")], some.map((s) => h("tr", { key: s.name }, h("td", {}, h("code", {}, s.name)), h("td", { class: "value" }, written(s.value)), h("td", { class: "muted" }, s.source))), label);
  return h("section", { class: "block", key: "server" }, h("h2", {}, t("Server, version {version}", { version: app.info.version })),
    h("p", { class: "muted small" }, t("Read when Keryx starts, from "), h("code", {}, "keryx.toml"), home && [" in ", h("code", {}, written(home.value))], t(" and from variables, which go before it. To change one, write it there and restart Keryx; "), h("code", {}, "keryx config example"), t(" explains them all.")),
    sheet(set, t("Settings that were set")),
    h("details", { class: "more" }, h("summary", { class: "small" }, plural(others.length, t("{n} setting at the default|{n} settings at the default"))), sheet(others, t("Settings at the default"))));
}

// A value as a person writes it.
function written(json) {
  const value = JSON.parse(json);
  if (value === "" || value === null || (typeof value === "object" && !Object.keys(value).length)) return h("span", { class: "muted" }, "none");
  if (Array.isArray(value)) return value.map((v) => v?.name ?? (typeof v === "string" ? v : JSON.stringify(v))).join(", ");
  return typeof value === "string" ? value : json;
}
