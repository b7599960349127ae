// Jobs: prompts that run by a schedule, and what became of each run.

import { dialog, menu } from "./dialogs.js";
import { h, iconButton, t } from "./dom.js";
import { box, Form } from "./forms.js";
import { cut, moment, momentView } from "./format.js";
import { empty as nothing, screen, table } from "./screen.js";
import { setup } from "./setup.js";

const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;

const NOWHERE = "";
const ELSEWHERE = "other";
const EXAMPLES = [["every 2h", t("every two hours")], ["0 9 * * mon-fri", t("weekdays at nine")], ["@daily", t("once a day")], ["30m", t("once, in half an hour")]];
const PAUSE = 300;

export function show(root, app) {
  const empty = () => new Form(app, { schedule: "", prompt: "", place: NOWHERE, to: "", zone: ZONE });
  let form = null;
  let preview = { for: "", found: null, wrong: "", timer: 0 };
  const begin = (next) => {
    form = next;
    preview = { for: "", found: null, wrong: "", timer: 0 };
    app.draw();
  };
  return screen(root, app, {
    title: t("Jobs"),
    lead: t("A job is a prompt with a schedule. Each run is a conversation of its own; its answer is sent where you say."),
    live: ["job", "turn", "delivery"],
    load: () => app.api.jobs(),
    body: ({ jobs }, reload) => [
      jobs.length
        ? table([t("Job"), t("Schedule"), t("Next"), t("Last run"), ""], jobs.map((job) => row(job, app, reload, (job) => begin(editForm(app, job)))), t("Jobs"))
        : nothing(t("Nothing is scheduled"), t("Say below what the agent is to do, and when.")),
      form || !jobs.length
        ? jobForm((form ??= Object.assign(empty(), { opened: false })), preview, reload, () => begin(null), jobs.length > 0)
        : h("p", { key: "add" }, h("button", { type: "button", class: "button main", onclick: () => begin(empty()) }, t("Add a job"))),
    ],
  });
}

// What a job is, as it can be changed.
function editForm(app, job) {
  return new Form(app, { job, prompt: job.prompt, schedule: job.written, zone: job.zone, place: job.to.length ? ELSEWHERE : NOWHERE, to: job.to.join(", ") });
}

// Asks what a schedule means while it is being typed.
function explain(form, preview) {
  const { schedule, zone } = form.values;
  const wanted = `${schedule.trim()}\n${zone.trim()}`;
  if (preview.for === wanted) return;
  preview.for = wanted;
  clearTimeout(preview.timer);
  if (!schedule.trim()) {
    Object.assign(preview, { found: null, wrong: "" });
    return;
  }
  preview.timer = setTimeout(async () => {
    let next;
    try {
      next = { found: await setup.schedule({ schedule: schedule.trim(), zone: zone.trim() }), wrong: "" };
    } catch (problem) {
      next = { found: null, wrong: problem.message };
    }
    if (preview.for !== wanted) return;
    Object.assign(preview, next);
    form.app.draw();
  }, PAUSE);
}

function jobForm(form, preview, reload, done, others) {
  const { app, values } = form;
  const { job: old } = values;
  explain(form, preview);
  const platforms = [...new Set(app.info.connections.map((c) => c.platform))];
  const send = async () => {
    if (!values.schedule.trim() || !values.prompt.trim()) {
      form.errors = values.prompt.trim() ? { schedule: t("This is needed.") } : { prompt: t("This is needed.") };
      return app.draw();
    }
    const to = values.place === ELSEWHERE ? values.to.trim() : values.place;
    const wanted = { schedule: values.schedule.trim(), prompt: values.prompt.trim(), to, zone: values.zone.trim() };
    const job = await form.run(old ? t("Save") : t("Add"), () => (old ? app.api.changeJob(old.id, wanted) : app.api.addJob(wanted)));
    if (!job) return;
    app.toast(t("{name} runs {schedule}.", { name: job.name, schedule: job.schedule }));
    await reload();
    done();
  };
  return box(form, old ? t("Change {name}", { name: cut(old.name, 60) }) : t("Add a job"), send,
    form.field("prompt", t("What the agent is to do"), { rows: 2, spellcheck: "true", placeholder: t("Sum up the news of the day in five lines") }),
    form.field("schedule", t("When"), { help: t("An interval, a time, a date, or a cron expression.") }),
    h("div", { class: "stack", key: "examples" }, EXAMPLES.map(([text, label]) => h("button", { type: "button", class: "chip", key: text, onclick: () => form.set("schedule", text) }, label))),
    preview.wrong ? h("p", { class: "wrong", key: "meaning", role: "status" }, preview.wrong) : preview.found && h("div", { class: "meaning", key: "meaning", role: "status" }, h("strong", {}, preview.found.meaning), preview.found.next.length ? h("ol", { "aria-label": t("Next runs") }, preview.found.next.map((at) => h("li", { key: at }, momentView(at)))) : null),
    h("div", { class: "side-by-side", key: "rest" },
      form.field("place", t("Where the answer goes"), { options: [[NOWHERE, t("Only into its conversation")], ...platforms.map((p) => [p, t("The home chat on {platform}", { platform: p })]), [ELSEWHERE, t("Another place")]] }),
      form.field("zone", t("Time zone"))),
    values.place === ELSEWHERE && form.field("to", t("Send to"), { help: t("A platform, or platform:chat, several with commas.") }),
    form.ends(others && [t("Cancel"), done], [old ? t("Save") : t("Add"), send, true]));
}

const STATES = { active: t("active"), paused: t("paused"), done: t("done"), queued: t("waiting"), running: t("running"), failed: t("failed"), cancelled: t("Stopped"), parked: t("given up"), skipped: t("skipped"), refused: t("refused"), started: t("running"), silent: t("nothing to send"), sent: t("arrived"), dead: t("given up"), unknown: t("in doubt"), discarded: t("discarded"), ready: t("on its way"), sending: t("on its way"), held: t("held until they write") };
const said = (state) => STATES[state] ?? state;
const outcome = (run) => [h("span", { class: `state ${run.status}` }, said(run.status)), run.delivery && ` · ${said(run.delivery)}`];

function row(job, app, reload, edit) {
  const act = (work) => app.act(async () => { await work(); await reload(); });
  const paused = job.state === "paused";
  return h("tr", { key: job.id },
    h("td", {}, h("strong", {}, cut(job.name, 60)), job.prompt !== job.name && h("div", { class: "muted small" }, cut(job.prompt, 120)), h("div", { class: "muted small" }, job.to.length ? t("to {targets}", { targets: cut(job.to.join(", "), 80) }) : t("kept in its conversations"))),
    h("td", {}, job.schedule),
    h("td", {}, job.next_at ? momentView(job.next_at) : h("span", { class: "state waiting" }, said(job.state)), job.why && h("div", { class: "muted small" }, job.why)),
    h("td", {}, job.last ? [job.last.session ? h("a", { href: `#/s/${job.last.session}` }, moment(job.last.due_at)) : moment(job.last.due_at), h("div", {}, outcome(job.last)), job.last.error && h("div", { class: "muted small" }, cut(job.last.error, 120))] : h("span", { class: "muted" }, t("none yet"))),
    h("td", {}, h("div", { class: "acts" },
      h("button", { type: "button", class: "button", "aria-label": t("Run {name} now", { name: job.name }), onclick: () => act(() => app.api.runJob(job.id)) }, t("Run now")),
      h("button", { type: "button", class: "button", "aria-label": t("Edit {name}", { name: job.name }), onclick: () => edit(job) }, t("Edit")),
      iconButton("more", t("More for {name}", { name: job.name }), (e) => menu(e.currentTarget, [
        ["list", t("Runs"), () => history(job, app)],
        ["clock", paused ? t("Resume") : t("Pause"), () => act(() => app.api.changeJob(job.id, { paused: !paused }))],
        null,
        ["trash", t("Remove"), () => remove(job, app, reload), "danger"],
      ], { title: job.name }), { "aria-haspopup": "menu" }))));
}

async function remove(job, app, reload) {
  const sure = await app.ask({ title: t("Remove {name}?", { name: job.name }), text: t("It runs no more. The conversations of its runs stay."), yes: t("Remove"), danger: true });
  if (sure) await app.act(async () => { await app.api.removeJob(job.id); await reload(); });
}

async function history(job, app) {
  const told = await app.act(() => app.api.job(job.id));
  if (!told) return;
  const line = (run) => h("li", {}, momentView(run.due_at), h("span", {}, outcome(run), run.session && [" · ", h("a", { href: `#/s/${run.session}`, onclick: () => close(null) }, t("conversation"))], run.error && ` · ${run.error}`));
  let close = null;
  await dialog((end) => {
    close = end;
    return h("div", { class: "ask" }, h("h2", {}, t("Runs of {name}", { name: job.name })), h("p", {}, job.schedule),
      told.runs.length ? h("ul", { class: "items story small" }, told.runs.map(line)) : h("p", { class: "muted" }, t("It has not run yet.")),
      h("div", { class: "ends" }, h("button", { type: "button", class: "button main", onclick: () => end(null) }, t("Close"))));
  }, { label: t("Runs of {name}", { name: job.name }) });
}
