// The interface, from the service's own OpenAPI document: what each route takes and answers, and a way to send it.
import { $, el, part } from "/pages/basics.js";
import { enter, get, headers } from "/pages/access.js";

enter(async () => {
  const document_ = await get("/openapi.json");
  const operations = Object.entries(document_.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => describe(path, method.toUpperCase(), operation)),
  );
  $("operations").replaceChildren(...operations);
});

function describe(path, method, operation) {
  const answers = Object.entries(operation.responses).map(([status, answer]) =>
    el("tr", {}, el("th", { scope: "row" }, status), el("td", {}, answer.description)),
  );
  const name = el("summary", {}, el("b", { class: "method" }, method), " ", el("code", {}, path), " ", el("span", { class: "soft" }, operation.description));
  const table = el("table", {}, el("tbody", {}, ...answers));
  return el("details", { class: "card operation", open: path === "/score" }, name, sender(path, method, operation), part("Answers", table));
}

function sender(path, method, operation) {
  const content = Object.entries(operation.requestBody?.content ?? {});
  const types = el("select", { "aria-label": "type of the body" }, ...content.map(([type]) => el("option", {}, type)));
  const text = el("textarea", { rows: 8, spellcheck: false, "aria-label": "body" });
  const file = el("input", { type: "file", multiple: true, "aria-label": "file" });
  const query = (operation.parameters ?? []).map((one) => [one.name, el("input", { value: one.schema.default ?? "", "aria-label": one.name })]);
  const out = el("pre", { class: "answer", hidden: true, tabIndex: 0 });
  const choose = () => {
    const example = content.find(([type]) => type === types.value)?.[1].example;
    text.hidden = example === undefined;
    file.hidden = !text.hidden;
    text.value = typeof example === "string" ? example : JSON.stringify(example, null, 2) ?? "";
  };
  types.addEventListener("change", choose);
  choose();
  const button = el("button", { type: "submit", class: "primary" }, "Send");
  const fields = query.map(([name, input]) => el("label", { class: "line" }, name, input));
  const parts = content.length ? [types, text, file] : [];
  const form = el("form", {}, ...fields, ...parts, el("div", { class: "line" }, button), out);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    const asked = new URLSearchParams(query.map(([name, input]) => [name, input.value])).toString();
    out.textContent = await answer(asked ? `${path}?${asked}` : path, method, content.length ? bodyOf(types.value, text, file) : {});
    out.hidden = button.disabled = false;
  });
  return form;
}

function bodyOf(type, text, file) {
  if (type !== "multipart/form-data") return { body: text.hidden ? file.files[0] : text.value, headers: { "content-type": type } };
  const form = new FormData();
  for (const one of file.files) form.append("files", one);
  return { body: form };
}

async function answer(path, method, options) {
  try {
    const response = await fetch(path, { method, ...options, headers: { ...options.headers, ...headers() } });
    const text = await response.text();
    const isJson = (response.headers.get("content-type") ?? "").includes("json");
    return `${response.status} ${response.statusText}\n\n${isJson ? JSON.stringify(JSON.parse(text), null, 2) : text}`;
  } catch (error) {
    return String(error.message);
  }
}
