// Set-up: what the screens of the settings share: the way between them, the calls to the server, and the restart that
// brings what was saved into force.

import { h, icon, t } from "./dom.js";
import { call, here, Problem } from "./link.js";
import { screen } from "./screen.js";
import { SETTINGS } from "./sidebar.js";

const SLOW = 120_000;
const at = (kind, name, tail = "") => `/api/setup/${kind}/${encodeURIComponent(name)}${tail}`;

// The server leaves out what is empty.
const complete = (platform) => ({
  summary: "", intro: "", allow_example: "", accounts: [], error: "", ...platform,
  fields: (platform.fields ?? []).map((field) => ({ help: "", example: "", default: "", choices: [], unless: [], when: {}, ...field })),
});

export const setup = {
  read: () => call("GET", "/api/setup"),
  saveModel: (name, body) => call("PUT", at("models", name), { body }),
  testModel: (name, body) => call("POST", at("models", name, "/test"), { body, patience: SLOW }),
  removeModel: (name, revision) => call("DELETE", at("models", name), { query: { revision } }),
  chooseAgent: (name) => call("PUT", "/api/setup/default-agent", { body: { name } }),
  chooseModel: (name) => call("PUT", "/api/setup/default-model", { body: { name } }),
  saveTools: (name, body) => call("PUT", at("tools", name), { body }),
  checkTools: (name, body) => call("POST", at("tools", name, "/check"), { body, patience: SLOW }),
  removeTools: (name, revision) => call("DELETE", at("tools", name), { query: { revision } }),
  saveAgent: (name, body) => call("PUT", at("agents", name), { body }),
  checkAgent: (name, body) => call("POST", at("agents", name, "/check"), { body, patience: SLOW }),
  removeAgent: (name, revision) => call("DELETE", at("agents", name), { query: { revision } }),
  saveProfile: (name, body) => call("PUT", at("profiles", name), { body }),
  removeProfile: (name, revision) => call("DELETE", at("profiles", name), { query: { revision } }),
  setPassword: (body) => call("PUT", "/api/setup/password", { body }),
  restart: () => call("POST", "/api/setup/restart"),
  platforms: async () => ({ setups: (await call("GET", "/api/platforms/setups")).setups.map(complete) }),
  removeAccount: (account) => call("DELETE", `/api/platforms/accounts/${encodeURIComponent(account)}`),
  answerDialog: (dialog, answer) => call("POST", `/api/platforms/dialogs/${encodeURIComponent(dialog)}`, { body: { answer } }),
  people: () => call("GET", "/api/people"),
  merge: (one, other) => call("POST", "/api/people/merge", { body: { one, other } }),
  split: (platform, person) => call("POST", "/api/people/split", { body: { platform, person } }),
  erase: (id) => call("DELETE", `/api/people/${encodeURIComponent(id)}`),
  setRole: (grant, operator) => call("PATCH", `/api/grants/${encodeURIComponent(grant)}`, { body: { operator } }),
  consents: () => call("GET", "/api/consents"),
  forget: (session, rule) => call("DELETE", `/api/consents/${encodeURIComponent(session)}`, { query: { rule } }),
  users: () => call("GET", "/api/users"),
  addUser: (body) => call("POST", "/api/users", { body }),
  setUserPassword: (name, body) => call("PUT", `/api/users/${encodeURIComponent(name)}/password`, { body }),
  removeUser: (name, erase) => call("DELETE", `/api/users/${encodeURIComponent(name)}`, { query: { erase } }),
  passkeys: () => call("GET", "/api/passkeys"),
  passkeyOptions: () => call("POST", "/api/passkeys/options"),
  addPasskey: (body) => call("POST", "/api/passkeys", { body }),
  removePasskey: (id) => call("DELETE", `/api/passkeys/${encodeURIComponent(id)}`),
  schedule: (query) => call("GET", "/api/schedule", { query }),
};

// Connects a platform; `heard` gets each line of the server as it comes: a text, a question, the result or what is wrong.
export async function connect(platform, body, heard, signal) {
  let answer;
  try {
    answer = await fetch(here(`/api/platforms/setups/${encodeURIComponent(platform)}/dialog`), { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), credentials: "same-origin", signal });
  } catch {
    throw new Problem(0, t("The server cannot be reached. It is tried again as soon as the link is back."));
  }
  if (!answer.ok) {
    const given = await answer.json().catch(() => null);
    throw new Problem(answer.status, given?.detail ?? t("The server answered {status}.", { status: answer.status }), given?.field);
  }
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read().catch(() => ({ done: true }));
    if (done) return;
    rest += value;
    const lines = rest.split("\n");
    rest = lines.pop();
    for (const line of lines) heard(JSON.parse(line));
  }
}

const PLACES = [["settings", t("This page"), false], ...SETTINGS];

// The way between the screens of the settings, in one place on all of them. Only the operator reaches the set-up.
function places(app, current) {
  const shown = PLACES.filter(([, , operator]) => app.info.who.operator || !operator);
  return h("nav", { class: "tabs", key: "tabs", "aria-label": t("Settings") },
    shown.map(([id, label]) => h("a", { key: id, href: `#/${id}`, "aria-current": id === current ? "page" : null }, label)));
}

// One screen of the set-up. `load` and `body` are as of `screen`; what `load` gives is shown below the way to the others.
export function setupScreen(root, app, { name, title, lead, load, body, live = [] }) {
  const restart = async (reload) => {
    const turns = Object.values(app.state.turns).length;
    if (turns && !(await app.ask({ title: t("Restart now?"), text: t("Answers that are running get some time to finish; what is left goes on after the restart."), yes: t("Restart") }))) return;
    app.restarting = true;
    app.draw();
    if ((await app.act(setup.restart)) === undefined) {
      app.restarting = false;
      await reload();
    }
  };
  const banner = (data, reload) => {
    if (data.problem) return h("div", { class: "trouble", role: "alert", key: "broken" }, icon("warn"), h("span", { class: "grow" }, t("There is a mistake in the settings file, and Keryx would not start with it: "), data.problem));
    if (app.restarting) return h("div", { class: "told", role: "status", key: "restart" }, icon("retry"), h("span", { class: "grow" }, t("Keryx restarts. This page goes on by itself.")));
    return data.restart && h("div", { class: "told", role: "status", key: "restart" }, icon("info"), h("span", { class: "grow" }, t("What was saved is in force after a restart, which takes a few seconds.")), h("button", { type: "button", class: "button main", onclick: () => restart(reload) }, t("Restart now")));
  };
  const shown = screen(root, app, { title, lead, load, live, tables: false, above: () => places(app, name), body: (data, reload) => [banner(data, reload), body(data, reload)] });
  const tabs = root.querySelector(".tabs");
  const tab = tabs.querySelector("[aria-current]");
  if (tab) tabs.scrollLeft = tab.offsetLeft - tabs.offsetLeft - (tabs.clientWidth - tab.offsetWidth) / 2;
  return shown;
}

const BROWSERS = [[/Edg\//, "Edge"], [/OPR\//, "Opera"], [/Firefox\//, "Firefox"], [/Chrome\/|Chromium\//, "Chrome"], [/Safari\//, "Safari"]];
const SYSTEMS = [[/Android/, "Android"], [/iPhone/, "iPhone"], [/iPad/, "iPad"], [/Windows/, "Windows"], [/Mac OS X/, "macOS"], [/CrOS/, "ChromeOS"], [/Linux/, "Linux"]];

// A browser as a person knows it, from what it says about itself.
export function browserName(agent) {
  const find = (list) => list.find(([shape]) => shape.test(agent))?.[1];
  const [browser, system] = [find(BROWSERS), find(SYSTEMS)];
  if (browser && system) return t("{browser} on {system}", { browser, system });
  return browser ?? system ?? (agent ? agent.split(/[\s/]/)[0] : t("unknown"));
}
