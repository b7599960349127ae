// Settings: how the page looks and sends, projects, signed-in browsers, keys of programs, and what is in force on the server.

import { tone } from "./dialogs.js";
import { h, t } from "./dom.js";
import { answererOf, moment, plural, surfaceName } from "./format.js";
import { Form } from "./forms.js";
import { table } from "./screen.js";
import { browserName, setup, setupScreen } from "./setup.js";

export function show(root, app) {
  const forms = { project: new Form(app, { name: "" }), key: new Form(app, { name: "" }) };
  return setupScreen(root, app, {
    name: "settings",
    title: t("Settings"),
    lead: t("How this page behaves is kept on the server, the same in every browser."),
    live: ["project", "project_gone"],
    load: async () => {
      const { operator } = app.info.who;
      const [signIns, keys, settings, { restart, problem }] = await Promise.all([app.api.signIns(), app.api.keys(), operator ? app.api.settings() : { settings: [] }, operator ? setup.read() : {}]);
      return { ...signIns, ...keys, ...settings, restart, problem };
    },
    body: (data, reload) => [page(app), alerts(app), projects(app, forms.project, reload), browsers(data.sign_ins, app, reload), programs(data.keys, app, forms.key, reload), old(app), inForce(data.settings, app)],
  });
}

function choice(app, name, title, text, options) {
  return h("div", { class: "settings" }, h("div", {}, h("div", { id: `${name}-name` }, title), h("p", {}, text)),
    h("select", { class: "field", "aria-labelledby": `${name}-name`, onchange: (e) => app.prefer({ [name]: e.target.value }) },
      options.map(([value, label]) => h("option", { value, selected: app.info.preferences[name] === value }, label))));
}

const SIZES = [["small", t("Small")], ["normal", t("Normal")], ["large", t("Large")], ["larger", t("Larger")]];

function page(app) {
  const { models, standard } = answererOf(app);
  return h("section", { class: "block", key: "page" }, h("h2", {}, t("This page")),
    choice(app, "theme", t("Theme"), t("Light, dark, or as the system says."), [["system", t("System")], ["light", t("Light")], ["dark", t("Dark")]]),
    h("div", { class: "settings", key: "size" }, h("div", {}, h("div", { id: "size-name" }, t("Text size")), h("p", {}, t("Kept in this browser alone, because screens differ."))),
      h("select", { class: "field", "aria-labelledby": "size-name", onchange: (e) => app.size(e.target.value) },
        SIZES.map(([value, label]) => h("option", { value, selected: document.documentElement.dataset.size === value }, label)))),
    choice(app, "send_with", t("Send with"), t("The other one makes a new line."), [["enter", "Enter"], ["ctrl_enter", `${t("Ctrl")} Enter`]]),
    models.length > 1 && choice(app, "model", t("Model of new conversations"), t("Those that you begin on this page. Each can be given another one later."), [["", t("{model}, as set", { model: standard })], ...models.map((name) => [name, name])]));
}

const ALERTS = [
  ["question", t("An agent needs you"), t("It asks for a permission or an answer, in any conversation.")],
  ["failed", t("An answer failed"), t("In any conversation.")],
  ["finished", t("An answer is finished"), t("To what was asked on this page.")],
];

function flag(name, title, text, checked, onchange) {
  return h("div", { class: "settings", key: name }, h("div", {}, h("label", { for: `alert-${name}` }, title), h("p", {}, text)),
    h("input", { type: "checkbox", id: `alert-${name}`, checked, onchange: (e) => onchange(e.target.checked) }));
}

// What the person is told of while they look elsewhere. The browser asks once for its own permission.
function alerts(app) {
  const { muted, sound } = app.info.preferences;
  const change = (kind) => (on) => app.prefer({ muted: on ? muted.filter((name) => name !== kind) : [...muted, kind] });
  const allowed = globalThis.isSecureContext && globalThis.Notification ? Notification.permission : "missing";
  const words = {
    granted: t("This browser shows notifications while the page is out of sight."),
    default: t("This browser does not show notifications yet. Until then the page tells you itself, and its tab shows a mark."),
    denied: t("This browser refuses notifications of this address; its own settings allow them."),
    missing: t("This browser has no notifications for this address, which it gets by an encrypted way only."),
  };
  return h("section", { class: "block", key: "alerts" }, h("h2", {}, t("Being told")),
    h("p", { class: "muted small" }, words[allowed], " ", t("A single conversation can be different: see its menu.")),
    allowed === "default" && h("p", {}, h("button", { type: "button", class: "button main", onclick: async () => { await Notification.requestPermission(); app.draw(); } }, t("Turn notifications on"))),
    ALERTS.map(([kind, title, text]) => flag(kind, title, text, !muted.includes(kind), change(kind))),
    closed(app),
    flag("sound", t("Sound"), t("A short tone with each of them."), sound, (on) => app.prefer({ sound: on })));
}

// Whether this browser is told while the page is closed.
function closed(app) {
  const { background } = app;
  if (!background?.canPush) return null;
  const turn = (on, change) => app.act(async () => {
    await (on ? background.turnOn(change) : background.turnOff());
    app.draw();
  });
  return [
    flag("closed", t("While the page is closed too"), t("On this device, by the push service of its browser, which sees neither the message nor the conversation."), Boolean(background.push), async (on) => {
      await turn(on);
      app.draw();
    }),
    background.push && flag("text", t("With the beginning of the message"), t("Without it a notification says only that there is something."), background.push.with_text, (on) => turn(true, { with_text: on })),
  ];
}

// One field with its button, and what is wrong below it.
function lineForm(form, label, yes, send) {
  const submit = async () => {
    const name = form.values.name.trim();
    if (name && (await form.run(yes, () => send(name))) !== undefined) form.set("name", "");
  };
  return h("form", { class: "line-form", key: form.id, onsubmit: (event) => { event.preventDefault(); submit(); } },
    form.field("name", label, { maxlength: "200" }), h("button", { class: "button", disabled: Boolean(form.busy) }, yes),
    form.problem && h("p", { class: "wrong", role: "alert" }, form.problem));
}

function projects(app, form, reload) {
  const act = (work) => app.act(async () => { await work(); await reload(); });
  const add = async (name) => {
    app.dispatch({ type: "project", project: await app.api.addProject({ name, colour: tone(name) }) });
    await reload();
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
      h("div", { class: "acts" }, h("button", { type: "button", class: "button", onclick: () => rename(p) }, t("Rename")), h("button", { type: "button", class: "button danger", onclick: () => remove(p) }, t("Remove"))))),
    lineForm(form, t("Name of a new project"), t("Add"), add));
}

function browsers(list, app, reload) {
  if (!app.info.who.password) return null;
  const end = async (s) => {
    const waiting = s.current ? app.unsent.entries.length : 0;
    if (waiting && !(await app.ask({ title: plural(waiting, t("Sign out and discard {n} message that is not sent yet?|Sign out and discard {n} messages that are not sent yet?")), yes: t("Sign out"), danger: true }))) return;
    await app.act(async () => {
      if (s.current) await app.background?.turnOff();
      await app.api.revoke(s.id);
      if (s.current) {
        await app.unsent.forget();
        await app.api.signOut();
      }
      await reload();
    });
  };
  return h("section", { class: "block", key: "browsers" }, h("h2", {}, t("Signed-in browsers")),
    table([t("Browser"), t("Last seen"), ""], list.map((s) => h("tr", { key: s.id }, h("td", { title: s.browser }, browserName(s.browser), s.current ? t(" (this one)") : ""), h("td", {}, moment(s.seen_at)), h("td", {}, h("div", { class: "acts" }, h("button", { type: "button", class: "button danger", onclick: () => end(s) }, s.current ? t("Sign out") : t("End")))))), t("Signed-in browsers")));
}

// Keys with which programs call the API. A secret is shown once, to be copied.
function programs(list, app, form, reload) {
  const add = async (name) => {
    const made = await app.api.addKey(name);
    await reload();
    app.ask({ title: t("Copy the key now"), text: t("It is not stored and cannot be shown again."), input: made.secret, yes: t("Copy") }).then((secret) => secret && app.copy(secret));
  };
  const revoke = async (key) => {
    if (await app.ask({ title: t("Revoke {name}?", { name: key.name }), text: t("The program that has it is refused from then on."), yes: t("Revoke"), danger: true })) app.act(async () => { await app.api.revokeKey(key.id); await reload(); });
  };
  return h("section", { class: "block", key: "programs" }, h("h2", {}, t("Keys of programs")),
    h("p", { class: "muted small" }, t("Programs that speak the API of OpenAI talk to Keryx with a key, at the address "), h("code", {}, `${location.origin}/v1`)),
    list.length > 0 && table([t("Program"), t("Rights of"), t("Last seen"), ""], list.map((key) => h("tr", { key: key.id }, h("td", {}, key.name), h("td", {}, key.person || key.principal), h("td", {}, key.seen_at ? moment(key.seen_at) : t("never")), h("td", {}, h("div", { class: "acts" }, h("button", { type: "button", class: "button danger", onclick: () => revoke(key) }, t("Revoke")))))), t("Keys of programs")),
    lineForm(form, t("Name of a program or device"), t("Make a key"), add));
}

const ALL = "all";
const SHOWN = 12;
const AGES = [[7, t("7 days")], [30, t("30 days")], [90, t("90 days")], [365, t("a year")], [730, t("two years")]];
const SURFACES = ["gateway", "web", "cli", "acp", "api", "job"];

// Archives or deletes conversations by their age, after a look at what would go.
function old(app) {
  async function preview(event) {
    event.preventDefault();
    const { age, surface, what } = event.target.elements;
    const rule = { before: new Date(Date.now() - Number(age.value) * 86_400_000).toISOString(), delete: what.value === "delete", surface: surface.value === ALL ? undefined : surface.value };
    const found = await app.act(() => app.api.prunable({ ...rule, limit: SHOWN }));
    if (!found) return;
    if (!found.count) return app.toast(t("No conversation is that old. Pinned ones and those at work stay."));
    const names = found.sessions.map((s) => `${s.title || t("Untitled")} · ${moment(s.active_at)}`);
    const rest = found.count - names.length;
    const sure = await app.ask({
      title: plural(found.count, rule.delete ? t("Delete {n} conversation?|Delete {n} conversations?") : t("Archive {n} conversation?|Archive {n} conversations?")),
      items: [...names, ...(rest > 0 ? [plural(rest, t("and {n} more|and {n} more"))] : [])],
      yes: rule.delete ? t("Delete") : t("Archive"), danger: rule.delete,
    });
    if (!sure) return;
    const done = await app.act(() => app.api.prune(rule));
    if (done) app.toast(plural(done.count, rule.delete ? t("Deleted {n} conversation.|Deleted {n} conversations.") : t("Archived {n} conversation.|Archived {n} conversations.")));
  }
  const select = (name, label, options) => h("div", { class: "control" }, h("label", { for: `old-${name}` }, label), h("select", { class: "field", id: `old-${name}`, name }, options.map(([value, text]) => h("option", { value }, text))));
  return h("section", { class: "block", key: "old" }, h("h2", {}, t("Old conversations")),
    h("p", { class: "muted small" }, t("Archive or delete what was not used for a time. You see first what would go.")),
    h("form", { class: "line-form", onsubmit: preview },
      select("what", t("What happens"), [["archive", t("Archive")], ["delete", t("Delete")]]),
      select("age", t("Not used for"), AGES),
      select("surface", t("Began in"), [[ALL, t("All conversations")], ...SURFACES.map((s) => [s, surfaceName(s)])]),
      h("button", { class: "button" }, t("Show what would go"))));
}

// What somebody has set is shown; what nobody touched is folded.
function inForce(list, app) {
  if (!list.length) return null;
  const home = list.find((s) => s.name === "home");
  const set = list.filter((s) => s.source !== "default");
  const others = list.filter((s) => s.source === "default");
  const sheet = (some, label) => table([t("Setting"), t("Value"), t("From")], some.map((s) => h("tr", { key: s.name }, h("td", {}, h("code", {}, s.name)), h("td", { class: "value" }, written(s.value)), h("td", { class: "muted" }, s.source))), label);
  return h("section", { class: "block", key: "server" }, h("h2", {}, t("Server, version {version}", { version: app.info.version })),
    h("p", { class: "muted small" }, t("Read when Keryx starts, from "), h("code", {}, "keryx.toml"), home && [t(" in "), h("code", {}, written(home.value))], t(" and from variables, which go before it. Models, platforms, tools and profiles are changed above; for the rest "), h("code", {}, "keryx config example"), t(" explains what can be written there.")),
    sheet(set, t("Settings that were set")),
    h("details", { class: "more" }, h("summary", { class: "small" }, plural(others.length, t("{n} setting at the default|{n} settings at the default"))), sheet(others, t("Settings at the default"))));
}

// A value as a person writes it.
function written(json) {
  const value = JSON.parse(json);
  if (value === "" || value === null || (typeof value === "object" && !Object.keys(value).length)) return h("span", { class: "muted" }, t("none"));
  if (Array.isArray(value)) return value.map((v) => v?.name ?? (typeof v === "string" ? v : JSON.stringify(v))).join(", ");
  return typeof value === "string" ? value : json;
}
