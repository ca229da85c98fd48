// The review page: its parts are made and joined here, and keys and buttons are given their meaning.
//
//   outbox    what was said and is not saved yet        lists     rows of a filter or a search
//   items     items held ready                          verdicts  what the reviewer says
//   navigation    which row is looked at, which comes next  status    how far the review is
//   view      where one item is seen                    refit     a new model

import { $, noun } from "./basics.js";
import { Navigation } from "./navigation.js";
import { Items } from "./items.js";
import { Lists } from "./lists.js";
import { wireDialogs, wireMenu } from "./menu.js";
import { Outbox } from "./outbox.js";
import { Pictures } from "./pictures.js";
import { RefitDialog } from "./refit.js";
import { Status } from "./status.js";
import { Verdicts } from "./verdicts.js";
import { View } from "./view.js";

const SEARCH_PAUSE = 200; // milliseconds after the last letter
const PRESSED = 120; // milliseconds for which a button shows that its key was pressed

history.replaceState(null, "", "/"); // the token has done its work

const outbox = new Outbox();
const pictures = new Pictures();
const items = new Items(outbox, pictures);
const navigation = new Navigation(items, outbox, { show, learned: () => view.draw() });
const lists = new Lists(navigation, items);
const status = new Status(changed);
const view = new View(items, (item) => ({
  state: status.state,
  isUnsaved: outbox.has(item.row),
  gallery: (one) => pictures.gallery(one),
}));
const refit = new RefitDialog(status);
const verdicts = new Verdicts({ outbox, items, navigation, lists, view, saved: () => status.soon(120) });

function show(row) {
  for (const id of ["anomaly", "normal", "skip", "note"]) $(id).disabled = row === null;
  lists.mark();
  if (row !== null) view.show(row);
  else view.empty(navigation.list === null && !navigation.isDry ? null : nothingLeft());
}

function nothingLeft() {
  if (navigation.list === null) return `No ${noun} is left to judge.`;
  return navigation.list.total === 0 ? "Nothing found." : "Nothing is left here.";
}

async function changed(state) {
  refit.update();
  if (items.generation !== null && items.generation !== state.generation) await anew(state.generation);
  else if (view.seen === null) navigation.resume();
}

async function anew(generation) {
  items.clear(generation);
  await lists.look();
}

// ------------------------------------------------------------------ buttons

for (const verdict of ["anomaly", "normal", "skip"]) $(verdict).addEventListener("click", () => verdicts.judge(verdict));
$("undo").addEventListener("click", () => verdicts.undo());
$("note").addEventListener("click", () => verdicts.writeNote());
$("refit-button").addEventListener("click", () => refit.open());
document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-row]");
  if (button) navigation.goTo(Number(button.dataset.row));
});

$("note-dialog").querySelector("form").addEventListener("submit", () => ($("note-dialog").returnValue = "save"));
$("note-save").value = "save";
$("note-text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("note-dialog").close("save");
});

let searching = 0;
$("filter").addEventListener("change", () => lists.look());
$("search").addEventListener("input", () => {
  clearTimeout(searching);
  searching = setTimeout(() => lists.look(), SEARCH_PAUSE);
});

wireDialogs();
wireMenu(() => {
  anew(items.generation);
  status.soon(0);
});

addEventListener("beforeunload", (event) => {
  if (!outbox.isEmpty) event.preventDefault();
});

// ------------------------------------------------------------------ keys

const KEYS = {
  a: () => verdicts.judge("anomaly"),
  n: () => verdicts.judge("normal"),
  s: () => verdicts.judge("skip"),
  u: () => verdicts.undo(),
  e: () => verdicts.writeNote(),
  j: () => navigation.advance(),
  k: () => navigation.back(),
  r: () => refit.open(),
  "?": () => $("keys-dialog").showModal(),
  "/": () => $("search").focus(),
};
const BUTTONS = { a: "anomaly", n: "normal", s: "skip", u: "undo" };

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const typing = event.target.closest("input, textarea, select");
  if (typing) {
    if (event.key === "Escape") typing.blur();
    return;
  }
  const key = event.key.toLowerCase();
  const act = KEYS[key];
  if (!act || (event.repeat && key !== "j" && key !== "k")) return;
  event.preventDefault();
  if (key in BUTTONS) {
    const button = $(BUTTONS[key]);
    button.classList.add("pressed");
    setTimeout(() => button.classList.remove("pressed"), PRESSED);
  }
  act();
});

await Promise.all([status.update(), navigation.begin(null)]);
view.draw(); // with the place of its score among all
