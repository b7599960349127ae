// Pairing: who waits to be let in, who was let in, and how platforms are connected.

import { h, t } from "./dom.js";
import { ago, badge, cut, full } from "./format.js";
import { empty, screen, table } from "./screen.js";

const LINKS = { connecting: t("connecting"), connected: t("connected"), standby: t("standby"), throttled: t("throttled"), refused: t("refused"), broken: t("broken") };

export function show(root, app) {
  const door = { wrong: "" };
  return screen(root, app, {
    title: t("Pairing"),
    lead: t("A stranger who writes to your bot gets a code. Enter the code here to let them in."),
    live: ["access"],
    load: async () => ({ ...(await app.api.pairing()), ...(await app.api.connections()) }),
    body: (data, reload) => [approve(data.waiting, door, app, reload), waiting(data.waiting, app, reload), granted(data.granted, app, reload), connections(data.connections)],
  });
}

function approve(list, door, app, reload) {
  const platforms = new Set(list.map((p) => p.platform));
  const send = (event) => {
    event.preventDefault();
    const { platform, code } = event.target.elements;
    app.act(async () => {
      const grant = await app.api.approve(platform.value.trim().toLowerCase(), code.value.trim()).catch((problem) => {
        door.wrong = problem.message;
      });
      if (!grant) return reload();
      door.wrong = code.value = "";
      app.toast(t("{name} may talk now.", { name: grant.name || grant.person }));
      await reload();
    });
  };
  return h("form", { class: "stack", key: "approve", onsubmit: send },
    h("input", { class: "field grow", name: "platform", key: `of-${[...platforms]}`, "aria-label": t("Platform"), placeholder: t("Platform, as telegram"), required: true, ref: (e) => (e.value = platforms.size === 1 ? [...platforms][0] : "") }),
    h("input", { class: "field grow", name: "code", "aria-label": t("Code"), placeholder: t("Code"), required: true, autocomplete: "off" }),
    h("button", { class: "button main" }, t("Let in")),
    door.wrong && h("p", { class: "wrong", role: "alert" }, door.wrong));
}

const gone = (app, reload, work, id) => app.act(async () => { await work(id); await reload(); });
const person = (p) => h("td", {}, h("span", { class: "badge" }, badge(p.platform)), " ", cut(p.name || p.person, 60), p.name && h("div", { class: "muted small" }, cut(p.person, 60)));

function waiting(list, app, reload) {
  return h("section", { class: "block", key: "waiting" }, h("h2", {}, t("People who wait")), list.length
    ? table([t("Person"), t("Asked"), ""], list.map((p) => h("tr", { key: p.id }, person(p), h("td", {}, h("time", { datetime: p.created_at, title: full(p.created_at) }, ago(p.created_at))), h("td", {}, h("div", { class: "acts" }, h("button", { type: "button", class: "button", onclick: () => gone(app, reload, app.api.refuse, p.id) }, t("Refuse")))))), t("People who wait"))
    : empty(t("Nobody waits"), t("Somebody who writes to your bot for the first time appears here, with the code they were given on their side.")));
}

function granted(list, app, reload) {
  if (!list.length) return null;
  return h("section", { class: "block", key: "granted" }, h("h2", {}, t("Let in")),
    table([t("Person"), t("Since"), ""], list.map((p) => h("tr", { key: p.id }, person(p), h("td", {}, h("time", { datetime: p.at, title: full(p.at) }, ago(p.at))), h("td", {}, h("div", { class: "acts" }, h("button", { type: "button", class: "button danger", onclick: () => gone(app, reload, app.api.revokeGrant, p.id) }, t("Let in no longer")))))), t("People who were let in")));
}

function connections(list) {
  if (!list.length) return null;
  return h("section", { class: "block", key: "connections" }, h("h2", {}, t("Platforms")),
    table([t("Platform"), t("State")], list.map((c) => h("tr", { key: `${c.platform}:${c.account}` }, h("td", {}, h("span", { class: "badge" }, badge(c.platform)), ` ${c.platform} ${c.account}`), h("td", {}, h("span", { class: `state ${c.link === "connected" ? "connected" : c.link === "refused" || c.link === "broken" ? "failed" : "waiting"}` }, LINKS[c.link] ?? c.link), c.detail && h("div", { class: "muted small" }, c.detail)))), t("Platforms")));
}
