// Why a score is what it is, as a table; and long text of the user, folded.

import { count, digits, el, signedBeside, whole } from "./basics.js";

const LONG = 160; // characters of a text that are seen at once
export const LONG_NAME = 60; // of the name of a column, and of a cell beside it

// A text, such as kind_of_payment, that may go on in the next line after an underscore; of a very long one the beginning,
// the rest on demand. Whatever turns letters around in it leaves the words beside it alone.
export function fold(text, n_seen = LONG) {
  if (text.length <= 1.2 * n_seen) return text.split(/(?<=_)/).flatMap((piece, index) => (index ? [el("wbr"), piece] : [piece]));
  const rest = el("span", { class: "soft" }, `${whole(text.length - n_seen)} more characters`);
  const more = el("summary", {}, el("bdi", {}, text.slice(0, n_seen)), " … ", rest);
  return [el("details", { class: "folded" }, more, text.slice(n_seen))];
}

export const columnName = (name) => fold(name || "(no name)", LONG_NAME);

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
    return line(column, bar, share, fold(observed, LONG_NAME), fold(expected, LONG_NAME));
  });
  if (n_others) rows.push(line(count(n_others, "other column"), null, others, [], [], "soft"));
  rows.push(line("baseline", null, base, [], [], "soft"));
  const scale = el("span", { class: "scale" }, el("span", {}, "0"), el("span", {}, digits(largest, 3)));
  const heads = [["Column"], [scale, "share"], ["Adds", "number"], ["Observed"], ["Expected"]];
  const head = el("tr", {}, ...heads.map(([text, name]) => el("th", { class: name ?? "", scope: "col" }, text)));
  return el("table", { class: "reasons" }, el("thead", {}, head), el("tbody", {}, ...rows));
}
