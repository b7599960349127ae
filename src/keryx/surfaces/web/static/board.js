// Board: every turn that runs or waits, with stop and answer.

import { h, icon, t } from "./dom.js";
import { cut, elapsed, heldText, money, placeView, questionView } from "./format.js";
import { empty, screen } from "./screen.js";
import { nameOf } from "./sidebar.js";

export function show(root, app) {
  return screen(root, app, {
    title: t("Board"),
    lead: t("Every answer that is being written or waits, in every place. Stop it here, or answer what it asks."),
    live: ["turn", "question", "message"],
    ticks: true,
    load: () => app.api.board(),
    body: ({ turns }) => turns.length
      ? h("div", { key: "turns" }, turns.toSorted((a, b) => Boolean(b.question) - Boolean(a.question)).map((row) => card(row, app)))
      : empty(t("Nothing runs now"), t("When somebody asks something, in a chat, an editor or here, the work appears on this board until it is done."), { label: t("Begin a conversation"), onclick: () => app.go("/new") }),
  });
}

function card({ turn, session, asked, step, question }, app) {
  const state = question ? "asks you" : turn.cancelling ? "stopping" : turn.state === "queued" ? "waiting" : turn.state;
  const since = Date.parse(turn.started_at ?? turn.created_at);
  return h("section", { class: "turn-card", key: turn.id, "aria-label": nameOf(session) },
    h("div", {},
      h("a", { class: "name", href: `#/s/${session.id}` }, nameOf(session)),
      h("div", { class: "facts" },
        h("span", { class: `state ${question ? "asking" : state}` }, t(state)),
        placeView(session),
        h("span", {}, elapsed(Date.now() - since)),
        turn.held_until && h("span", {}, heldText(turn)),
        turn.attempts > 1 && h("span", {}, t("attempt {n}", { n: turn.attempts })),
        turn.state !== "queued" && session.cost !== undefined && h("span", {}, t("{cost} in this conversation", { cost: money(session.cost) })))),
    h("div", {}, turn.state === "queued"
      ? h("button", { type: "button", class: "button", onclick: () => app.act(() => app.api.drop(turn.id)) }, t("Remove queued message"))
      : h("button", { type: "button", class: "button", disabled: Boolean(turn.cancelling), onclick: () => app.act(() => app.api.stop(session.id)) }, icon("stop"), t("Stop"))),
    (asked || step) && h("p", { class: "step" }, asked && cut(asked, 200), step && h("span", {}, asked ? " · " : "", t("last step: "), h("code", {}, cut(step, 80)))),
    question && questionView(question, app));
}
