// One item as elements: its scores, its reasons, its notes, its cells, and the labelled cases near it.

import { count, digits, el, noun, part, signed, svg, whole } from "./basics.js";
import { pictureOf } from "./pictures.js";

const columnName = (name) => name || "(no name)";
// A name such as kind_of_payment may go on in the next line after an underscore.
const breakable = (name) => name.split(/(?<=_)/).flatMap((piece, index) => (index ? [el("wbr"), piece] : [piece]));
const badge = (words, kind = "") => el("span", { class: `badge ${kind}`.trim() }, words);

// `state` is what the server says of the review, null while that is not known.
export function itemParts(item, { state, isUnsaved, gallery }) {
  const title = el("h2", {}, item.name, item.is_titled ? el("span", { class: "place" }, `row ${item.row}`) : null);
  const parts = [
    el("div", { class: "head" }, title, el("div", { class: "badges" }, ...badges(item, isUnsaved))),
    facts(item, state),
    state ? spread(item.score, state.histogram) : null,
    noun === "picture" ? gallery(item) : reasons(item),
    notes(item),
    cases(item),
    item.cells.length ? part("All cells", el("dl", { class: "cells" }, ...item.cells.map(cell))) : null,
  ];
  return parts.filter((node) => node !== null);
}

function badges(item, isUnsaved) {
  const found = [item.is_alarm ? badge("alarm", "alarm") : badge("no alarm")];
  if (item.why) found.push(badge(item.why === "top" ? "among the highest" : "near the border"));
  if (item.known) found.push(badge(`in the file: ${item.known}`, item.known));
  const mine = item.mine?.verdict;
  if (mine) found.push(badge(`you: ${mine}${isUnsaved ? ", not saved yet" : ""}`, mine));
  for (const [name, said] of Object.entries(item.others))
    if (said.verdict) found.push(badge(`${name}: ${said.verdict}`, said.verdict));
  return found;
}

function facts(item, state) {
  const found = [
    [digits(item.score), "score"],
    [whole(item.rank), `rank of ${whole(state?.n_rows ?? 0)}`],
    ...(item.p_value === null ? [] : [[digits(item.p_value, 2), "p-value"]]),
  ];
  return el("div", { class: "facts" }, ...found.map(([big, small]) => el("div", {}, el("b", {}, big), el("span", {}, small))));
}

function spread(score, { low, high, threshold, heights }) {
  const across = (value) => (100 * (Math.min(Math.max(value, low), high) - low)) / (high - low);
  const width = 100 / heights.length;
  const title = `Where this score lies among all; the threshold is ${digits(threshold)}`;
  const drawing = svg("svg", { class: "spread", viewBox: "0 0 100 30", preserveAspectRatio: "none", role: "img", "aria-label": title });
  heights.forEach((height, index) => {
    const over = low + ((index + 0.5) / heights.length) * (high - low) > threshold;
    const tall = Math.max(height * 26, height > 0 ? 1 : 0);
    drawing.append(svg("rect", { x: index * width + 0.15, y: 30 - tall, width: width - 0.3, height: tall, class: over ? "over" : "" }));
  });
  const here = across(score);
  drawing.append(svg("line", { x1: here, x2: here, y1: 1, y2: 30, class: "here", "vector-effect": "non-scaling-stroke" }));
  const legend = el("p", { class: "legend" }, `this score among those of all ${noun}s; alarms from ${digits(threshold)}, in `, el("span", { class: "over" }, "orange"));
  return el("div", {}, drawing, legend);
}

function reasons(item) {
  if (!item.reasons) {
    const words = item.pending ? "Looking for reasons …" : "There are no reasons for this row.";
    return el("p", { class: "wait part" }, words);
  }
  const { columns, n_others, others, base } = item.reasons;
  const largest = Math.max(...columns.map((one) => Math.abs(one.share)), 1e-12);
  const rows = columns.map((one) => {
    const bar = el("span", { class: one.share >= 0 ? "bar" : "bar against" });
    bar.style.width = `${(100 * Math.abs(one.share)) / largest}%`;
    return el("tr", {}, el("td", {}, ...breakable(columnName(one.column))), el("td", { class: "share" }, bar),
      el("td", { class: "number" }, signed(one.share, 2)), el("td", { class: "value" }, one.observed), el("td", { class: "value soft" }, one.expected));
  });
  const rest = (words, value) => el("tr", { class: "soft" }, el("td", {}, words), el("td", { class: "share" }),
    el("td", { class: "number" }, signed(value, 2)), el("td"), el("td"));
  if (n_others) rows.push(rest(count(n_others, "other column"), others));
  rows.push(rest("without any column", base));
  const heads = [["Column"], ["", "share"], ["Adds", "number"], ["Observed"], ["Expected"]];
  const head = el("tr", {}, ...heads.map(([text, name]) => el("th", { class: name ?? "", scope: "col" }, text)));
  return part("Why", el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows)));
}

function notes(item) {
  const found = [];
  if (item.mine?.note) found.push(el("p", { class: "note" }, item.mine.note));
  for (const [name, said] of Object.entries(item.others))
    if (said.note) found.push(el("p", { class: "note" }, el("span", { class: "soft" }, `${name}: `), said.note));
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
  return el("div", {}, el("dt", { title: name }, columnName(name)), el("dd", {}, text === "" ? "–" : text));
}
