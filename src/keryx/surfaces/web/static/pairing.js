// Pairing: who waits to be let in, who was let in, and how platforms are connected.

import { h, t } from "./dom.js";
import { Form } from "./forms.js";
import { ago, badge, cut, exact, plural, surfaceName } from "./format.js";
import { empty, screen, table } from "./screen.js";

const LINKS = { connecting: t("connecting"), connected: t("connected"), standby: t("standby"), throttled: t("throttled"), refused: t("refused"), broken: t("broken") };

export function show(root, app) {
  const pairing = pairingView(app);
  return screen(root, app, {
    title: t("Pairing"),
    lead: t("A stranger who writes to your bot gets a code. Enter the code here to let them in."),
    live: ["access"],
    load: async () => ({ ...(await app.api.pairing()), ...(await app.api.connections()) }),
    body: (data, reload) => [pairing.approve(data, reload), pairing.waiting(data, reload, true), pairing.granted(data.granted, reload), connections(data.connections.filter((c) => c.platform !== "local"))],
  });
}

// The parts of this screen, which the set-up of platforms shows too. Keeps what is being typed.
export function pairingView(app) {
  const form = new Form(app, { platform: "", code: "" });

  // A code is told by a platform that is connected.
  function approve({ waiting: asked, connections: links }, reload) {
    const platforms = [...new Set([...asked, ...links].map((p) => p.platform))].filter((name) => name !== "local");
    if (!platforms.length) return null;
    const platform = platforms.includes(form.values.platform) ? form.values.platform : platforms[0];
    const send = async () => {
      const grant = await form.run(t("Let in"), () => app.api.approve(platform, form.values.code.trim()));
      if (!grant) return reload();
      form.values = { platform: "", code: "" };
      app.toast(t("{name} may talk now.", { name: grant.name || grant.person }));
      await reload();
    };
    form.values.platform = platform;
    return h("form", { class: "line-form", key: "approve", "aria-label": t("Let somebody in"), onsubmit: (event) => { event.preventDefault(); send(); } },
      form.field("platform", t("Platform"), { options: platforms.map((name) => [name, surfaceName(name)]) }),
      form.field("code", t("Code"), { autocapitalize: "characters", required: true }),
      h("button", { class: "button main", disabled: Boolean(form.busy) }, t("Let in")),
      form.problem && h("p", { class: "wrong", role: "alert" }, form.problem));
  }

  const gone = (reload, work, id) => app.act(async () => { await work(id); await reload(); });
  const person = (p) => h("td", {}, h("span", { class: "badge" }, badge(p.platform)), " ", cut(p.name || p.person, 60), p.name && h("div", { class: "muted small" }, cut(p.person, 60)));

  function waiting(data, reload, whole = false) {
    const list = data.waiting;
    if (!list.length && !whole) return null;
    return h("section", { class: "block", key: "waiting" }, h("h2", {}, t("People who wait")), !whole && approve(data, reload), list.length
      ? table([t("Person"), t("Asked"), ""], list.map((p) => h("tr", { key: p.id }, person(p), h("td", {}, h("time", { datetime: p.created_at, title: exact(p.created_at) }, ago(p.created_at))), h("td", {}, h("div", { class: "acts" }, h("button", { type: "button", class: "button", onclick: () => gone(reload, app.api.refuse, p.id) }, t("Refuse")))))), t("People who wait"))
      : empty(t("Nobody waits"), t("Somebody who writes to your bot for the first time appears here, with the code they were given on their side.")));
  }

  function granted(list, reload) {
    if (!list.length) return null;
    return h("section", { class: "block", key: "granted" }, h("h2", {}, t("Let in")),
      table([t("Person"), t("Since"), ""], list.map((p) => h("tr", { key: p.id }, person(p), h("td", {}, h("time", { datetime: p.at, title: exact(p.at) }, ago(p.at))), h("td", {}, h("div", { class: "acts" }, h("button", { type: "button", class: "button danger", onclick: () => gone(reload, app.api.revokeGrant, p.id) }, t("Let in no longer")))))), t("People who were let in")));
  }

  return { approve, waiting, granted };
}

export const connectionState = (c) => h("span", { class: `state ${c.link === "connected" ? "connected" : c.link === "refused" || c.link === "broken" ? "failed" : "waiting"}` }, LINKS[c.link] ?? c.link);

// Requests to the hook that were not taken in, in a sentence.
export const rejections = (c) => plural(c.rejected, t("{n} request to the hook was rejected: not signed with the secret, malformed or too large.|{n} requests to the hook were rejected: not signed with the secret, malformed or too large."));

function connections(list) {
  return h("section", { class: "block", key: "connections" }, h("h2", {}, t("Platforms")),
    list.length > 0 && table([t("Platform"), t("State")], list.map((c) => h("tr", { key: `${c.platform}:${c.account}` }, h("td", {}, [surfaceName(c.platform), c.account].filter(Boolean).join(", ")), h("td", {}, connectionState(c), c.detail && h("div", { class: "muted small" }, c.detail), c.rejected > 0 && h("div", { class: "muted small" }, rejections(c))))), t("Platforms")),
    h("p", {}, h("a", { href: "#/platforms" }, t("Connect a chat platform"))));
}
