// Tools and agents: servers of tools, with a check that starts one and lists what it offers; and the agents that answer,
// of which programs can be added.

import { h, t } from "./dom.js";
import { box, button, entry, Form } from "./forms.js";
import { codeView } from "./format.js";
import { empty } from "./screen.js";
import { setup, setupScreen } from "./setup.js";

const POLICIES = [["", t("As the tool says: reading is allowed, the rest asks")], ["ask", t("Ask each time")], ["allow", t("Allow all")], ["deny", t("Allow none")]];
const PROGRAMS = [
  ["claude", "Claude Code", "npx -y @agentclientprotocol/claude-agent-acp"],
  ["codex", "Codex", "npx -y @agentclientprotocol/codex-acp"],
  ["gemini", "Gemini CLI", "gemini --acp"],
  ["goose", "goose", "goose acp"],
  ["opencode", "opencode", "opencode acp"],
];
const OTHER = "";
const PERMISSIONS = { allow: t("allowed"), ask: t("asks"), deny: t("denied") };

export function show(root, app) {
  let form = null;
  let agentForm = null;
  let checked = {};
  const close = () => {
    form = agentForm = null;
    app.draw();
  };
  return setupScreen(root, app, {
    name: "tools",
    title: t("Tools and agents"),
    lead: t("Tools come from servers that speak MCP: programs that Keryx starts, or addresses. Agents are what answers."),
    load: setup.read,
    body(data, reload) {
      const edit = (server) => {
        close();
        form = serverForm(app, server);
      };
      const editAgent = (agent) => {
        close();
        agentForm = makeAgentForm(app, agent, data.agents);
      };
      const check = async (key, ask) => {
        checked = { ...checked, [key]: { busy: true } };
        app.draw();
        let found;
        try {
          found = await ask();
        } catch (problem) {
          found = { error: problem.message };
        }
        checked = { ...checked, [key]: found };
        app.draw();
      };
      const remove = async (server) => {
        if (await app.ask({ title: t("Remove {name}?", { name: server.name }), text: t("The files with its secrets are removed too."), yes: t("Remove"), danger: true })) await app.act(async () => { await setup.removeTools(server.name, server.revision); await reload(); });
      };
      const removeAgent = async (agent) => {
        if (await app.ask({ title: t("Remove {name}?", { name: agent.name }), text: t("The files with its secrets are removed too. Conversations that have chosen it need another one then."), yes: t("Remove"), danger: true })) await app.act(async () => { await setup.removeAgent(agent.name, agent.revision); await reload(); });
      };
      return [
        h("section", { class: "block", key: "tools" }, h("h2", {}, t("Servers of tools")),
          data.tools.length
            ? h("ul", { class: "entries", "aria-label": t("Servers of tools") }, data.tools.map((server) => entry(server.name, server.name,
              [[server.command || server.url, server.profiles.length ? t("only in {profiles}", { profiles: server.profiles.join(", ") }) : ""].filter(Boolean).join(" · "), result(checked[`tools ${server.name}`])],
              [button(t("Check"), server.name, () => check(`tools ${server.name}`, () => setup.checkTools(server.name, sent(serverForm(app, server).values)))), button(t("Edit"), server.name, () => edit(server)), button(t("Remove"), server.name, () => remove(server), "danger")])))
            : !form && empty(t("No server of tools"), t("Keryx has tools of its own for searching conversations and for jobs. A server adds others: files, a calendar, a browser."), !agentForm && { label: t("Add a server"), onclick: () => edit(null) }),
          form ? editor(form, data, reload, close) : data.tools.length > 0 && !agentForm && h("p", { key: "add" }, h("button", { type: "button", class: "button main", onclick: () => edit(null) }, t("Add a server")))),
        h("section", { class: "block", key: "agents" }, h("h2", {}, t("Agents")),
          h("p", { class: "help", key: "help" }, codeView(t("Agents of your own in Python, and where each agent answers, are set in the settings file: `keryx.toml`, under `[agents]`."))),
          h("ul", { class: "entries", "aria-label": t("Agents") }, data.agents.map((agent) => entry(agent.name,
            [agent.name, agent.default && h("span", { class: "chip" }, t("Default"))],
            [[agent.command || (agent.kind !== agent.name && agent.kind), agent.profiles.length ? t("in {profiles}", { profiles: agent.profiles.join(", ") }) : ""].filter(Boolean).join(" · "), result(checked[`agent ${agent.name}`])],
            [
              !agent.default && button(t("Make default"), agent.name, () => app.act(async () => { await setup.chooseAgent(agent.name); await reload(); })),
              agent.checkable && button(t("Check"), agent.name, () => check(`agent ${agent.name}`, () => setup.checkAgent(agent.name, {}))),
              agent.editable && button(t("Edit"), agent.name, () => editAgent(agent)),
              agent.editable && button(t("Remove"), agent.name, () => removeAgent(agent), "danger"),
            ]))),
          agentForm ? agentEditor(agentForm, reload, close) : !form && h("p", { key: "add" }, h("button", { type: "button", class: "button", onclick: () => editAgent(null) }, t("Add an agent")))),
      ];
    },
  });
}

// What a check has found, or what is wrong with the end of what the program wrote.
function result(found) {
  if (!found) return null;
  if (found.busy) return h("p", { role: "status" }, t("Starting…"));
  if (found.error) return h("div", { role: "alert" }, h("p", { class: "wrong" }, found.error), found.log && h("pre", { class: "shown", tabindex: "0" }, found.log.trim().split("\n").slice(-8).join("\n")));
  if (found.tools) return h("div", { role: "status" }, h("p", {}, t("It works and offers {n}:", { n: found.tools.length })), h("ul", { class: "offered" }, found.tools.map((tool) => h("li", { key: tool.name }, h("code", {}, tool.name), ` ${PERMISSIONS[tool.permission] ?? tool.permission} · ${tool.description.split("\n")[0]}`))));
  const lists = [[t("Models"), found.models], [t("Modes"), found.modes], [t("Ways to log in"), found.logins]].filter(([, list]) => list?.length);
  return h("div", { role: "status" }, h("p", {}, t("It works: {agent}", { agent: found.agent })), lists.length > 0 && h("ul", { class: "offered" }, lists.map(([name, list]) => h("li", { key: name }, `${name}: ${list.join(", ")}`))));
}

function serverForm(app, server) {
  return new Form(app, server
    ? { ...server, kind: server.url ? "url" : "command", env: Object.entries(server.env), headers: Object.entries(server.headers), old: true }
    : { name: "", kind: "command", command: "", url: "", env: [], headers: [], cwd: "", policy: "", profiles: [], revision: "" });
}

const SECRET = () => codeView(t("Each value is kept in a file that only Keryx can read. To use a variable of the server instead, write `env:` and its name; write `text:` before what is no secret."));
const pairs = (list) => Object.fromEntries(list.filter(([name]) => name.trim()).map(([name, value]) => [name.trim(), value.trim()]));

function sent(values) {
  const program = values.kind === "command";
  return { command: program ? values.command.trim() : "", url: program ? "" : values.url.trim(), env: program ? pairs(values.env) : {}, headers: program ? {} : pairs(values.headers), cwd: program ? values.cwd.trim() : "", policy: values.policy, profiles: values.profiles, revision: values.revision ?? "" };
}

function editor(form, data, reload, close) {
  const { values } = form;
  const name = () => values.name.trim();
  const save = () => form.run(t("Save"), async () => {
    try {
      await setup.saveTools(name() || "-", sent(values));
    } catch (problem) {
      if (problem.status === 409 && values.old) {
        await reload();
        values.revision = (await setup.read()).tools.find((s) => s.name === name())?.revision ?? "";
      }
      throw problem;
    }
    close();
    await reload();
  });
  const check = async () => {
    form.found = null;
    const found = await form.run(t("Check"), () => setup.checkTools(name() || "tools", sent(values)));
    form.found = found ?? null;
    form.app.draw();
  };
  const program = values.kind === "command";
  return box(form, values.old ? t("Change {name}", { name: values.name }) : t("Add a server"), save,
    !values.old && form.field("name", t("Name"), { help: t("Short, in lower case, such as files. The names of its tools begin with it.") }),
    form.choose("kind", t("What it is"), [["command", t("A program on this machine")], ["url", t("An address")]]),
    program
      ? [form.field("command", t("Command"), { help: t("With its arguments, such as npx -y @modelcontextprotocol/server-filesystem /home/me/notes") }), form.pairs("env", t("Variables"), { help: SECRET(), left: t("Name"), right: t("Value") }), form.field("cwd", t("Folder"), { optional: true, help: t("Where the program runs.") })]
      : [form.field("url", t("Address"), { type: "url", placeholder: "https://…/mcp" }), form.pairs("headers", t("Headers"), { help: SECRET(), left: t("Name"), right: t("Value") })],
    form.field("policy", t("When the model wants to use a tool"), { options: POLICIES }),
    data.profiles.length > 1 && h("fieldset", { class: "control", key: "profiles" }, h("legend", {}, t("Profiles")), h("p", { class: "help" }, t("Without a choice it is there in all of them.")),
      data.profiles.map((p) => h("div", { class: "tick", key: p.name }, h("input", { type: "checkbox", id: form.name(`in-${p.name}`), checked: values.profiles.includes(p.name), onchange: (e) => form.set("profiles", e.target.checked ? [...values.profiles, p.name] : values.profiles.filter((n) => n !== p.name)) }), h("label", { for: form.name(`in-${p.name}`) }, p.name)))),
    result(form.found),
    form.ends([t("Cancel"), close], [t("Check"), check], [t("Save"), save, true]));
}

function makeAgentForm(app, agent, agents) {
  const program = PROGRAMS.find(([name]) => !agents.some((a) => a.name === name)) ?? [OTHER, "", ""];
  return new Form(app, agent
    ? { ...agent, env: Object.entries(agent.env), old: true }
    : { program: program[0], name: program[0], command: program[2], env: [], cwd: "", login: "", model: "", mode: "", revision: "" });
}

function agentEditor(form, reload, close) {
  const { values } = form;
  const name = () => values.name.trim();
  const body = () => ({ command: values.command.trim(), env: pairs(values.env), cwd: values.cwd.trim(), login: values.login.trim(), model: values.model.trim(), mode: values.mode.trim(), revision: values.revision });
  const save = () => form.run(t("Save"), async () => {
    try {
      await setup.saveAgent(name() || "-", body());
    } catch (problem) {
      if (problem.status === 409 && values.old) {
        await reload();
        values.revision = (await setup.read()).agents.find((a) => a.name === name())?.revision ?? "";
      }
      throw problem;
    }
    close();
    await reload();
  });
  const check = async () => {
    form.found = null;
    if (!values.command.trim()) {
      form.errors = { command: t("This is needed.") };
      return form.app.draw();
    }
    form.found = (await form.run(t("Check"), () => setup.checkAgent(name() || "agents", body()))) ?? null;
    form.app.draw();
  };
  const choose = (chosen) => {
    const [found, , command] = PROGRAMS.find(([program]) => program === chosen) ?? [OTHER, "", ""];
    Object.assign(values, { program: chosen, name: found, command });
    form.set("command", command);
  };
  return box(form, values.old ? t("Change {name}", { name: values.name }) : t("Add an agent"), save,
    !values.old && h("div", { class: "control", key: "program" }, h("label", { for: form.name("program") }, t("Program")),
      h("p", { class: "help", id: form.name("program-help") }, t("It speaks the Agent Client Protocol. Install it and log in with it first, as the user who runs Keryx.")),
      h("select", { class: "field", id: form.name("program"), "aria-describedby": form.name("program-help"), onchange: (e) => choose(e.target.value) }, [...PROGRAMS, [OTHER, t("Another one")]].map(([id, label]) => h("option", { key: id, value: id, selected: id === values.program }, label)))),
    !values.old && form.field("name", t("Name"), { help: t("What you call it in Keryx, in lower case."), autocapitalize: "none" }),
    form.field("command", t("Command"), { help: t("With its arguments.") }),
    form.pairs("env", t("Variables"), { help: SECRET(), left: t("Name"), right: t("Value") }),
    form.field("cwd", t("Folder"), { optional: true, help: t("Where it works in all conversations. Without it each conversation has its own.") }),
    h("details", { class: "more", key: "more" }, h("summary", {}, t("Login, model and mode")),
      form.field("login", t("Way to log in"), { optional: true, help: t("Which one Keryx chooses, as a check lists them. Most need none.") }),
      h("div", { class: "side-by-side", key: "choices" }, form.field("model", t("Model"), { optional: true }), form.field("mode", t("Mode"), { optional: true }))),
    result(form.found),
    form.ends([t("Cancel"), close], [t("Check"), check], [t("Save"), save, true]));
}
