// Deliveries: answers on their way to platforms, and what to do with those that are stuck.

import { h, t } from "./dom.js";
import { codeView, cut, exact, SENDING, surfaceName, time } from "./format.js";
import { empty, screen, table } from "./screen.js";

const STUCK = new Set(["failed", "dead", "unknown", "held"]);

export function show(root, app) {
  let wanted = "";
  return screen(root, app, {
    title: t("Deliveries"),
    lead: t("Answers on their way to chats. What failed or is in doubt stays here until you send it again or discard it."),
    live: ["delivery"],
    load: () => app.api.deliveries({ state: wanted, limit: 100 }),
    body: ({ deliveries }, reload) => [
      h("div", { class: "stack", role: "group", "aria-label": t("Which deliveries are shown"), key: "filter" }, [["", t("Waiting or stuck")], ["sent", t("Arrived")], ["discarded", t("Discarded")]].map(([state, label]) =>
        h("button", { type: "button", class: "chip", "aria-pressed": String(wanted === state), onclick: () => { wanted = state; reload(); } }, label))),
      deliveries.length
        ? table([t("To"), t("Message"), t("State"), t("When"), ""], deliveries.map((d) => row(d, app, reload)), t("Deliveries"))
        : empty(t("Nothing is on its way"), t("When a chat platform is connected, each answer appears here from the moment it is written until it has arrived.")),
    ],
  });
}

function note(d) {
  const told = [d.error ?? (d.state === "unknown" ? t("it may have arrived") : ""), d.attempts > 1 ? t("{n} tries", { n: d.attempts }) : ""].filter(Boolean);
  return told.length ? h("div", { class: "muted small" }, told.join(", ")) : null;
}

function row(d, app, reload) {
  const decide = (work) => app.act(async () => { await work(d.id); await reload(); });
  const place = app.state.sessions.find((s) => s.id === d.session)?.place || d.target.split(":").slice(1).join(":");
  return h("tr", { key: d.id },
    h("td", {}, h("span", { title: d.target }, [surfaceName(d.platform), place && cut(place, 40)].filter(Boolean).join(", "))),
    h("td", {}, d.session ? h("a", { href: `#/s/${d.session}` }, codeView(cut(d.text, 120))) : codeView(cut(d.text, 120))),
    h("td", {}, h("span", { class: `state ${d.state}` }, SENDING[d.state]), note(d)),
    h("td", {}, h("time", { datetime: d.created_at, title: exact(d.created_at) }, time(d.created_at))),
    h("td", {}, STUCK.has(d.state) || d.state === "ready" ? h("div", { class: "acts" },
      STUCK.has(d.state) && h("button", { type: "button", class: "button", onclick: () => decide(app.api.redeliver) }, t("Send again")),
      h("button", { type: "button", class: "button", onclick: () => decide(app.api.discard) }, t("Discard"))) : null));
}
