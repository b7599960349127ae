// Details: what is known of the open conversation beside its words.

import { h, iconButton, patch, t } from "./dom.js";
import { badge, codeView, count, cut, laneName, moment, money, plural, said, SENDING, surfaceName } from "./format.js";
import { Problem } from "./link.js";

const STEP = 34;
const INDENT = 16;
// So many questions with versions are in the drawing, the last ones.
const VERSIONS = 20;
const WHY = { new: t("begun anew"), idle: t("after a silence"), daily: t("on a new day"), suspended: t("after a stop"), deleted: t("after a deleted one") };

export function details(root, app) {
  let lineage = null;
  let of = "";
  let failed = false;

  async function ask(open) {
    const mark = `${open.id}:${open.session.turns ?? 0}:${open.session.epoch ?? 0}`;
    if (of === mark) return;
    if (!of.startsWith(`${open.id}:`)) lineage = null;
    of = mark;
    const found = await app.api.lineage(open.id).catch((problem) => {
      if (!(problem instanceof Problem)) throw problem;
      return null;
    });
    if (of !== mark) return;
    failed = !found;
    lineage = found?.branches ?? lineage;
    update();
  }

  function update() {
    const { open } = app;
    if (!open) return;
    ask(open);
    const chats = open.lanes.filter((l) => l.platform !== "web");
    patch(root, [
      h("div", { class: "details-top", key: "top" }, h("h2", {}, t("Details")), iconButton("close", t("Close the details (Esc)"), () => app.toggleDetails())),
      section(t("Conversation"), pairs(facts(open.session))),
      section(t("Usage"), usage(open.session)),
      (lineage || failed) && section(t("Lineage"), lineage ? picture(lineage, open) : h("p", { class: "muted" }, t("This cannot be shown now"))),
      chats.length ? section(t("Lanes"), h("ul", { class: "items" }, chats.map((l) => h("li", { key: l.id }, h("span", { class: "badge" }, badge(l.platform)), h("span", { class: "cut grow", title: l.key }, laneName(l)), l.place && l.person && h("span", { class: "muted cut" }, l.person))))) : null,
      open.deliveries.length ? section(t("Deliveries"), h("ul", { class: "items" }, open.deliveries.map((d) => h("li", { key: d.id }, h("span", { class: "cut grow" }, codeView(cut(d.text, 80))), h("span", { class: `state ${d.state}` }, SENDING[d.state]))))) : null,
      files(open),
    ]);
  }

  return {
    update,
    resume() {
      of = "";
    },
  };
}

const section = (title, ...inner) => h("section", { class: "section", key: title, "aria-label": title }, h("h3", {}, title), inner);
const pairs = (list) => h("dl", { class: "pairs" }, list.filter(([, value]) => value || value === 0).map(([name, value]) => [h("dt", { key: `t${name}` }, name), h("dd", { key: `d${name}` }, value)]));

function facts(session) {
  return [
    [t("Began"), moment(session.created_at)],
    [t("Began in"), session.place ? `${surfaceName(session.platform)}, ${session.place}` : surfaceName(session.surface)],
    [t("Messages"), (session.messages ?? 0).toLocaleString()],
    // What was brought along from elsewhere had none here.
    [t("Turns"), session.turns ? session.turns.toLocaleString() : null],
    [t("Model"), session.settings?.model],
    [t("Folder"), session.cwd],
    ["ID", h("code", {}, session.id)],
  ];
}

function usage(session) {
  const tokens = session.tokens ?? {};
  const used = session.context_used;
  const limit = session.context_limit;
  return [
    pairs([[t("Tokens in"), count(tokens.input ?? 0)], [t("Tokens out"), count(tokens.output ?? 0)], [t("Tokens of reasoning"), tokens.reasoning && count(tokens.reasoning)], [t("Tokens from cache"), tokens.cache_read && count(tokens.cache_read)], [t("Tokens to cache"), tokens.cache_write && count(tokens.cache_write)], [t("Cost"), session.cost === undefined ? t("unknown") : `${money(session.cost)}${session.cost_status === "estimated" ? t(", estimated") : ""}`]]),
    limit ? [
      h("div", { class: "gauge", role: "meter", "aria-label": t("Context in use"), "aria-valuemin": "0", "aria-valuemax": limit, "aria-valuenow": used ?? 0 }, h("div", { css: { width: `${Math.min(100, ((used ?? 0) / limit) * 100)}%` } })),
      h("p", { class: "muted" }, t("{used} of {limit} tokens of context", { used: count(used ?? 0), limit: count(limit) })),
    ] : null,
  ];
}

// Questions that have several versions: one that was asked within a version stands deeper than that.
function versionRows(open) {
  const questions = (open.versions.questions ?? []).map((versions) => ({ versions, used: versions.find((v) => open.messages.some((m) => m.seq === v.seq && !m.undone)) ?? versions.at(-1) })).sort((a, b) => a.versions[0].seq - b.versions[0].seq);
  const inside = (a, b) => b.versions.some((v, i) => v.seq < a.versions[0].seq && (b.versions[i + 1]?.seq ?? Infinity) > a.versions[0].seq);
  return questions.map((question, n) => ({ ...question, depth: questions.slice(0, n).filter((before) => inside(question, before)).length })).slice(-VERSIONS);
}

function files(open) {
  const found = open.messages.flatMap((m) => m.parts.filter((p) => p.type === "media").map((part) => ({ part, seq: m.seq })));
  if (!found.length) return null;
  return section(t("Files"), h("ul", { class: "items" }, found.slice(-30).map(({ part, seq }) => h("li", { key: `${seq}.${part.media}` }, h("a", { class: "cut", href: `#/s/${open.id}/${seq}` }, cut(part.name || part.kind, 60))))));
}

// Depth of each branch, parents before children: forks stand below and to the right of where they left, what a lane began
// after a reset straight below what it had before.
export function tree(branches) {
  const known = new Set(branches.map((b) => b.id));
  const reset = (b) => !known.has(b.parent) && known.has(b.after);
  const above = (b) => (known.has(b.parent) ? b.parent : reset(b) ? b.after : null);
  const out = [];
  const walk = (b, depth, parent) => {
    const row = out.length;
    out.push({ branch: b, depth, row, parent, reset: reset(b) });
    const below = branches.filter((other) => above(other) === b.id);
    for (const fork of below.filter((other) => !reset(other))) walk(fork, depth + 1, row);
    for (const next of below.filter(reset)) walk(next, depth, row);
  };
  for (const b of branches) if (above(b) === null) walk(b, 0, null);
  return out;
}

function line({ depth, row, parent, reset }, x, y) {
  if (parent === null) return null;
  if (reset) return h("path", { class: "branch broken", d: `M${x(depth)} ${y(parent)}V${y(row)}` });
  return h("path", { class: "branch", d: `M${x(depth - 1)} ${y(parent)}V${y(row) - 8}Q${x(depth - 1)} ${y(row)} ${x(depth)} ${y(row)}` });
}

function about({ branch, reset }) {
  const facts = [plural(branch.last_seq, t("{n} message|{n} messages"))];
  if (reset) facts.push(WHY[branch.why] ?? branch.why);
  else if (branch.parent_seq) facts.push(t("forked at {seq}", { seq: branch.parent_seq }));
  const compacted = (branch.epochs ?? []).filter((e) => e.number > 0).length;
  if (compacted) facts.push(compacted === 1 ? t("compacted") : t("compacted {n} times", { n: compacted }));
  return facts.join(", ");
}

// The versions of questions stand below the conversation that is open, above what else follows it.
function picture(branches, open) {
  const here = open.id;
  const order = tree(branches);
  const mine = order.findIndex(({ branch }) => branch.id === here);
  const questions = mine < 0 ? [] : versionRows(open);
  const place = (row) => (row > mine ? row + questions.length : row);
  const rows = order.map((item) => ({ ...item, row: place(item.row), parent: item.parent === null ? null : place(item.parent) }));
  const height = (rows.length + questions.length) * STEP;
  const x = (depth) => 10 + Math.min(depth, 8) * INDENT;
  const y = (row) => 16 + row * STEP;
  return h("div", { class: "lineage" }, h("svg", { viewBox: `0 0 288 ${height}`, height, preserveAspectRatio: "xMinYMin meet", role: "group", "aria-label": t("Forks, versions, epochs and resets") },
    questions.map((question, n) => versionsRow(question, open, { x: x(rows[mine].depth), y: y(mine) }, y(mine + 1 + n))),
    rows.map((item) => line(item, x, y)),
    rows.map((item) => {
      const { branch, depth, row } = item;
      return h("svg:a", { key: branch.id, href: `#/s/${branch.id}`, "aria-current": branch.id === here ? "true" : null },
        h("circle", { class: branch.id === here ? "node here" : "node", cx: x(depth), cy: y(row), r: 5 }),
        (branch.epochs ?? []).filter((e) => e.number > 0).slice(-4).map((e, i) => h("line", { class: "branch", x1: x(depth) - 6, x2: x(depth) + 6, y1: y(row) + 8 + i * 3, y2: y(row) + 8 + i * 3 })),
        h("text", { x: x(depth) + 12, y: y(row) }, cut(branch.title || t("Untitled"), 32 - depth * 2)),
        h("text", { class: "small", x: x(depth) + 12, y: y(row) + 13 }, cut(about(item), 38 - depth * 2)));
    })));
}

// One question: a mark for each version, the one in use filled, and its words.
function versionsRow({ versions, used, depth }, open, from, y) {
  const message = open.messages.find((m) => m.seq === used.seq);
  const words = (message && said(message).replaceAll("\n\n", " ")) || t("Question");
  const left = from.x + INDENT * (1 + Math.min(depth, 4));
  const marks = versions.slice(-VERSIONS);
  return h("svg:a", { key: `v${versions[0].turn}`, class: "question-versions", href: `#/s/${open.id}/${used.seq}` },
    h("title", {}, t("Version {n} of {all}", { n: versions.indexOf(used) + 1, all: versions.length })),
    h("path", { class: "branch broken", d: `M${from.x} ${from.y}V${y}H${left - 6}` }),
    marks.map((version, i) => h("circle", { class: version === used ? "node here" : "node", cx: left + i * 11, cy: y, r: 4 })),
    h("text", { x: left + marks.length * 11 + 2, y }, cut(`${versions.indexOf(used) + 1}/${versions.length} ${words}`, Math.max(8, 30 - 2 * marks.length - 2 * depth))));
}
