// Chat platforms: which accounts are connected, the same steps as `keryx gateway setup`, and who waits to be let in.

import { h, t } from "./dom.js";
import { box, button, entry, Form } from "./forms.js";
import { codeView } from "./format.js";
import { connectionState, pairingView, rejections } from "./pairing.js";
import { connect, setup, setupScreen } from "./setup.js";

const QR_CODE = /[█▀▄]{8}/;

export function show(root, app) {
  let open = null;
  const pairing = pairingView(app);
  const close = () => {
    open?.stop?.abort();
    open = null;
    app.draw();
  };
  const shown = setupScreen(root, app, {
    name: "platforms",
    title: t("Chat platforms"),
    lead: t("Connect a bot or an account, and talk from there too. Tokens are kept in files that only Keryx can read."),
    live: ["access"],
    async load() {
      const [state, { setups }, { connections }, people] = await Promise.all([setup.read(), setup.platforms(), app.api.connections(), app.api.pairing()]);
      return { ...state, setups, connections, ...people };
    },
    body(data, reload) {
      const begin = (platform) => {
        const values = Object.fromEntries(platform.fields.map((f) => [f.name, f.flag ? false : f.default || (f.choices[0] ?? "")]));
        open = { platform, form: new Form(app, { ...values, account: "", people: "" }), lines: [], question: null, result: null, stop: null };
        app.draw();
      };
      const remove = async (name, platform) => {
        const jobs = (await app.act(() => app.api.jobs()))?.jobs.filter((job) => job.to.some((to) => to.split(/[:.]/)[0] === platform.platform)) ?? [];
        const sure = await app.ask({
          title: t("Remove {name}?", { name: accountName(name, platform) }),
          text: [t("After a restart nothing is read or sent there. Its chats and conversations stay, and you can go on with them here. Answers to them wait until it is connected again."), jobs.length > 0 && t("So does what these jobs send there:")].filter(Boolean).join(" "),
          items: jobs.map((job) => job.name), yes: t("Remove"), danger: true,
        });
        if (!sure) return;
        await app.act(async () => {
          const { variables = [] } = await setup.removeAccount(name);
          app.toast(variables.length ? t("Removed. These variables of the server connect it still: {names}", { names: variables.join(", ") }) : t("Removed. The platform knows the bot still: revoke its token there if nothing else uses it."));
          await reload();
        });
      };
      const sorted = [...data.setups].sort((a, b) => b.accounts.length - a.accounts.length || a.title.localeCompare(b.title));
      return [
        open && dialogView(open, data, reload, close),
        pairing.waiting(data, reload),
        h("section", { class: "block", key: "platforms" }, h("h2", {}, t("Platforms")),
          h("ul", { class: "entries", "aria-label": t("Platforms") }, sorted.map((p) => entry(p.platform,
            p.title,
            p.error || (!p.accounts.length && p.summary !== `Connect ${p.title}.` && p.summary),
            p.error ? null : h("button", { type: "button", class: "button", "aria-label": `${p.accounts.length ? t("Connect another account") : t("Connect")}: ${p.title}`, onclick: () => begin(p) }, p.accounts.length ? t("Connect another account") : t("Connect")),
            !p.error && p.accounts.map((name) => account(name, p, data.connections, () => remove(name, p))))))),
        pairing.granted(data.granted, reload),
      ];
    },
  });
  return { ...shown, leave: () => (close(), shown.leave()) };
}

const shortName = (name, platform) => (name === platform.platform ? t("main account") : name.split(".")[1]);
const accountName = (name, platform) => (platform.accounts.length > 1 ? `${platform.title}, ${shortName(name, platform)}` : platform.title);

// An account that is configured, with how it stands if that can be told apart.
function account(name, platform, connections, remove) {
  const found = connections.filter((c) => c.platform === platform.platform);
  const one = platform.accounts.length === 1 && found.length === 1 ? found[0] : null;
  return h("div", { class: "identity", key: name }, h("span", { class: "grow" }, shortName(name, platform), " · ", one ? [connectionState(one), one.detail && ` ${one.detail}`, one.rejected > 0 && ` ${rejections(one)}`] : found.length ? t("connected accounts: {names}", { names: found.map((c) => c.account).join(", ") }) : t("after a restart")),
    button(t("Remove…"), accountName(name, platform), remove, "small danger"));
}

// Whether a field matters beside the answers to the others.
function needed(field, fields, values) {
  const answer = (name) => values[name] || fields.find((f) => f.name === name)?.default || "";
  return !field.unless.some((name) => values[name]) && Object.entries(field.when).every(([name, value]) => answer(name) === value);
}

function dialogView(open, data, reload, close) {
  const { platform, form, result } = open;
  const { app, values } = form;
  const first = !platform.accounts.length;
  const fields = platform.fields.filter((f) => f.name !== "allow" && needed(f, platform.fields, values));
  async function send() {
    const answers = {};
    for (const f of fields) if (values[f.name]) answers[f.name] = f.flag ? "yes" : String(values[f.name]).trim();
    const missing = fields.find((f) => !f.optional && !f.flag && !f.default && !answers[f.name]);
    if (missing) {
      form.errors = { [missing.name]: t("This is needed.") };
      app.draw();
      document.getElementById(form.name(missing.name))?.focus();
      return;
    }
    const body = { answers, name: values.account.trim(), allow: values.people.split(/[\s,]+/).filter(Boolean) };
    Object.assign(open, { lines: [], question: null, stop: new AbortController() });
    const failed = await form.run(t("Connect"), async () => {
      let wrong = "";
      await connect(platform.platform, body, (line) => {
        if (line.show !== undefined) open.lines = [...open.lines, line.show];
        if (line.ask !== undefined) open.question = { text: line.ask, dialog: line.dialog, form: new Form(app, { answer: "" }) };
        if (line.result) open.result = { steps: [], allow: [], note: "", ...line.result };
        if (line.error) wrong = line.error;
        app.draw();
      }, open.stop.signal);
      return wrong || (open.result ? "" : t("The connection broke. Try again."));
    });
    if (failed) form.problem = failed.replace(/^./, (c) => c.toUpperCase());
    open.question = null;
    app.draw();
    if (open.result) await reload();
  }
  if (result) {
    // What is for a terminal is said above and below, as it is done here.
    const steps = result.steps.filter((step) => !/keryx (?:serve|pairing)/.test(step));
    return h("section", { class: "form-box", key: "result", "aria-label": platform.title }, h("h2", {}, platform.title), h("p", { role: "status" }, result.summary),
      h("p", { class: "help" }, t("Written to {path}. It is connected after a restart.", { path: result.settings })),
      steps.length > 0 && [h("h3", {}, t("Next")), h("ol", { class: "next-steps" }, steps.map((step) => h("li", {}, codeView(step))))],
      !result.allow.length && h("p", {}, t("Whoever writes to it first gets a code. Enter the code on this page to let them in.")),
      result.note && h("p", { class: "help" }, codeView(result.note)),
      h("div", { class: "ends" }, h("button", { type: "button", class: "button", onclick: close }, t("Close"))));
  }
  return box(form, t("Connect {title}", { title: platform.title }), send,
    introView(platform.intro),
    fields.map((f) => f.flag
      ? form.check(f.name, f.label, codeView(f.help))
      : form.field(f.name, f.label, { help: codeView([f.help, f.example && !f.choices.length ? t("Such as {example}.", { example: f.example }) : ""].filter(Boolean).join(" ")), type: f.secret ? "password" : "text", optional: f.optional, options: f.choices.length ? f.choices.map((c) => [c, c]) : null })),
    platform.allow_example && form.field("people", t("Who may talk"), { optional: true, help: t("Their ids, such as {example}, with commas. Everybody else gets a code that you can let in here.", { example: platform.allow_example }) }),
    !first && form.field("account", t("Name of this account"), { help: t("It tells the accounts of one platform apart, such as work. Without a name it replaces the main account.") }),
    open.lines.map((text, n) => h("pre", { class: QR_CODE.test(text) ? "qr-code" : "shown", key: `line-${n}` }, text.trim())),
    open.question && questionView(open, open.question),
    form.ends([t("Cancel"), close], !open.question && [t("Connect"), send, true]));
}

// The steps of an introduction are a list, so that long ones hang below their beginning.
function introView(text) {
  const steps = /^\s*\d+\. /;
  const lines = text.split("\n");
  const first = lines.findIndex((line) => steps.test(line));
  if (first < 0) return h("p", { class: "intro", key: "intro" }, codeView(text));
  const last = lines.findLastIndex((line) => steps.test(line));
  const words = (some) => some.join("\n").trim();
  return h("div", { class: "intro", key: "intro" },
    words(lines.slice(0, first)) && h("p", {}, codeView(words(lines.slice(0, first)))),
    h("ol", { class: "next-steps" }, words(lines.slice(first, last + 1)).split(/\n(?=\s*\d+\. )/).map((line) => h("li", {}, codeView(line.replace(steps, ""))))),
    words(lines.slice(last + 1)) && h("p", {}, codeView(words(lines.slice(last + 1)))));
}

function questionView(open, { text, dialog, form }) {
  const answer = () => form.run(t("Answer"), async () => { await setup.answerDialog(dialog, form.values.answer); open.question = null; });
  return h("div", { class: "asked", key: "question" }, form.field("answer", text, { onkeydown: (e) => e.key === "Enter" && (e.preventDefault(), answer()) }),
    h("button", { type: "button", class: "button main", onclick: answer }, t("Answer")));
}
