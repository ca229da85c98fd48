// The review page: its parts are made and joined here, and keys and buttons are given their meaning.
//
//   outbox    what was said and is not saved yet        lists     rows of a filter or a search
//   items     items held ready                          verdicts  what the reviewer says
//   navigation    which row is looked at, which comes next  status    how far the review is
//   view      where one item is seen                    refit     a new model

import { $, count, noun, toast } from "./basics.js";
import { Navigation } from "./navigation.js";
import { Items } from "./items.js";
import { Lists } from "./lists.js";
import { focusItem, wireDialogs, wireMenu } from "./menu.js";
import { Outbox } from "./outbox.js";
import { Pictures } from "./pictures.js";
import { areRefusalsSeen, wireRefusals } from "./refusals.js";
import { RefitDialog } from "./refit.js";
import { Status } from "./status.js";
import { Verdicts } from "./verdicts.js";
import { View } from "./view.js";

const PRESSED = 120; // milliseconds for which a button shows that its key was pressed
const DOUBLE_CLICK = 350; // milliseconds between the two halves of one
const AFTERWARDS = 500; // milliseconds after a dialog or field in which a key may still be meant for it
const GLANCE = 150; // milliseconds: who presses a key so soon has not seen the item, and has pressed twice

history.replaceState(null, "", "/"); // the token has done its work

const outbox = new Outbox();
const pictures = new Pictures();
const items = new Items(outbox, pictures);
const navigation = new Navigation(items, outbox, { show, learned: () => view.update(), filled: () => lists.drawNext() });
const lists = new Lists(navigation, items);
const status = new Status(changed);
const view = new View(items, (item) => ({
  state: status.state,
  isUnsaved: outbox.has(item.row),
  gallery: (one) => pictures.gallery(one),
}));
const refit = new RefitDialog(status);
const verdicts = new Verdicts({ outbox, items, navigation, lists, view, recent, saved: () => status.soon(120) });

async function recent() {
  await status.update();
  return status.state?.recent ?? [];
}

function show(row) {
  for (const id of ["anomaly", "normal", "skip", "note"]) $(id).disabled = row === null;
  lists.mark();
  lists.drawNext();
  if (row !== null) view.show(row);
  else view.empty(...(navigation.list === null && !navigation.isDry ? [null] : nothingLeft()));
}

function nothingLeft() {
  if (navigation.list === null) return [`No ${noun} is left to judge.`];
  if (navigation.list.total > 0) return ["Nothing is left here."];
  if (!$("search").value.trim()) return ["Nothing found."];
  const all = $("filter").querySelector("[value=all]");
  return ["Nothing found.", all.selected ? "Try other words." : `Choose “${all.text}” to search all of them.`];
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

// The second half of a double click is no verdict of the next row, which nobody has seen yet.
let clicked = -DOUBLE_CLICK;
document.querySelector(".actions").addEventListener(
  "click",
  (event) => {
    if (event.detail > 1 && event.timeStamp - clicked < DOUBLE_CLICK) event.stopPropagation();
    clicked = event.timeStamp;
  },
  { capture: true },
);
for (const verdict of ["anomaly", "normal", "skip"])
  $(verdict).addEventListener("click", () => {
    verdicts.judge(verdict);
    focusItem(); // a space or Enter after the click is no second verdict
  });
$("undo").addEventListener("click", () => {
  verdicts.undo();
  focusItem();
});
$("note").addEventListener("click", () => verdicts.writeNote());
$("refit-button").addEventListener("click", () => refit.open());
document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-row]");
  if (!button) return;
  navigation.goTo(Number(button.dataset.row));
  focusItem();
});

$("note-dialog").querySelector("form").addEventListener("submit", () => ($("note-dialog").returnValue = "save"));
$("note-save").value = "save";
$("note-text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("note-dialog").close("save");
});

let isChosenByKey = false; // the filter: arrows go through it, and the focus stays until Enter
$("filter").addEventListener("pointerdown", () => (isChosenByKey = false));
$("filter").addEventListener("keydown", (event) => {
  isChosenByKey ||= /^(Arrow|Page|Home|End)/.test(event.key);
  if (event.key.length === 1 && event.key !== " ") event.preventDefault(); // letters are verdicts, not names of filters
  if (event.key === "Enter") focusItem();
});
$("filter").addEventListener("change", () => {
  lists.search(0);
  if (!isChosenByKey) focusItem();
});
$("search").addEventListener("input", () => lists.search());
$("search").addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return;
  lists.search(0);
  focusItem();
});

wireRefusals(focusItem);
wireDialogs();
wireMenu(() => {
  anew(items.generation);
  status.soon(0);
});

addEventListener("beforeunload", (event) => {
  if (!outbox.isEmpty || !areRefusalsSeen()) event.preventDefault();
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

// When keys were last meant for something else. A dialog was last seen open by the key or click that closes it, for its
// own event comes later than the next key.
let elsewhere = -AFTERWARDS;
for (const kind of ["keydown", "click"])
  document.addEventListener(
    kind,
    () => {
      if (document.querySelector("dialog[open]")) elsewhere = performance.now();
    },
    { capture: true },
  );

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const typing = event.target.closest("input, textarea, select");
  if (typing) {
    elsewhere = event.timeStamp;
    if (event.key === "Escape") focusItem();
    return;
  }
  const isForElsewhere = event.timeStamp - elsewhere < AFTERWARDS;
  if (isForElsewhere) elsewhere = event.timeStamp; // whoever types on has not seen that the dialog is closed
  const key = event.key.toLowerCase();
  const act = KEYS[key];
  const wasOpen = $("menu").open;
  if (act || key === "escape") $("menu").open = false;
  if (!act || (event.repeat && key !== "j" && key !== "k")) return;
  event.preventDefault();
  if (wasOpen) return;
  if (key in BUTTONS && (isForElsewhere || lists.isAwaited)) return;
  if (key in BUTTONS && key !== "u" && event.timeStamp - view.since < GLANCE) return;
  if (key in BUTTONS) {
    const button = $(BUTTONS[key]);
    button.classList.add("pressed");
    setTimeout(() => button.classList.remove("pressed"), PRESSED);
  }
  act();
});

const n_left = outbox.resume();
if (n_left) toast(`Saving ${count(n_left, "judgement")} that an earlier page could not save.`);
focusItem();
await Promise.all([status.update(), navigation.begin(null)]);
view.draw(); // with the place of its score among all
