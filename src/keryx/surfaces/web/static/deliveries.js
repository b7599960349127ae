// Deliveries: answers on their way to platforms, and what to do with those that are stuck.

import { h, t } from "./dom.js";
import { ago, codeView, cut, exact, moment, plural, SENDING, surfaceName } from "./format.js";
import { empty, screen, table } from "./screen.js";

const STUCK = new Set(["failed", "dead", "unknown", "held"]);

export function show(root, app) {
  let wanted = "";
  return screen(root, app, {
    title: t("Deliveries"),
    lead: t("Answers on their way to chats. What failed or is in doubt stays here until you send it again or discard it."),
    live: ["delivery"],
    async load() {
      const [found, { connections }] = await Promise.all([app.api.deliveries({ state: wanted, limit: 100 }), app.api.connections()]);
      return { ...found, connections };
    },
    body: ({ deliveries, connections }, reload) => [
      h("div", { class: "stack", role: "group", "aria-label": t("Which deliveries are shown"), key: "filter" }, [["", t("Waiting or stuck")], ["sent", t("Arrived")], ["discarded", t("Discarded")]].map(([state, label]) =>
        h("button", { type: "button", class: "chip", "aria-pressed": String(wanted === state), onclick: () => { wanted = state; reload(); } }, label))),
      deliveries.length
        ? table([t("To"), t("Message"), t("State"), t("When"), ""], deliveries.map((d) => row(d, connections, app, reload)), t("Deliveries"))
        : empty(t("Nothing is on its way"), t("When a chat platform is connected, each answer appears here from the moment it is written until it has arrived.")),
    ],
  });
}

// Why it is where it is, and when that changes.
function note(d, connected) {
  const until = d.waits_until && moment(d.waits_until);
  const waits = d.state !== "ready" ? d.state === "unknown" && !d.error && t("it may have arrived")
    : d.waits === "order" ? t("after an earlier message to the same place")
    : !connected ? t("{platform} is not connected; it is sent as soon as it is", { platform: surfaceName(d.platform) })
    : d.waits === "limit" ? t("{platform} takes the next message at {time}", { platform: surfaceName(d.platform), time: until })
    : d.waits === "retry" && t("next try at {time}", { time: until });
  const told = [d.error, d.attempts > (d.waits === "retry" ? 0 : 1) && plural(d.attempts, t("{n} try|{n} tries")), waits].filter(Boolean);
  return told.length ? h("div", { class: "muted small" }, told.join(" · ")) : null;
}

function row(d, connections, app, reload) {
  // Only the operator is told how the accounts stand.
  const connected = d.platform === "local" || !app.info.who.operator || connections.some((c) => c.platform === d.platform && (!d.account || c.account === d.account) && ["connected", "throttled"].includes(c.link));
  const decide = (work) => app.act(async () => { await work(d.id); await reload(); });
  const acts = STUCK.has(d.state) ? [[t("Send again"), app.api.redeliver], [t("Discard"), app.api.discard]]
    : d.state !== "ready" ? []
    : [d.waits === "retry" && connected && [t("Send now"), app.api.redeliver], d.attempts > 0 ? [t("Stop trying"), app.api.stopDelivery] : [t("Discard"), app.api.discard]].filter(Boolean);
  const place = app.state.sessions.find((s) => s.id === d.session)?.place || d.target.split(":").slice(1).join(":");
  return h("tr", { key: d.id },
    h("td", {}, h("span", { title: d.target }, [surfaceName(d.platform), place && cut(place, 40)].filter(Boolean).join(", "))),
    h("td", {}, d.session ? h("a", { href: `#/s/${d.session}` }, codeView(cut(d.text, 120))) : codeView(cut(d.text, 120))),
    h("td", {}, h("span", { class: `state ${d.state}` }, SENDING[d.state]), note(d, connected)),
    h("td", {}, h("time", { datetime: d.created_at, title: exact(d.created_at) }, ago(d.created_at))),
    h("td", {}, acts.length ? h("div", { class: "acts" }, acts.map(([label, work]) => h("button", { type: "button", class: "button", key: label, onclick: () => decide(work) }, label))) : null));
}
