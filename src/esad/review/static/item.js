// One item as elements: its scores, its reasons, its notes, its cells, and the labelled cases near it.

import { digits, el, noun, part, svg, whole } from "./basics.js";
import { pictureOf } from "./pictures.js";
import { LONG_NAME, columnName, fold, reasonsTable } from "./reasons.js";

const LONG_TITLE = 80; // characters of the name of an item
const N_REASONS = 8; // columns that the server names

const badge = (words, kind = "") => el("span", { class: `badge ${kind}`.trim() }, words);

// `state` is what the server says of the review, null while that is not known.
export function itemParts(item, { state, isUnsaved, gallery }) {
  const title = el("h2", {}, el("bdi", {}, ...fold(item.name, LONG_TITLE)), item.is_titled ? el("span", { class: "place" }, `row ${item.row}`) : null);
  const parts = [
    el("div", { class: "head" }, title, el("div", { class: "badges" }, ...badges(item, isUnsaved, state?.n_rows ?? 0))),
    el("div", { class: "score" }, facts(item, state), state ? spread(item.score, state.histogram) : null),
    notes(item),
    noun === "picture" ? gallery(item) : reasons(item),
    item.cells.length ? part("All cells", el("dl", { class: "cells" }, ...item.cells.map(cell))) : null,
    cases(item),
  ];
  return parts.filter((node) => node !== null);
}

function badges(item, isUnsaved, n_rows) {
  const found = [item.is_alarm ? badge("alarm", "alarm") : badge("no alarm")];
  const isHigh = item.rank <= Math.max(10, n_rows / 10);
  const why = isHigh ? "among the highest not yet judged" : item.why === "border" ? "near the border" : "stands for others like it";
  if (item.why && !item.mine?.verdict) found.push(badge(why));
  if (item.known) found.push(badge(`in the file: ${item.known}`, item.known));
  const mine = item.mine?.verdict;
  if (mine) found.push(badge(`you: ${mine}${importedBy(item.mine.imported_by)}${isUnsaved ? ", not saved yet" : ""}`, mine));
  for (const [name, said] of Object.entries(item.others))
    if (said.verdict) found.push(badge(`${name}: ${said.verdict}${importedBy(said.imported_by)}`, said.verdict));
  return found;
}

export const importedBy = (name) => (name ? `, imported by ${name}` : "");

function facts(item, state) {
  const found = [
    [digits(item.score), "score"],
    [whole(item.rank), `rank of ${whole(state?.n_rows ?? 0)}`],
    ...(item.p_value === null ? [] : [[digits(item.p_value, 2), "p-value"]]),
  ];
  return el("div", { class: "facts" }, ...found.map(([big, small]) => el("div", {}, el("b", {}, big), el("span", {}, small))));
}

function spread(score, { low, high, threshold, heights, origin, is_cut }) {
  const scale = origin === null ? (value) => value : (value) => Math.log(value - origin);
  const [first, last] = [scale(low), scale(high)];
  const across = (value) => (100 * (scale(Math.min(Math.max(value, low), high)) - first)) / (last - first);
  const width = 100 / heights.length;
  const title = `Where this score lies among all; the threshold is ${digits(threshold)}`;
  const drawing = svg("svg", { class: "spread", viewBox: "0 0 100 30", preserveAspectRatio: "none", role: "img", "aria-label": title });
  heights.forEach((height, index) => {
    const over = first + ((index + 0.5) / heights.length) * (last - first) > scale(threshold);
    const tall = Math.max(height * 26, height > 0 ? 1 : 0);
    drawing.append(svg("rect", { x: index * width + 0.15, y: 30 - tall, width: width - 0.3, height: tall, class: over ? "over" : "" }));
  });
  const here = across(score);
  drawing.append(svg("line", { x1: here, x2: here, y1: 1, y2: 30, class: "here", "vector-effect": "non-scaling-stroke" }));
  const axis = origin === null ? "" : `, on a logarithmic axis${origin === 0 ? "" : ` counted from ${digits(origin, 2)}`}`;
  const legend = el("p", { class: "legend" }, el("span", { class: "here" }, "this score"), ` among those of all ${noun}s${axis}; `, el("span", { class: "over" }, "alarms"));
  const mark = el("span", { class: "over" }, digits(threshold));
  mark.style.left = `clamp(6.8em, ${across(threshold)}%, 100% - 6.8em)`; // beside the numbers at the ends
  const ends = el("p", { class: "ends" }, el("span", {}, digits(low)), mark, el("span", {}, `${is_cut ? "≥ " : ""}${digits(high)}`));
  return el("div", {}, drawing, ends, legend);
}

function reasons(item) {
  if (!item.reasons) {
    const words = item.pending ? "Looking for reasons …" : "There are no reasons for this row.";
    const place = el("p", { class: "wait" }, words); // as high as the reasons will be
    place.style.setProperty("--n-lines", Math.min(item.cells.length, N_REASONS) + 2);
    return part("Why", place);
  }
  return part("Why", reasonsTable(item.reasons));
}

function notes(item) {
  const found = [];
  if (item.mine?.note) {
    const by = item.mine.note_imported_by ? `you${importedBy(item.mine.note_imported_by)}: ` : "";
    found.push(el("p", { class: "note" }, el("span", { class: "soft" }, by), item.mine.note));
  }
  for (const [name, said] of Object.entries(item.others))
    if (said.note) found.push(el("p", { class: "note" }, el("span", { class: "soft" }, `${name}${importedBy(said.note_imported_by)}: `), said.note));
  return found.length ? part("Notes", ...found) : null;
}

function cases(item) {
  if (!item.cases.length) return null;
  const lines = item.cases.map((near) =>
    el("li", {}, el("button", { type: "button", "data-row": near.row, title: "Look at it" },
      noun === "picture" ? el("img", { src: pictureOf(near.row, item.generation, "given"), alt: "" }) : null,
      el("span", {}, near.name), el("span", { class: `mark ${near.label}` }, near.label),
      el("span", { class: "soft" }, `distance ${near.distance.toFixed(2)}`))));
  return part("Nearest known cases", el("ul", { class: "cases" }, ...lines));
}

function cell([name, text]) {
  const isLong = text.length > LONG_NAME || text.includes("\n");
  return el("div", { class: isLong ? "long" : "" }, el("dt", { title: name }, ...columnName(name)), el("dd", {}, ...(text === "" ? ["–"] : fold(text))));
}
