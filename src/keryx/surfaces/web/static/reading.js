// Reading: what is done with a whole conversation now and then. The outline of its questions, links to it, and printing.

import { h, patch, t } from "./dom.js";
import { dialog } from "./dialogs.js";
import { dayName, dayOf, items, messageView, moment, stepMessages, time } from "./format.js";

const STEP = 200;
// So much is printed at most: a browser lays all of it out at once.
const PRINTED = 5000;

// The questions of a conversation by day. One that is chosen is shown.
export async function outline(app, { id, jump }) {
  const known = await app.act(() => app.api.outline(id));
  if (!known) return;
  let { questions } = known;
  let earlier = known.earlier ?? false;
  const chosen = await dialog((close) => h("div", { class: "ask outline" },
    h("h2", {}, t("Questions and dates")),
    h("form", { class: "stack at-foot", onsubmit: (e) => { e.preventDefault(); if (e.target.elements.day.value) close({ day: e.target.elements.day.value }); } },
      h("div", { class: "control grow" }, h("label", { for: "outline-day" }, t("Go to a date")),
        h("input", { class: "field", type: "date", id: "outline-day", name: "day" })),
      h("button", { class: "button" }, t("Go"))),
    h("nav", { "aria-label": t("Questions"), ref: (e) => fill(e, close) }),
    h("div", { class: "ends" }, h("button", { type: "button", class: "button", onclick: () => close(null) }, t("Close")))), { label: t("Questions and dates") });

  function fill(element, close) {
    let day = null;
    patch(element, [
      earlier && h("button", { type: "button", class: "quiet", key: "earlier", onclick: () => more(element, close) }, t("Earlier questions")),
      !questions.length && h("p", { class: "muted" }, t("Nothing was asked here yet.")),
      ...questions.map((q) => {
        const fresh = dayOf(q.at) !== day;
        day = dayOf(q.at);
        return [
          fresh && h("h3", { key: `d${q.seq}` }, dayName(q.at)),
          h("button", { type: "button", class: "line", key: q.seq, onclick: () => close({ seq: q.seq }) }, h("time", { class: "muted", datetime: q.at }, time(q.at)), h("span", { class: "cut grow", dir: "auto" }, q.text)),
        ];
      }),
    ]);
    requestAnimationFrame(() => (element.scrollTop = element.scrollHeight));
  }

  async function more(element, close) {
    const found = await app.act(() => app.api.outline(id, { before: questions[0].seq }));
    if (!found) return;
    questions = [...found.questions, ...questions];
    earlier = found.earlier ?? false;
    fill(element, close);
    element.scrollTop = 0;
  }

  if (chosen?.seq) await jump(chosen.seq);
  if (chosen?.day) await goToDay(app, { id, jump }, chosen.day);
}

// The first message of a day, or of the next day on which something was said.
async function goToDay(app, { id, jump }, day) {
  const at = new Date(`${day}T00:00:00`);
  const found = await app.act(() => app.api.messages(id, { at: at.toISOString(), limit: 2 }));
  if (!found) return;
  const first = found.messages.find((m) => Date.parse(m.at) >= at.getTime()) ?? found.messages.at(-1);
  if (first) await jump(first.seq);
}

// Links to this conversation: made, shown once, revoked.
export async function share(app, { id }) {
  const known = await app.act(() => app.api.shares(id));
  if (!known) return;
  let { shares } = known;
  let made = null;
  let box = null;

  async function add() {
    made = (await app.act(() => app.api.share(id))) ?? null;
    if (made) shares = [...shares, made.share];
    show();
  }

  async function revoke(gone) {
    if ((await app.act(() => app.api.revokeShare(id, gone.id))) === undefined) return;
    shares = shares.filter((s) => s !== gone);
    if (made?.share.id === gone.id) made = null;
    show();
  }

  function show(element = box) {
    box = element;
    patch(box, [
      h("p", { key: "what" }, t("Anybody who has the link reads what was said up to now: no tools, no thoughts, no names. It shows nothing as soon as it is revoked.")),
      made && h("div", { class: "stack", key: "made" },
        h("input", { class: "field grow", readonly: true, "aria-label": t("The link"), ref: (e) => { e.value = made.address; setTimeout(() => e.select()); } }),
        h("button", { type: "button", class: "button main", onclick: () => app.copy(made.address) }, t("Copy"))),
      made && h("p", { key: "once" }, t("The link is shown this once: keep it.")),
      shares.length > 0 && h("ul", { class: "items", key: "all", "aria-label": t("Links") }, shares.map((s) => h("li", { key: s.id },
        h("span", { class: "grow" }, t("Made {when}, up to message {n}", { when: moment(s.created_at), n: s.through })),
        h("button", { type: "button", class: "button danger", onclick: () => revoke(s) }, t("Revoke"))))),
      !made && h("button", { type: "button", class: "button main", key: "add", onclick: add }, t("Make a link")),
    ]);
  }

  await dialog((close) => h("div", { class: "ask" }, h("h2", {}, t("Share by a link")),
    h("div", { class: "shares", own: true, ref: (e) => show(e) }),
    h("div", { class: "ends" }, h("button", { type: "button", class: "button", onclick: () => close(null) }, t("Close")))), { label: t("Share by a link") });
}

// Brings all of a conversation onto paper, or into a PDF: the browser's own dialog asks which.
export async function print(app, { id, session }) {
  const all = await app.act(async () => {
    const { epochs } = await app.api.open(id, { limit: 1 });
    const found = { messages: [], answers: {}, epochs: epochs ?? [], versions: {}, cut: false };
    let later = true;
    for (let after = 0; later && found.messages.length < PRINTED; after = found.messages.at(-1)?.seq ?? 0) {
      const window = await app.api.messages(id, { after, limit: STEP });
      found.messages.push(...window.messages);
      found.versions = window.versions ?? {};
      for (const answer of window.answers ?? []) found.answers[answer.turn] = answer;
      later = (window.later ?? false) && window.messages.length > 0;
    }
    found.cut = later;
    return found;
  });
  if (!all) return;
  // Everything that folds on the page is open on paper.
  const tools = { unfolded: { has: () => true }, whole: new Map(), fold() {}, changed() {}, canRead: () => false };
  const shown = items({ ...all, session: { ...session, parent: null, activity: "idle" }, queue: [], questions: [], replies: [], pending: [], running: null, draft: null }, new Set());
  const paper = document.createElement("div");
  paper.id = "paper";
  patch(paper, [
    h("h1", {}, session.title || t("Untitled")),
    ...shown.map((item) => item.kind === "day" ? h("div", { class: "day", key: item.key }, dayName(item.at)) : item.kind === "message" ? h("div", { key: item.key }, messageView(item, tools, { flash: false })) : item.kind === "steps" ? h("div", { key: item.key }, stepMessages(item, tools)) : item.epoch?.html ? h("div", { key: item.key }, h("p", { class: "muted" }, t("Compacted here: the summary")), h("div", { class: "prose body", html: item.epoch.html })) : null),
    all.cut && h("p", { class: "trouble", role: "note" }, t("Only the first {n} messages are printed. The exports have all of them.", { n: all.messages.length })),
  ]);
  document.body.append(paper);
  await Promise.all(Array.from(paper.querySelectorAll("img"), (image) => ((image.loading = "eager"), image.decode().catch(() => {}))));
  addEventListener("afterprint", () => paper.remove(), { once: true });
  window.print();
}
