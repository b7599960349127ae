// People: who has talked, in which ways each is known, what was granted, and what can be merged, split or erased.

import { dialog } from "./dialogs.js";
import { h, t } from "./dom.js";
import { cut, moment, plural, surfaceName, twins } from "./format.js";
import { empty } from "./screen.js";
import { button, entry } from "./forms.js";
import { setup, setupScreen } from "./setup.js";

const OPERATOR = "operator";

export function show(root, app) {
  return setupScreen(root, app, {
    name: "people",
    title: t("People"),
    lead: t("Everybody who has talked. One person on several platforms can be merged: then they go on with the same conversations everywhere."),
    live: ["access"],
    load: async () => ({ people: (await setup.people()).people.map((p) => ({ sessions: 0, lanes: 0, user: "", ...p })) }),
    body({ people }, reload) {
      const alike = twins(people, nameOf);
      const fullName = (p) => (alike.has(p) && p.identities.length ? `${nameOf(p)} (${known(p)})` : nameOf(p));
      const act = (work) => app.act(async () => { await work(); await reload(); });
      const erase = async (p) => {
        if (await app.ask({ title: t("Erase everything of {name}?", { name: fullName(p) }), text: plural(p.sessions, t("{n} conversation is erased for good, with all that they said elsewhere. Nothing brings it back.|{n} conversations are erased for good, with all that they said elsewhere. Nothing brings it back.")), yes: t("Erase for good"), danger: true })) act(() => setup.erase(p.id));
      };
      const merge = async (p) => {
        const others = people.filter((o) => o.id !== p.id && o.id !== OPERATOR);
        const other = await chooseOther(fullName(p), others);
        if (other !== null) act(() => setup.merge(p.id, other || undefined));
      };
      if (!people.length) return empty(t("Nobody has talked yet"), t("People appear here when they write to a connected chat platform, or when they can sign in."));
      return h("ul", { class: "entries", key: "people", "aria-label": t("People") }, people.map((p) => entry(p.id,
        [nameOf(p), p.user && h("span", { class: "chip" }, t("signs in as {name}", { name: p.user }))],
        [
          h("div", {}, plural(p.sessions, t("{n} conversation|{n} conversations")), " · ", t("since {date}", { date: moment(p.since) })),
          p.identities.map((i) => h("div", { class: "identity", key: `${i.platform}:${i.person}` }, h("span", { class: "grow cut" }, identity(i)), i.operator && h("span", { class: "chip" }, t("operator there")),
            i.grant && button(i.operator ? t("Operator no longer") : t("Make operator"), `${i.platform} ${i.person}`, () => act(() => setup.setRole(i.grant, !i.operator)), "small"),
            i.grant && button(t("Let in no longer"), `${i.platform} ${i.person}`, () => act(() => app.api.revokeGrant(i.grant)), "small"),
            p.identities.length > 1 && button(t("Split off"), `${i.platform} ${i.person}`, () => act(() => setup.split(i.platform, i.person)), "small"))),
        ],
        p.id === OPERATOR ? null : [button(t("Merge…"), fullName(p), () => merge(p)), button(t("Erase…"), fullName(p), () => erase(p), "danger")])));
    },
  });
}

// Names are not unique; what the platform calls a person is.
const identity = (i) => [surfaceName(i.platform), i.name && cut(i.name, 40), cut(i.person, 40)].filter(Boolean).join(" · ");
const known = (p) => p.identities.map((i) => `${surfaceName(i.platform)} ${cut(i.person, 40)}`).join(", ");
const nameOf = (p) => p.name || p.identities[0]?.person || t("Unnamed");

// Gives the id of another person, an empty text for the operator, or null.
function chooseOther(name, others) {
  const title = t("Merge {name} with", { name });
  return dialog((close) => h("form", { class: "ask", onsubmit: (e) => { e.preventDefault(); close(e.target.elements.other.value); } },
    h("h2", {}, title),
    h("p", {}, t("Both become one person: conversations, chats and jobs of both are theirs. Merged with you, they are yours.")),
    h("div", { class: "control" }, h("label", { for: "merge-other" }, t("Person")),
      h("select", { class: "field", name: "other", id: "merge-other" }, others.map((o) => h("option", { key: o.id, value: o.id }, `${nameOf(o)} (${known(o)})`)), h("option", { value: "" }, t("You, the operator")))),
    h("div", { class: "ends" }, h("button", { type: "button", class: "button", onclick: () => close(null) }, t("Cancel")), h("button", { class: "button danger" }, t("Merge")))), { label: title });
}
