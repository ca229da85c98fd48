// The review page. Data of the user becomes text nodes and nothing else; there is no innerHTML in here.

const AHEAD = 10; // items held ready
const $ = (id) => document.getElementById(id);
const noun = document.body.dataset.noun;

const cache = new Map(); // row -> item
const outbox = []; // what is not on the server's disk yet, oldest first
let state = null;
let queue = []; // rows to come, the current one first
let list = null; // rows of a filter or a search: {total, entries}, or null for the queue
let place = 0; // in that list
let current = null; // row that is shown
let shownBefore = []; // rows that were shown, for going back
let generation = null;
let filling = null;
let isDry = false; // the server has no further row for the queue

history.replaceState(null, "", "/"); // the token has done its work

// ------------------------------------------------------------------ small things

function el(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") node.className = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name in node && name !== "list") node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

function svg(tag, attributes) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

const whole = new Intl.NumberFormat("en");
const count = (n, word, plural) => `${whole.format(n)} ${n === 1 ? word : plural ?? word + "s"}`;
const digits = (x, n = 4) => (x === null ? "–" : Number(x.toPrecision(n)).toString());
const signed = (x, n = 3) => (x < 0 ? "−" : "+") + Math.abs(x).toFixed(n);

function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

async function ask(path, options = {}) {
  const response = await fetch(path, { credentials: "same-origin", ...options });
  const answer = await response.json();
  if (!response.ok) throw Object.assign(new Error(answer.error.message), { status: response.status });
  return answer;
}

const post = (path, body) =>
  ask(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body ?? {}) });

let toastTimer = 0;
function toast(words) {
  $("toast").textContent = words;
  $("toast").hidden = false;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => ($("toast").hidden = true), 5000);
}

// ------------------------------------------------------------------ saving

let sending = false;
async function send() {
  if (sending) return;
  sending = true;
  let pause = 250;
  while (outbox.length) {
    const first = outbox[0];
    try {
      const answer = await post(first.path, first.body);
      outbox.shift();
      pause = 250;
      first.done?.(answer);
    } catch (error) {
      if (error.status >= 400 && error.status < 500 && error.status !== 401 && error.status !== 408) {
        outbox.shift();
        await refused(first, error);
      } else {
        tellSaved(true);
        if (error.status === 401) toast("Not saved yet: open the page in another tab by a new link from the terminal.");
        await new Promise((wake) => setTimeout(wake, pause));
        pause = Math.min(2 * pause, 5000);
        continue;
      }
    }
    tellSaved(false);
    if (current === first.body.row && cache.has(current)) show(current); // no longer "not saved yet"
  }
  sending = false;
  soon(120);
}

async function refused(sent, error) {
  const { row } = sent.body;
  const name = cache.get(row)?.name;
  toast(name ? `Not saved, ${name}: ${error.message}` : `Not saved: ${error.message}`);
  if (row === undefined) return;
  cache.delete(row); // it shows a verdict that is none
  const entry = list?.entries.find((one) => one.row === row);
  if (entry) entry.verdict = null;
  await fresh(row).catch(() => null);
}

function tellSaved(lost) {
  const box = $("saved");
  box.className = "saved" + (lost ? " lost" : outbox.length ? " waiting" : "");
  box.textContent = lost ? `not saved: ${outbox.length}, trying again` : outbox.length ? "saving …" : "saved";
}

function put(path, body, done) {
  outbox.push({ path, body: { request: newId(), ...body }, done });
  tellSaved(false);
  send();
}

addEventListener("beforeunload", (event) => {
  if (outbox.length) event.preventDefault();
});

// ------------------------------------------------------------------ what comes next

const unsaved = () => outbox.filter((one) => one.path === "/api/judgements").map((one) => one.body.row);
const isUnsaved = (row) => outbox.some((one) => one.body.row === row);

function keep(items) {
  for (const item of items) {
    item.why ??= cache.get(item.row)?.why ?? null; // only the queue says why
    for (const { body } of outbox) // the server does not know yet
      if (body.row === item.row) item.mine = { verdict: body.verdict ?? item.mine?.verdict ?? null, note: body.note ?? item.mine?.note ?? "" };
    cache.set(item.row, item);
    if (noun === "picture") for (const kind of item.pending ? ["given"] : KINDS) picture(item, kind);
  }
  while (cache.size > 400) cache.delete(cache.keys().next().value);
}

const KINDS = ["given", "heat", "expected"];
const pictureOf = (item, kind) => `/pictures/${item.generation}/${item.row}/${kind}.png`;
const pictures = new Map(); // path -> image, loaded and decoded before it is shown
function picture(item, kind) {
  const path = pictureOf(item, kind);
  if (!pictures.has(path)) {
    const image = el("img", { src: path, alt: `${item.name}, ${CAPTIONS[kind]}` });
    image.decode().catch(() => pictures.delete(path)); // it can be asked for again
    pictures.set(path, image);
    if (pictures.size > 20 * AHEAD) pictures.delete(pictures.keys().next().value);
  }
  return pictures.get(path);
}

function refill() {
  filling ??= fill().finally(() => (filling = null));
  return filling;
}

async function fill() {
  try {
    if (list === null) {
      const missing = AHEAD - queue.length;
      if (missing <= 0) return;
      const have = [...new Set([...queue, ...unsaved()])].join(",");
      const { items } = await ask(`/api/next?n=${missing}&have=${have}`);
      if (list !== null) return;
      keep(items);
      isDry = items.length < missing;
      queue.push(...items.map((item) => item.row).filter((row) => !queue.includes(row)));
    } else {
      const wanted = list.entries.slice(place, place + AHEAD).map((entry) => entry.row);
      const missing = wanted.filter((row) => !cache.has(row));
      if (missing.length) keep((await ask(`/api/items?rows=${missing.join(",")}`)).items);
    }
  } catch (error) {
    if (error.status) toast(error.message);
  }
  pursue();
}

// Reasons take the server a while. They are asked for until those of all items held ready are there, the current one
// first: nobody looks at an item and waits for them unless judging faster than reasons are found.
let pursuing = false;
async function pursue() {
  if (pursuing) return;
  pursuing = true;
  for (let pause = 100; ; pause = Math.min(1.3 * pause, 1000)) {
    await new Promise((wake) => setTimeout(wake, pause));
    const rows = list === null ? queue : list.entries.slice(place, place + AHEAD).map((entry) => entry.row);
    const pending = [...new Set([current, ...rows])].filter((row) => cache.get(row)?.pending).slice(0, 2 * AHEAD);
    if (!pending.length) break;
    const found = await ask(`/api/items?rows=${pending.join(",")}`).catch(() => null);
    if (!found) continue;
    const ready = found.items.filter((item) => !item.pending);
    keep(ready);
    if (ready.some((item) => item.row === current)) draw(cache.get(current));
    if (ready.length) pause = 100;
  }
  pursuing = false;
}

async function fresh(row) {
  const { items } = await ask(`/api/items?rows=${row}`);
  keep(items);
  return items[0];
}

async function begin() {
  queue = [];
  place = 0;
  isDry = false;
  await refill();
  show(list === null ? queue[0] : list.entries[0]?.row);
}

function advance(step = 1) {
  if (current !== null) shownBefore.push(current);
  shownBefore = shownBefore.slice(-100);
  if (list === null) queue.shift();
  else place += step;
  show(list === null ? queue[0] : list.entries[place]?.row);
  refill().then(() => {
    if (current === null) show(list === null ? queue[0] : list.entries[place]?.row);
  });
}

function back() {
  const row = shownBefore.pop();
  if (row === undefined) return;
  if (list === null) queue.unshift(row);
  else place = Math.max(0, place - 1);
  show(row);
}

function goTo(row) {
  if (current !== null && current !== row) shownBefore.push(current);
  if (list === null) queue = [row, ...queue.filter((other) => other !== row)];
  else {
    const found = list.entries.findIndex((entry) => entry.row === row);
    if (found >= 0) place = found;
  }
  show(row);
  if (list !== null) refill();
}

// ------------------------------------------------------------------ one item

function show(row) {
  current = row ?? null;
  for (const id of ["anomaly", "normal", "skip", "note"]) $(id).disabled = current === null;
  markList();
  if (current === null) {
    delete $("item").dataset.row;
    $("item").replaceChildren(list === null && !isDry ? el("p", { class: "wait" }, "Loading …") : nothingLeft());
    return;
  }
  const item = cache.get(row);
  if (item) {
    draw(item);
    refresh(item);
  } else {
    $("item").replaceChildren(el("p", { class: "wait" }, "Loading …"));
    fresh(row).then((found) => current === row && draw(found), (error) => toast(error.message));
  }
  pursue();
}

function nothingLeft() {
  const words = list === null ? `No ${noun} is left to judge.` : list.total === 0 ? "Nothing found." : "Nothing is left here.";
  return el("div", { class: "empty" }, el("b", {}, words), "Choose another list, or refit.");
}

// An item that was held ready may not know the latest verdicts, labels near it, nor its reasons.
async function refresh(item) {
  const essence = ({ cases, pending, mine, others }) => JSON.stringify([cases, pending, mine, others]);
  const found = await fresh(item.row).catch(() => null);
  if (found && current === item.row && essence(found) !== essence(item)) draw(found);
}

function draw(item) {
  const badges = [el("span", { class: item.is_alarm ? "badge alarm" : "badge" }, item.is_alarm ? "alarm" : "no alarm")];
  if (item.why) badges.push(el("span", { class: "badge" }, item.why === "top" ? "among the highest" : "near the border"));
  if (item.known) badges.push(el("span", { class: `badge ${item.known}` }, `in the file: ${item.known}`));
  if (item.mine?.verdict)
    badges.push(el("span", { class: `badge ${item.mine.verdict}` }, `you: ${item.mine.verdict}${isUnsaved(item.row) ? ", not saved yet" : ""}`));
  for (const [name, said] of Object.entries(item.others))
    if (said.verdict) badges.push(el("span", { class: `badge ${said.verdict}` }, `${name}: ${said.verdict}`));
  const facts = [
    [digits(item.score), "score"],
    [`${whole.format(item.rank)}`, `rank of ${whole.format(state?.n_rows ?? 0)}`],
    ...(item.p_value === null ? [] : [[digits(item.p_value, 2), "p-value"]]),
  ];
  const parts = [
    el("div", { class: "head" }, el("h2", {}, item.name, item.is_titled ? el("span", { class: "place" }, `row ${item.row}`) : null), el("div", { class: "badges" }, ...badges)),
    el("div", { class: "facts" }, ...facts.map(([big, small]) => el("div", {}, el("b", {}, big), el("span", {}, small)))),
    state ? spread(item.score) : null,
    noun === "picture" ? gallery(item) : reasons(item),
    notes(item),
    cases(item),
    item.cells.length ? part("All cells", el("dl", { class: "cells" }, ...item.cells.map(cell))) : null,
  ];
  $("item").replaceChildren(...parts.filter((node) => node !== null));
  $("item").dataset.row = item.row;
}

const part = (title, ...children) => el("section", { class: "part" }, el("h3", {}, title), ...children);
const columnName = (name) => name || "(no name)";
const cell = ([name, text]) => el("div", {}, el("dt", { title: name }, columnName(name)), el("dd", {}, text === "" ? "–" : text));

function spread(score) {
  const { low, high, threshold, heights } = state.histogram;
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
    return el("tr", {}, el("td", {}, columnName(one.column)), el("td", { class: "share" }, bar),
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

const CAPTIONS = { given: "as given", heat: "where the score comes from", expected: "as the model expects it" };

function gallery(item) {
  const shown = (kind) =>
    kind === "given" || !item.pending ? picture(item, kind) : el("div", { class: "blank", role: "img", "aria-label": "Looking for reasons …" });
  return el("div", { class: "pictures" }, ...KINDS.map((kind) => el("figure", {}, shown(kind), el("figcaption", {}, CAPTIONS[kind]))));
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
    el("li", {}, el("button", { type: "button", onclick: () => goTo(near.row), title: "Look at it" },
      noun === "picture" ? el("img", { src: pictureOf({ row: near.row, generation: item.generation }, "given"), alt: "" }) : null,
      el("span", {}, near.name), el("span", { class: `mark ${near.label}` }, near.label),
      el("span", { class: "soft" }, `distance ${near.distance.toFixed(2)}`))));
  return part("Nearest known cases", el("ul", { class: "cases" }, ...lines));
}

// ------------------------------------------------------------------ verdicts

function judge(verdict) {
  if (current === null) return;
  const row = current;
  const item = cache.get(row);
  if (item) item.mine = { verdict, note: item.mine?.note ?? "" };
  if (list !== null) {
    const entry = list.entries[place];
    if (entry) entry.verdict = verdict;
  }
  put("/api/judgements", { row, verdict });
  advance();
}

function undo() {
  put("/api/undo", {}, async (answer) => {
    if (answer.row === null) return toast("There is nothing to undo.");
    await fresh(answer.row);
    goTo(answer.row);
  });
}

function writeNote() {
  if (current === null) return;
  const row = current;
  const item = cache.get(row);
  $("note-text").value = item?.mine?.note ?? "";
  $("note-dialog").showModal();
  $("note-dialog").onclose = () => {
    if ($("note-dialog").returnValue !== "save") return;
    const note = $("note-text").value.trim();
    if (item) {
      item.mine = { verdict: item.mine?.verdict ?? null, note };
      if (current === row) draw(item);
    }
    put("/api/notes", { row, note });
  };
  $("note-dialog").returnValue = "";
}

// ------------------------------------------------------------------ lists

async function look() {
  const name = $("filter").value;
  const words = $("search").value.trim();
  try {
    list = name === "next" && !words ? null : await ask(`/api/list?name=${name}&q=${encodeURIComponent(words)}`);
  } catch (error) {
    return toast(error.message);
  }
  drawList();
  shownBefore = [];
  await begin();
}

function drawList() {
  $("list").hidden = list === null;
  if (list === null) return $("list").replaceChildren();
  const lines = list.entries.map((entry) =>
    el("li", {}, el("button", { type: "button", "data-row": entry.row, onclick: () => goTo(entry.row) },
      el("span", {}, entry.name), el("span", { class: `mark ${entry.verdict ?? "soft"}` }, entry.verdict ?? digits(entry.score)))));
  const hidden = list.total - list.entries.length;
  const last = list.total === 0 ? "nothing found" : hidden > 0 ? `and ${whole.format(hidden)} more: search for them` : "";
  if (last) lines.push(el("li", { class: "more" }, last));
  $("list").replaceChildren(...lines);
  markList();
}

function markList() {
  if (list === null) return;
  for (const button of $("list").querySelectorAll("button")) {
    const here = Number(button.dataset.row) === current;
    button.setAttribute("aria-current", here);
    if (here) button.scrollIntoView({ block: "nearest" });
  }
  const entry = list.entries[place - 1];
  const button = entry && $("list").querySelector(`[data-row="${entry.row}"] .mark`);
  if (button && entry.verdict) {
    button.textContent = entry.verdict;
    button.className = `mark ${entry.verdict}`;
  }
}

// ------------------------------------------------------------------ state

let timer = 0;
const soon = (delay) => {
  clearTimeout(timer);
  timer = setTimeout(update, delay);
};

async function update() {
  clearTimeout(timer);
  try {
    state = await ask("/api/state");
    drawState();
    if (generation !== null && generation !== state.generation) {
      cache.clear();
      generation = state.generation;
      if (list !== null) await look();
      else await begin();
    }
    generation = state.generation;
  } catch (error) {
    $("progress").textContent = error.status ? error.message : "The server cannot be reached. It may have ended.";
  }
  const busy = state?.refit.status === "training" || (state?.refit.status === "ready" && !validated());
  soon(busy ? 400 : state?.estimating ? 1500 : 4000);
}

const validated = () => state.refit.validated || state.refit.reason;

function drawState() {
  let line = `${whole.format(state.n_labelled)} labelled, ${count(state.n_anomaly, "anomaly", "anomalies")}`;
  if (state.n_disagreements) line += `, ${count(state.n_disagreements, "disagreement")}`;
  if (state.gain) {
    const { auc, low, high } = state.gain;
    line += ` · expected gain of the next ten: AUC ${signed(auc)} (${signed(low)} to ${signed(high)})`;
  }
  if (state.estimating && (!state.gain || state.estimated !== null))
    line += ` · estimating ${state.gain ? "anew" : "what the next ten bring"} … ${state.estimated === null ? "" : Math.round(100 * state.estimated) + " %"}`;
  $("progress").textContent = line;
  $("recent-section").hidden = !state.recent.length;
  $("recent").replaceChildren(...state.recent.map((one) =>
    el("li", {}, el("button", { type: "button", onclick: () => fresh(one.row).then(() => goTo(one.row)) },
      el("span", {}, one.name), el("span", { class: `mark ${one.verdict}` }, one.verdict)))));
  const { status, progress } = state.refit;
  const button = $("refit-button");
  button.textContent = status === "training" ? `Refit ${Math.round(100 * progress)} %` : status === "ready" ? "Compare" : state.n_new ? `Refit · ${whole.format(state.n_new)} new` : "Refit";
  button.classList.toggle("ready", status === "ready");
  if ($("refit-dialog").open) drawRefit();
}

// ------------------------------------------------------------------ refit

let drawnRefit = "";
let compared = null;

async function drawRefit() {
  const { refit, model } = state;
  if (refit.status === "ready") compared ??= await ask("/api/comparison").catch(() => null);
  else compared = null;
  const shown = JSON.stringify([refit, state.n_labelled, state.n_new, model, compared !== null]);
  if (shown === drawnRefit) return;
  drawnRefit = shown;
  const body = $("refit-body");
  const actions = [];
  const action = (id, words, name, act) => actions.push(el("button", { id, type: "button", class: name, onclick: act }, words));
  const wish = (word) => async () => {
    for (const button of $("refit-actions").children) button.disabled = true;
    try {
      await post(word === "start" ? "/api/refit" : `/api/refit/${word}`);
      if (word === "keep") toast("The new model is in use. The one before it is kept.");
      if (word === "drop" && refit.status === "ready") toast("Rolled back: the model stays as it was.");
      if (word === "roll-back") toast("Back to the model before.");
      if (word !== "start") $("refit-dialog").close();
    } catch (error) {
      toast(error.message);
    }
    drawnRefit = "";
    await update();
  };
  $("refit-title").textContent = refit.status === "ready" ? "What the new model changes" : "Refit";
  if (refit.status === "training") {
    body.replaceChildren(el("p", {}, `Training with ${count(state.n_labelled, "label")}. You can go on judging meanwhile.`),
      el("progress", { max: 1, value: refit.progress, "aria-label": "training" }));
    action("stop", "Stop", "quiet", wish("drop"));
  } else if (refit.status === "ready" && compared) {
    body.replaceChildren(...comparison());
    action("drop", "Roll back", "quiet", wish("drop"));
    action("keep", "Keep the new model", "primary", wish("keep"));
  } else {
    const lines = [el("p", {}, state.n_new
      ? `${count(state.n_labelled, "label")} so far, ${whole.format(state.n_new)} of them new to the model ${model.name}.`
      : `The model ${model.name} knows all ${count(state.n_labelled, "label")} so far.`)];
    lines.push(el("p", { class: "soft" }, "The old model stays in use until you have seen what changes and keep the new one."));
    if (refit.status === "failed") lines.unshift(el("p", { class: "mark anomaly" }, `The last refit failed: ${refit.message}`));
    body.replaceChildren(...lines);
    if (model.can_roll_back) action("roll-back", "Roll back to the model before", "quiet", wish("roll-back"));
    action("start", "Start", "primary", wish("start"));
  }
  $("refit-actions").replaceChildren(...actions);
}

function comparison() {
  const { alarms, correlation, median_rank, rose, fell, top } = compared;
  const { n_labelled, warm, remarks } = state.refit;
  const arrow = (a, b) => `${a} → ${b}`;
  const ranked = (rank) => (rank === null ? "–" : whole.format(Math.round(rank)));
  const tile = (big, small) => el("div", { class: "tile" }, el("b", {}, big), el("span", {}, small));
  const tiles = [tile(arrow(whole.format(alarms.old), whole.format(alarms.new)), `alarms, ${whole.format(alarms.both)} in both`)];
  for (const [word, ranks] of Object.entries(median_rank))
    if (ranks.old !== null) tiles.push(tile(arrow(ranked(ranks.old), ranked(ranks.new)), `median rank of labelled ${word === "anomaly" ? "anomalies" : "normal " + noun + "s"}`));
  tiles.push(tile(correlation.toFixed(3), "rank correlation of old and new"));
  const words = `Trained with ${count(n_labelled, "label")}, ${warm ? "from the old weights" : "from the beginning"}.`;
  const lines = (rows) => el("table", {}, el("tbody", {}, ...rows.map((row) =>
    el("tr", {}, el("td", {}, row.name, " ", row.label ? el("span", { class: `mark ${row.label}` }, row.label) : null),
      el("td", { class: "number" }, arrow(ranked(row.old), ranked(row.new)))))));
  const side = (title, rows) => part(title, rows.length ? lines(rows) : el("p", { class: "soft" }, "none"));
  return [
    el("p", { class: "soft" }, words),
    el("div", { class: "tiles" }, ...tiles),
    ...remarks.map((remark) => el("p", { class: "remark" }, remark)),
    part("On labels that training has not seen", validation(state.refit)),
    el("div", { class: "pair" }, side("Rose most (rank)", rose), side("Fell most (rank)", fell)),
    el("div", { class: "pair" }, side("Old top ten", top.old), side("New top ten", top.new)),
  ];
}

function validation({ validated: found, reason, n_then, n_labelled }) {
  if (reason) return el("p", { class: "soft" }, reason);
  if (!found) return el("p", { class: "soft" }, "Cross-validating …");
  const value = (x) => (x === null ? "–" : x.toFixed(3));
  const line = (words, name) => el("tr", {}, el("td", {}, words), el("td", { class: "number" }, value(found.then[name])),
    el("td", { class: "number" }, value(found.now[name])));
  const head = el("tr", {}, el("th", { scope: "col" }, `AUC, ${found.n_folds} folds`), el("th", { class: "number", scope: "col" }, `with ${count(n_then, "label")}`),
    el("th", { class: "number", scope: "col" }, `with ${count(n_labelled, "label")}`));
  const table = el("table", {}, el("thead", {}, head), el("tbody", {}, line(`anomalies against all other ${noun}s`, "auc"), line(`anomalies against normal ${noun}s`, "auc_normal")));
  const caution = `Anomalies that were labelled because they ranked high are easy to find again: that favours ${count(n_then, "label")}.`;
  return n_then < n_labelled ? el("div", {}, table, el("p", { class: "legend" }, caution)) : table;
}

function openRefit() {
  if (!state) return;
  drawnRefit = "";
  compared = null;
  drawRefit().then(() => $("refit-dialog").open || $("refit-dialog").showModal());
}

// ------------------------------------------------------------------ wiring

for (const verdict of ["anomaly", "normal", "skip"]) $(verdict).addEventListener("click", () => judge(verdict));
$("undo").addEventListener("click", undo);
$("note").addEventListener("click", writeNote);
$("refit-button").addEventListener("click", openRefit);
$("keys-button").addEventListener("click", () => $("keys-dialog").showModal());
$("note-dialog").querySelector("form").addEventListener("submit", () => ($("note-dialog").returnValue = "save"));
$("note-save").value = "save";
$("note-text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) $("note-dialog").close("save");
});
for (const button of document.querySelectorAll(".close")) button.addEventListener("click", () => button.closest("dialog").close(""));
for (const dialog of document.querySelectorAll("dialog"))
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close(""));
document.addEventListener("click", (event) => {
  if (!event.target.closest("#menu > summary")) $("menu").open = false;
});

$("filter").addEventListener("change", look);
let searching = 0;
$("search").addEventListener("input", () => {
  clearTimeout(searching);
  searching = setTimeout(look, 200);
});

$("import-button").addEventListener("click", () => $("import-file").click());
$("import-file").addEventListener("change", async (event) => {
  const [file] = event.target.files;
  if (!file) return;
  try {
    const answer = await ask("/api/labels", { method: "POST", headers: { "content-type": "text/csv" }, body: await file.text() });
    toast(`${count(answer.n_new, "new judgement")} from ${file.name}.`);
    cache.clear();
    await begin();
  } catch (error) {
    toast(error.message);
  }
  event.target.value = "";
  soon(0);
});

$("invite-button").addEventListener("click", () => {
  $("invite-link").hidden = true;
  $("invite-name").value = "";
  $("invite-dialog").showModal();
});
$("invite-dialog").querySelector("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    const { path } = await post("/api/invitations", { name: $("invite-name").value.trim() });
    $("invite-link").textContent = location.origin + path;
    $("invite-link").hidden = false;
  } catch (error) {
    toast(error.message);
  }
});

const KEYS = {
  a: () => judge("anomaly"),
  n: () => judge("normal"),
  s: () => judge("skip"),
  u: undo,
  e: writeNote,
  j: () => advance(),
  k: back,
  r: openRefit,
  "?": () => $("keys-dialog").showModal(),
  "/": () => $("search").focus(),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const typing = event.target.closest("input, textarea, select");
  if (typing) {
    if (event.key === "Escape") typing.blur();
    return;
  }
  const act = KEYS[event.key.toLowerCase()];
  if (!act || (event.repeat && event.key !== "j" && event.key !== "k")) return;
  event.preventDefault();
  const button = { a: "anomaly", n: "normal", s: "skip", u: "undo" }[event.key.toLowerCase()];
  if (button) {
    $(button).classList.add("pressed");
    setTimeout(() => $(button).classList.remove("pressed"), 120);
  }
  act();
});

await Promise.all([update(), begin()]);
if (current !== null && cache.has(current)) draw(cache.get(current));
