// Models: which can be chosen, where they are, and a form that tries one before it is saved.

import { h, t } from "./dom.js";
import { box, button, entry, Form } from "./forms.js";
import { codeView, decimal } from "./format.js";
import { empty } from "./screen.js";
import { setup, setupScreen } from "./setup.js";

const OTHER = "";
const PROVIDERS = [
  ["https://api.openai.com/v1", "OpenAI", "gpt-5-mini"],
  ["https://api.anthropic.com/v1", "Anthropic", "claude-sonnet-4-5"],
  ["https://generativelanguage.googleapis.com/v1beta/openai", "Google Gemini", "gemini-2.5-flash"],
  ["https://openrouter.ai/api/v1", "OpenRouter", "openai/gpt-5-mini"],
  ["https://api.mistral.ai/v1", "Mistral", "mistral-small-latest"],
  ["https://api.deepseek.com/v1", "DeepSeek", "deepseek-chat"],
  ["https://api.groq.com/openai/v1", "Groq", "llama-3.3-70b-versatile"],
  ["http://localhost:11434/v1", t("Ollama on this machine"), "qwen3"],
  ["http://localhost:1234/v1", t("LM Studio on this machine"), "local-model"],
];
const LOCAL = "local:";

export function show(root, app) {
  let form = null;
  let tried = {};
  const close = () => {
    form = null;
    app.draw();
  };
  return setupScreen(root, app, {
    name: "models",
    title: t("Models"),
    lead: t("Any endpoint that speaks the protocol of OpenAI: a provider, or a program on your machine. Keys are kept in files that only Keryx can read, never in its database."),
    load: setup.read,
    body(data, reload) {
      const edit = (model) => {
        form = modelForm(app, model);
        app.draw();
      };
      const test = async (model) => {
        tried = { ...tried, [model.name]: t("Asking…") };
        app.draw();
        let said;
        try {
          said = answered(await setup.testModel(model.name, sent(modelForm(app, model).values)));
        } catch (problem) {
          said = problem.message;
        }
        tried = { ...tried, [model.name]: said };
        app.draw();
      };
      const remove = async (model) => {
        if (await app.ask({ title: t("Remove {name}?", { name: model.name }), text: t("The file with its key is removed too. Conversations that use it go on with the default."), yes: t("Remove"), danger: true })) await app.act(async () => { await setup.removeModel(model.name, model.revision); await reload(); });
      };
      const answering = data.agents.find((a) => a.default);
      const prefer = (model) => app.act(async () => { await setup.chooseModel(model.name); await reload(); });
      return [
        data.models.length > 0 && answering && !["llm", "local"].includes(answering.kind) && h("p", { class: "help", key: "agent" }, codeView(t("Now {agent} answers, because the settings name it. Models answer where a conversation has chosen one, and everywhere with `agent` set to `auto` in the settings file.", { agent: answering.name }))),
        data.models.length
          ? h("ul", { class: "entries", key: "models", "aria-label": t("Models") }, data.models.map((model) => entry(model.name,
            [model.name, model.default && h("span", { class: "chip" }, t("Default"))],
            [facts(model), tried[model.name] && h("p", { role: "status" }, tried[model.name])],
            [
              !model.default && button(t("Make default"), model.name, () => prefer(model)),
              model.base_url !== LOCAL && button(t("Test"), model.name, () => test(model)),
              model.editable && button(t("Edit"), model.name, () => edit(model)),
              model.editable && button(t("Remove"), model.name, () => remove(model), "danger"),
            ])))
          : !form && empty(t("No model is connected"), t("Until then the offline agent repeats what you write. Connect a model of a provider, or one on your machine."), { label: t("Add a model"), onclick: () => edit(null) }),
        form ? editor(form, data, reload, close) : data.models.length > 0 && h("p", { key: "add" }, h("button", { type: "button", class: "button main", onclick: () => edit(null) }, t("Add a model"))),
      ];
    },
  });
}

function facts(model) {
  if (model.base_url === LOCAL) return t("A small model in Keryx itself: offline, without a key, for first steps.");
  const key = model.key.startsWith("env:") ? t("key from the variable {name}", { name: model.key.slice(4) }) : model.key ? t("key in a file") : t("no key");
  const price = model.input_price !== null || model.output_price !== null ? t("{input} in, {output} out per million tokens", { input: model.input_price ?? 0, output: model.output_price ?? 0 }) : "";
  return [model.id, model.base_url, key, price, !model.editable && t("from variables")].filter(Boolean).join(" · ");
}

function modelForm(app, model) {
  const known = model && PROVIDERS.some(([url]) => url === model.base_url);
  return new Form(app, model
    ? { ...model, provider: known ? model.base_url : OTHER, where: model.key.startsWith("env:") ? "env" : model.key ? "kept" : "none", variable: model.key.startsWith("env:") ? model.key.slice(4) : "", secret: "", old: true }
    : { provider: PROVIDERS[0][0], base_url: PROVIDERS[0][0], id: "", name: "", where: "typed", secret: "", variable: "", key: "", tools: true, revision: "" });
}

const number = (text) => (text === "" || text === null || text === undefined ? null : Number(text));

// What the server is sent: the key itself, where it is, or none.
function sent(values) {
  const { where, secret, variable, key } = values;
  return {
    base_url: values.base_url.trim(), id: values.id.trim(), revision: values.revision ?? "",
    secret: where === "typed" ? secret.trim() : "",
    key: where === "env" ? `env:${variable.trim()}` : where === "kept" ? key : "",
    context: number(values.context), images: values.images ?? null, tools: Boolean(values.tools ?? true),
    input_price: number(values.input_price), output_price: number(values.output_price),
  };
}

const answered = (said) => t("It answered “{answer}” in {seconds} s, {input} tokens in and {output} out.", { answer: said.answer || "…", seconds: decimal(said.seconds, 1), input: said.input_tokens, output: said.output_tokens });

function editor(form, data, reload, close) {
  const { values } = form;
  const name = () => values.name.trim() || values.id.trim().split("/").pop();
  const example = PROVIDERS.find(([url]) => url === values.base_url)?.[2] ?? "gpt-5-mini";
  const local = /^https?:\/\/(localhost|127\.|\[::1\])/.test(values.base_url);
  const save = () => form.run(t("Save"), async () => {
    try {
      await setup.saveModel(name() || "-", sent(values));
    } catch (problem) {
      // What is there now is shown above, and what was typed stays.
      if (problem.status === 409) {
        await reload();
        await adopt();
      }
      throw problem;
    }
    close();
    await reload();
  });
  const adopt = async () => {
    const now = (await setup.read()).models.find((m) => m.name === name());
    if (values.old) values.revision = now?.revision ?? "";
  };
  const test = async () => {
    const said = await form.run(t("Test"), () => setup.testModel(name() || "new", sent(values)));
    if (said) form.note = answered(said);
    form.app.draw();
  };
  const choose = (url) => {
    form.set("provider", url);
    form.set("base_url", url);
    if (/localhost/.test(url)) form.set("where", "none");
  };
  return box(form, values.old ? t("Change {name}", { name: values.name }) : t("Add a model"), save,
    !values.old && h("div", { class: "control", key: "provider" }, h("label", { for: form.name("provider") }, t("Provider")),
      h("select", { class: "field", id: form.name("provider"), onchange: (e) => choose(e.target.value) }, [...PROVIDERS, [OTHER, t("Another one")]].map(([url, label]) => h("option", { key: url, value: url, selected: url === values.provider }, label)))),
    form.field("base_url", t("Address"), { help: t("Where its API is, without /chat/completions."), type: "url", inputmode: "url" }),
    form.field("id", t("Model"), { help: t("As the provider writes it, such as {example}.", { example }) }),
    !values.old && form.field("name", t("Name here"), { help: t("What you call it in Keryx. Without one it is that of the provider."), optional: true }),
    form.choose("where", t("Key"), [
      values.old && values.key.startsWith("file:") && ["kept", t("Keep the one in its file")],
      ["typed", t("Type it here; Keryx keeps it in a file that only it can read")],
      ["env", t("It is in a variable of the server")],
      ["none", local ? t("None; a program on this machine needs none") : t("None")],
    ].filter(Boolean)),
    values.where === "typed" && form.field("secret", t("API key"), { type: "password", autocomplete: "off" }),
    values.where === "env" && form.field("variable", t("Name of the variable"), { placeholder: "OPENAI_API_KEY" }),
    h("details", { class: "more", key: "more" }, h("summary", {}, t("Context, tools and prices")),
      form.field("context", t("Context in tokens"), { optional: true, inputmode: "numeric", help: t("Without a number it is that of a known model of this name.") }),
      form.check("tools", t("It can use tools")),
      h("div", { class: "side-by-side", key: "prices" }, form.field("input_price", t("Price of a million tokens in"), { optional: true, inputmode: "decimal" }), form.field("output_price", t("Price of a million tokens out"), { optional: true, inputmode: "decimal" }))),
    form.ends([t("Cancel"), close], [t("Test"), test], [t("Save"), save, true]));
}
