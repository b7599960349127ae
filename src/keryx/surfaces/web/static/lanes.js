// Lanes: the places where people talk to the agent, and which conversation each leads to.

import { dialog } from "./dialogs.js";
import { h, t } from "./dom.js";
import { ago, badge, cut, exact, laneName, surfaceName, twins } from "./format.js";
import { empty, screen, table } from "./screen.js";

const KINDS = { dm: t("direct chat"), group: t("group"), channel: t("channel"), thread: t("thread") };

export function show(root, app) {
  return screen(root, app, {
    title: t("Lanes"),
    lead: t("A lane is a place to talk: a direct chat, a group member, a thread. It leads to one conversation at a time."),
    live: ["lane"],
    load: async () => ({ lanes: (await app.api.lanes()).lanes.filter((lane) => lane.platform !== "web") }),
    body({ lanes }, reload) {
      const alike = twins(lanes, (lane) => [lane.platform, laneName(lane), lane.person].join());
      return lanes.length
        ? table([t("Place"), t("Conversation"), t("Last"), ""], lanes.map((lane) => row(lane, alike.has(lane), app, reload)), t("Lanes"))
        : empty(t("Nobody has written from a chat yet"), t("Each chat in which somebody writes to Keryx gets a lane here."), app.info.who.operator && { label: t("Connect a chat platform"), onclick: () => app.go("/platforms") });
    },
  });
}

// Beside one with the same name, what the platform calls the chat, and the account that hears it.
function row(lane, alike, app, reload) {
  const act = (work) => app.act(async () => { await work(); await reload(); });
  return h("tr", { key: lane.id },
    h("td", {}, h("span", { class: "badge" }, badge(lane.platform)), " ", h("span", { title: lane.key }, cut(laneName(lane), 40)), h("div", { class: "muted small" }, KINDS[lane.chat_type] ?? lane.chat_type, lane.shared ? t(", shared") : "", lane.place && lane.person ? `, ${cut(lane.person, 30)}` : "", lane.topic ? `, ${cut(lane.topic, 40)}` : "", alike ? `, ${[lane.chat, lane.account && t("account {name}", { name: lane.account })].filter(Boolean).join(", ")}` : "")),
    h("td", {}, lane.session ? h("a", { href: `#/s/${lane.session}` }, cut(lane.title || t("Untitled"), 40)) : h("span", { class: "muted" }, lane.suspended ? t("suspended") : t("none: the next message begins one"))),
    h("td", {}, h("time", { datetime: lane.active_at, title: exact(lane.active_at) }, ago(lane.active_at))),
    h("td", {}, h("div", { class: "acts" },
      h("button", { type: "button", class: "button", onclick: () => history(lane, app) }, t("History")),
      h("button", { type: "button", class: "button", disabled: !lane.session, onclick: () => act(async () => { await app.api.resetLane(lane.id); app.toast(t("The next message there begins a new conversation.")); }) }, t("Reset")),
      h("button", { type: "button", class: "button", onclick: () => act(() => app.api.suspend(lane.id, !lane.suspended)) }, lane.suspended ? t("Resume") : t("Suspend")))));
}

async function history(lane, app) {
  const told = await app.act(() => app.api.lane(lane.id));
  if (!told) return;
  await dialog((close) => h("div", { class: "ask" }, h("h2", {}, t("Conversations of this lane")), h("p", {}, [surfaceName(lane.platform), laneName(lane)].join(", ")),
    h("ul", { class: "items story small" }, told.moves.map((m) => h("li", {}, h("time", { datetime: m.at }, exact(m.at)), h("span", {}, m.session ? h("a", { href: `#/s/${m.session}`, onclick: () => close(null) }, m.title || t("Untitled")) : t("no conversation"), ` · ${m.why}`)))),
    h("div", { class: "ends" }, h("button", { type: "button", class: "button main", onclick: () => close(null) }, t("Close")))), { label: t("History of a lane") });
}
