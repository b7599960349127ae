// Permissions: what was allowed or denied for good in conversations, and how to take it back.

import { h, t } from "./dom.js";
import { button, entry } from "./forms.js";
import { cut, moment } from "./format.js";
import { empty } from "./screen.js";
import { setup, setupScreen } from "./setup.js";

export function show(root, app) {
  return setupScreen(root, app, {
    name: "permissions",
    title: t("Permissions"),
    lead: t("What was answered with “always” when an agent asked. Each holds in its conversation. What is taken back is asked again."),
    live: ["question"],
    load: setup.consents,
    body({ consents }, reload) {
      const forget = (consent) => app.act(async () => { await setup.forget(consent.session, consent.rule); await reload(); });
      if (!consents.length) return empty(t("Nothing was allowed for good"), t("When an agent asks for a permission and you answer “always”, it is listed here."));
      return h("ul", { class: "entries rules", key: "permissions", "aria-label": t("Permissions") }, consents.map((c) => entry(`${c.session} ${c.rule}`,
        [h("span", { class: `state ${c.allowed ? "done" : "failed"}` }, c.allowed ? t("allowed") : t("denied")), h("code", {}, cut(c.rule, 120))],
        [h("a", { href: `#/s/${c.session}` }, cut(c.title || t("Untitled"), 60)), " · ", t("since {date}", { date: moment(c.at) })],
        button(t("Take back"), c.rule, () => forget(c), "danger"))));
    },
  });
}
