// What the model is, and a form to try a row or a picture.
import { $, digits, el, part, whole } from "/pages/basics.js";
import { reasonsTable } from "/pages/reasons.js";
import { enter, get, send } from "/pages/access.js";

const N_REASONS = 8; // columns that are shown
const MOST_COLUMNS = 1000; // that the service gives
let model; // what GET /model says

enter(async () => {
  model = await get("/model");
  const pairs = [
    ["method", `${model.model.method}: ${model.summary}`],
    ["file", `${model.model.file}, version ${model.model.version}`],
    ["alarm", `above a score of ${digits(model.threshold, 6)}`],
    ["set by", model.threshold_rule],
    ["p-values", model.calibration ?? "none: the model is not calibrated"],
    ["learned from", labels(model.labels)],
    ["takes", model.columns ? `${whole(model.columns.length)} columns` : `pictures of ${model.shape[2]} x ${model.shape[1]} pixels`],
  ];
  const rows = pairs.filter(([, value]) => value).map(([name, value]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, value)));
  $("model").replaceChildren(el("h2", {}, "The model"), el("table", { class: "facts" }, el("tbody", {}, ...rows)));
  $("fields").replaceChildren(...(model.columns ? model.columns.map(field) : [pictureField()]));
  $("model").hidden = $("try").hidden = false;
});

const labels = ({ anomaly, normal, unlabelled }) =>
  `${whole(unlabelled)} unlabelled, ${whole(anomaly)} known anomalies, ${whole(normal)} known normal`;

function field(column, number) {
  const id = `field-${number}`;
  const value = column.typical === null ? "" : String(typeof column.typical === "number" ? Number(column.typical.toPrecision(6)) : column.typical);
  let input;
  if (column.kind === "boolean") {
    const options = ["", "true", "false"].map((word) => el("option", { value: word, selected: word === value }, word || "(missing)"));
    input = el("select", { id }, ...options);
  } else {
    const numeric = column.kind === "number";
    input = el("input", { id, value, inputMode: numeric ? "decimal" : "text", autocomplete: "off", placeholder: "(missing)" });
  }
  input.dataset.column = number;
  return el("div", { class: "field" }, el("label", { htmlFor: id, title: column.name }, el("bdi", {}, column.name), el("span", { class: "soft" }, ` ${column.kind}`)), input);
}

function pictureField() {
  const input = el("input", { id: "picture", type: "file", accept: "image/png,image/jpeg", required: true });
  return el("div", { class: "field" }, el("label", { htmlFor: "picture" }, "A PNG or JPEG file"), input);
}

function cell(kind, text) {
  if (text === "") return null;
  if (kind === "boolean") return text === "true";
  const number = Number(text);
  return kind === "number" && Number.isFinite(number) ? number : text; // what is no number, the service refuses
}

async function body() {
  if (model.columns) {
    const row = {};
    for (const input of $("fields").querySelectorAll("[data-column]")) {
      const column = model.columns[Number(input.dataset.column)];
      row[column.name] = cell(column.kind, input.value.trim());
    }
    return ["application/json", JSON.stringify({ rows: [row] })];
  }
  const [file] = $("picture").files;
  return [file.type, file];
}

$("row-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = $("row-form").querySelector("button");
  button.disabled = true;
  try {
    const request = await body();
    const scored = await send("/score", ...request);
    show(verdict(scored.rows[0], scored.threshold));
    $("result").append(await reasons(request));
  } catch (error) {
    show(el("p", { class: "problem" }, error.message)); // beside the button that was pressed
  } finally {
    button.disabled = false;
  }
});

function show(result) {
  $("result").replaceChildren(result);
  result.scrollIntoView({ block: "nearest" }); // the button may be the last thing that is seen
}

function verdict(row, threshold) {
  const words = `score ${digits(row.score)}, the threshold is ${digits(threshold)}`;
  const p = row.p_value === undefined ? "" : `; p-value ${digits(row.p_value, 2)}`;
  return el("p", { class: `verdict ${row.anomaly ? "hit" : "pass"}` }, el("b", {}, row.anomaly ? "Alarm" : "No alarm"), ` ${words}${p}`);
}

async function reasons(request) {
  let found;
  try {
    [found] = (await send(`/explain?top=${MOST_COLUMNS}`, ...request)).rows;
  } catch (error) {
    return el("p", { class: "soft" }, `No reasons: ${error.message}`); // a key may be for scores only
  }
  if (!found.columns) {
    const { x, y, share_of_pixels: share } = found.hottest;
    return el("p", {}, `Look at x ${x}, y ${y}; half as telling or more: ${digits(100 * share, 3)} % of the picture.`);
  }
  const size = ({ share }) => Math.abs(share); // what speaks against an alarm is a reason as well
  const columns = [...found.columns].sort((a, b) => size(b) - size(a)).slice(0, N_REASONS)
    .map((one) => ({ ...one, observed: cellText(one.observed, 10), expected: cellText(one.expected, 4) }));
  const base = Object.values(found.terms).reduce((sum, term) => sum + term.base, 0);
  const others = columns.reduce((rest, { share }) => rest - share, found.score - base); // they add up to the score
  const table = reasonsTable({ columns, n_others: model.columns.length - columns.length, others, base });
  return part("Why: what each column adds to the score", table);
}

const cellText = (value, n) => (value === null ? "(missing)" : typeof value === "number" ? digits(value, n) : String(value));
