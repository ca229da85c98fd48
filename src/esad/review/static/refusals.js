// What the server will never take, said until it was seen, by the next page where this one is closed before.

import { $, el } from "./basics.js";
import { Shelf, newName } from "./shelf.js";

const shelf = new Shelf("refused");

// `what` was refused ("anomaly", "note", "labels"), `name` says of which row or file, null where that is not known.
export function refuse(what, name, message) {
  const key = Date.now().toString(16) + newName(); // in order
  shelf.set(key, [what, name, message]);
  show(key, what, name, message);
}

// Show what earlier pages have not; `seen` is called when the reviewer has seen all.
export function wireRefusals(seen) {
  for (const key of shelf.names()) {
    const said = shelf.get(key);
    if (Array.isArray(said)) show(key, ...said);
    else shelf.set(key, null);
  }
  $("refused-seen").addEventListener("click", () => {
    for (const line of $("refused-list").children) shelf.set(line.dataset.key, null);
    $("refused-list").replaceChildren();
    $("refused").hidden = true;
    seen();
  });
}

export const areRefusalsSeen = () => $("refused").hidden;

function show(key, what, name, message) {
  const where = name === null ? [] : [" of ", el("bdi", {}, name)];
  $("refused-list").append(el("li", { "data-key": key }, what, ...where, `: ${message}`));
  $("refused").hidden = false;
}
