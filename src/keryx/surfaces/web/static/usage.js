// Usage: tokens and cost by day, drawn as bars stacked by model, and as tables.

import { h, t } from "./dom.js";
import { count, cut, money, surfaceName, utcDay } from "./format.js";
import { empty, screen, table } from "./screen.js";

const HEIGHT = 200;
const LEFT = 44;
const TONES = 5;

export function show(root, app) {
  let days = 30;
  return screen(root, app, {
    title: t("Usage"),
    lead: t("Tokens and cost: by day, person, model, place and conversation."),
    load: () => app.api.usage(days),
    body: (data, reload) => [
      h("div", { class: "stack", role: "group", "aria-label": t("How many days"), key: "days" }, [7, 30, 90].map((n) =>
        h("button", { type: "button", class: "chip", "aria-pressed": String(days === n), onclick: () => { days = n; reload(); } }, t("{n} days", { n })))),
      data.days.length ? [
        figures(data.days),
        chart(data.days, days, app.narrow ? 340 : 720),
        most(t("Person"), data.people, (r) => cut(r.id === "operator" ? t("Operator") : r.name, 60)),
        by(t("Model"), data.days, (r) => r.model, (model) => model || t("no model")),
        by(t("Surface"), data.days, (r) => r.surface, surfaceName),
        most(t("Conversation"), data.sessions, (r) => h("a", { href: `#/s/${r.id}` }, cut(r.name, 60))),
      ]
        : empty(t("Nothing was used yet"), t("After the first answer, tokens and cost appear here by day and by model."), { label: t("Begin a conversation"), onclick: () => app.go("/new") }),
    ],
  });
}

const tokens = (row) => (row.input ?? 0) + (row.output ?? 0) + (row.reasoning ?? 0) + (row.cache_read ?? 0) + (row.cache_write ?? 0);
const sum = (rows, of) => rows.reduce((total, row) => total + (of(row) ?? 0), 0);
const cost = (rows) => (rows.every((r) => r.cost === undefined) ? undefined : sum(rows, (r) => r.cost));

function groups(rows, of) {
  const found = new Map();
  for (const row of rows) found.set(of(row), [...(found.get(of(row)) ?? []), row]);
  return found;
}

function figures(rows) {
  const guessed = rows.some((r) => r.estimated);
  const one = (name, value) => h("div", { class: "figure" }, h("dt", {}, name), h("dd", {}, value));
  return h("dl", { class: "figures", key: "figures" },
    one(t("Tokens"), count(sum(rows, tokens))), one(t("Tokens in"), count(sum(rows, (r) => r.input))), one(t("Tokens out"), count(sum(rows, (r) => r.output))),
    one(t("Tokens from cache"), count(sum(rows, (r) => r.cache_read))), one(t("Turns"), count(sum(rows, (r) => r.turns))), one(guessed ? t("Cost, estimated") : t("Cost"), money(cost(rows))));
}

function chart(rows, days, width) {
  const models = Array.from(groups(rows, (r) => r.model).entries()).sort((a, b) => sum(b[1], tokens) - sum(a[1], tokens)).map(([name]) => name);
  const tone = (model) => Math.min(models.indexOf(model), TONES - 1);
  const byDay = groups(rows, (r) => r.day);
  const last = Date.parse(`${new Date().toISOString().slice(0, 10)}T00:00:00Z`);
  const dates = Array.from({ length: days }, (_, i) => new Date(last - (days - 1 - i) * 86_400_000).toISOString().slice(0, 10));
  const top = ceiling(Math.max(1, ...dates.map((day) => sum(byDay.get(day) ?? [], tokens))));
  const step = (width - LEFT) / days;
  const y = (n) => HEIGHT - (n / top) * HEIGHT;
  const bars = dates.flatMap((day, i) => {
    let base = 0;
    return (byDay.get(day) ?? []).slice().sort((a, b) => tone(a.model) - tone(b.model)).map((row) => {
      const from = base;
      base += tokens(row);
      return h("rect", { class: `day-bar t${tone(row.model)}`, x: LEFT + i * step + step * 0.12, width: step * 0.76, y: y(base), height: Math.max(0.5, y(from) - y(base)), rx: 1 }, h("title", {}, t("{day}, {model}: {count} tokens, cost {cost}", { day, model: row.model || t("no model"), count: tokens(row).toLocaleString(), cost: money(row.cost) })));
    });
  });
  const every = Math.ceil(days / (width / 110));
  return h("figure", { class: "chart", key: "chart" },
    h("svg", { viewBox: `0 -8 ${width} ${HEIGHT + 32}`, role: "img", "aria-label": t("Tokens by day over {days} days; the table below has the same figures", { days }) },
      [0, 0.5, 1].map((part) => [h("line", { class: "rule", x1: LEFT, x2: width, y1: y(top * part), y2: y(top * part) }), h("text", { x: LEFT - 8, y: y(top * part) + 4, "text-anchor": "end" }, count(top * part))]),
      bars,
      dates.map((day, i) => i % every === 0 && h("text", { x: LEFT + i * step, y: HEIGHT + 18 }, utcDay(day)))),
    h("div", { class: "legend" }, models.slice(0, TONES).map((model, i) => h("span", {}, h("span", { class: `swatch t${i}` }), i === TONES - 1 && models.length > TONES ? t("others") : model || t("no model")))),
    h("details", { class: "small" }, h("summary", {}, t("The same as a table")),
      table([t("Day"), t("Model"), t("Surface"), t("#Turns"), t("#Tokens"), t("#Cost")], rows.map((r) => h("tr", {}, h("td", {}, r.day), h("td", {}, r.model), h("td", {}, r.surface), number(r.turns ?? 0), number(tokens(r)), h("td", { class: "number" }, money(r.cost)))), t("Usage by day, model and surface"))));
}

// A round number that is not below what is shown.
function ceiling(n) {
  const size = 10 ** Math.floor(Math.log10(n));
  return [1, 2, 5, 10].map((k) => k * size).find((k) => k >= n);
}

const number = (n) => h("td", { class: "number" }, n.toLocaleString());

const line = (key, name, n, used, price) => h("tr", { key }, h("td", {}, name), number(n), number(used), h("td", { class: "number" }, money(price)));
const block = (what, title, label, rows) => h("section", { class: "block", key: title }, h("h2", {}, title), table([what, ...label], rows, `${t("Usage")} ${title[0].toLowerCase()}${title.slice(1)}`));

function by(what, rows, of, name) {
  const sorted = Array.from(groups(rows, of)).sort((a, b) => sum(b[1], tokens) - sum(a[1], tokens));
  return block(what, t("By {what}", { what: document.documentElement.lang === "en" ? what.toLowerCase() : what }), [t("#Turns"), t("#Tokens"), t("#Cost")], sorted.map(([key, own]) => line(key, name(key), sum(own, (r) => r.turns), sum(own, tokens), cost(own))));
}

function most(what, rows, name) {
  return rows.length ? block(what, t("By {what}", { what: document.documentElement.lang === "en" ? what.toLowerCase() : what }), [t("#Calls"), t("#Tokens"), t("#Cost")], rows.map((r) => line(r.id, name(r), r.calls, r.tokens, r.cost))) : null;
}
