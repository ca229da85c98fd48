// Why a score is what it is, as a table; and long text of the user, folded.

import { count, digits, el, signedBeside, whole } from "./basics.js";

const LONG = 160; // characters of a text that are seen at once
export const LONG_NAME = 60; // of the name of a column, and of a cell beside it

// The beginning of a very long text, the rest on demand.
export function folded(text, n_seen = LONG) {
  if (text.length <= 1.2 * n_seen) return [text];
  const more = el("summary", {}, `${text.slice(0, n_seen)} … `, el("span", { class: "soft" }, `${whole(text.length - n_seen)} more characters`));
  return [el("details", { class: "folded" }, more, text.slice(n_seen))];
}

// The name of a column; one such as kind_of_payment may go on in the next line after an underscore.
export function columnName(name) {
  if (name.length > 1.2 * LONG_NAME) return folded(name, LONG_NAME);
  return (name || "(no name)").split(/(?<=_)/).flatMap((piece, index) => (index ? [el("wbr"), piece] : [piece]));
}

// `columns` have the largest shares of the score, for an alarm or against it; `others` is what `n_others` others add.
export function reasonsTable({ columns, n_others, others, base }) {
  const largest = Math.max(...columns.map(({ share }) => Math.abs(share)), 1e-12);
  const adds = signedBeside(largest);
  const line = (name, bar, share, observed, expected, look = "") =>
    el("tr", { class: look }, el("td", { class: "column" }, ...columnName(name)), el("td", { class: "share" }, bar), el("td", { class: "number" }, adds(share)),
      el("td", { class: "value" }, ...observed), el("td", { class: "value soft expected" }, ...expected));
  const rows = columns.map(({ column, share, observed, expected }) => {
    const bar = el("span", { class: share >= 0 ? "bar" : "bar against" });
    bar.style.width = `${(100 * Math.abs(share)) / largest}%`;
    return line(column, bar, share, folded(observed, LONG_NAME), folded(expected, LONG_NAME));
  });
  if (n_others) rows.push(line(count(n_others, "other column"), null, others, [], [], "soft"));
  rows.push(line("baseline", null, base, [], [], "soft"));
  const scale = el("span", { class: "scale" }, el("span", {}, "0"), el("span", {}, digits(largest, 3)));
  const heads = [["Column"], [scale, "share"], ["Adds", "number"], ["Observed"], ["Expected"]];
  const head = el("tr", {}, ...heads.map(([text, name]) => el("th", { class: name ?? "", scope: "col" }, text)));
  return el("table", { class: "reasons" }, el("thead", {}, head), el("tbody", {}, ...rows));
}
