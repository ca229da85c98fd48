// Refit: begin one, follow it, look at what it changes, keep its model or not.

import { $, ask, count, el, noun, part, post, toast, whole } from "./basics.js";
import { LONG_NAME, fold } from "./reasons.js";

// What can be done: id of the button -> its words, its look, the request, what is said when it is done. A refit that is
// kept or dropped is the one that was looked at, which another reviewer may have replaced.
const ACTIONS = {
  start: ["Start", "primary", () => "/api/refit", null],
  forget: ["Refit without them", "quiet", () => "/api/refit?forget=true", null],
  stop: ["Stop", "quiet", (number) => `/api/refit/drop?number=${number}`, null],
  drop: ["Discard", "quiet", (number) => `/api/refit/drop?number=${number}`, "Discarded: the model stays as it was."],
  keep: ["Keep the new model", "primary", (number) => `/api/refit/keep?number=${number}`, "The new model is in use. The one before it is kept."],
  "roll-back": ["Roll back to the model before", "quiet", () => "/api/refit/roll-back", "Back to the model before."],
};

export class RefitDialog {
  #compared = null; // old and new ranking, of the refit with its number
  #drawn = ""; // what is seen
  #drawnActions = "";
  #status;

  constructor(status) {
    this.#status = status;
  }

  open() {
    const dialog = $("refit-dialog");
    if (!this.#status.state || dialog.open) return;
    this.#compared = null;
    this.#draw();
    dialog.showModal();
    this.#focus();
    this.update();
  }

  // The main button has the focus.
  #focus() {
    if ($("refit-dialog").open) $("refit-actions").lastElementChild?.focus();
  }

  // Follow the state, where the dialog is open.
  async update() {
    if (!$("refit-dialog").open) return;
    const { refit } = this.#status.state;
    if (refit.status === "ready" && this.#compared?.number !== refit.number)
      this.#compared = await ask("/api/comparison").catch(() => null);
    this.#draw();
  }

  #draw() {
    const { refit, n_labelled, n_new, model, training } = this.#status.state;
    const shown = JSON.stringify([refit, n_labelled, n_new, model, training, this.#compared?.number]);
    if (shown === this.#drawn) return;
    this.#drawn = shown;
    $("refit-title").textContent = refit.status === "ready" ? "What the new model changes" : "Refit";
    const [body, actions] = this.#content();
    $("refit-body").replaceChildren(...body);
    this.#drawActions(actions, refit.number);
  }

  #content() {
    const { refit, n_labelled, model, training } = this.#status.state;
    if (refit.status === "training") return [drawTraining(refit, n_labelled + training.n_labelled), ["stop"]];
    if (refit.status === "ready") {
      if (this.#compared?.number !== refit.number) return [[el("p", { class: "soft" }, "Loading …")], []];
      return [drawComparison(this.#compared, refit), ["drop", "keep"]];
    }
    const start = training.lost ? "forget" : "start";
    return [drawStart(this.#status.state), model.can_roll_back ? ["roll-back", start] : [start]];
  }

  #drawActions(names, number) {
    const shown = [number, ...names].join(" ");
    if (shown === this.#drawnActions) return; // a click may be under way
    this.#drawnActions = shown;
    $("refit-actions").replaceChildren(...names.map((name) => {
      const [words, look] = ACTIONS[name];
      return el("button", { id: name, type: "button", class: look, onclick: () => this.#act(name, number) }, words);
    }));
    this.#focus();
  }

  async #act(name, number) {
    const [, , pathOf, done] = ACTIONS[name];
    for (const button of $("refit-actions").children) button.disabled = true;
    try {
      await post(pathOf(number));
      if (done) toast(done);
      if (name !== "start" && name !== "forget") $("refit-dialog").close();
    } catch (error) {
      toast(error.message);
    }
    this.#drawn = this.#drawnActions = "";
    await this.#status.update();
  }
}

function drawTraining({ progress }, n_labelled) {
  return [
    el("p", {}, `Training with ${count(n_labelled, "label")}. You can go on judging meanwhile.`),
    el("progress", { max: 1, value: progress, "aria-label": "training" }),
  ];
}

function drawStart({ refit, n_labelled, n_new, model, training }) {
  const words = n_new
    ? `${count(n_labelled, "label")} so far, ${whole(n_new)} of them new to the model ${model.name}.`
    : `The model ${model.name} knows all ${count(n_labelled, "label")} so far.`;
  const kept = `It learned before from ${count(training.n_rows, noun)} with ${count(training.n_labelled, "label")}, which the refit keeps.`;
  const asked = "A refit would forget what is missing. To keep it, start the review with --training and the file it is in, or with --labels and the judgements.";
  return [
    ...(refit.status === "failed" ? [el("p", { class: "mark anomaly" }, `The last refit failed: ${refit.message}`)] : []),
    el("p", {}, words),
    ...(training.n_rows ? [el("p", {}, kept)] : []),
    ...(training.lost ? [el("p", { class: "warning" }, el("b", {}, training.lost), " ", asked)] : []),
    el("p", { class: "soft" }, "The old model stays in use until you have seen what changes and keep the new one."),
  ];
}

// What the new model changes, as elements.
function drawComparison({ alarms, correlation, median_rank, moved, rose, fell, top }, refit) {
  const { n_labelled, n_rows, warm, remarks } = refit;
  const arrow = (a, b) => `${a} → ${b}`;
  const ranked = (rank) => (rank === null ? "–" : whole(Math.round(rank)));
  const tile = (big, small) => el("div", { class: "tile" }, el("b", {}, big), el("span", {}, small));
  const tiles = [tile(arrow(whole(alarms.old), whole(alarms.new)), `alarms, ${whole(alarms.both)} in both`)];
  for (const [word, ranks] of Object.entries(median_rank))
    if (ranks.old !== null) tiles.push(tile(arrow(ranked(ranks.old), ranked(ranks.new)), `median rank of labelled ${word === "anomaly" ? "anomalies" : "normal " + noun + "s"}`));
  for (const [word, { right, n }] of Object.entries(moved))
    if (n) tiles.push(tile(`${whole(right)} of ${whole(n)}`, word === "anomaly" ? "labelled anomalies rose or stayed" : `labelled normal ${noun}s fell or stayed`));
  tiles.push(tile(correlation.toFixed(3), "rank correlation of old and new"));
  const words = `Trained on ${count(n_rows, noun)} with ${count(n_labelled, "label")}, ${warm ? "from the old weights" : "from the beginning"}.`;
  const lines = (rows) => el("table", {}, el("tbody", {}, ...rows.map((row) =>
    el("tr", {}, el("td", {}, el("bdi", {}, ...fold(row.name, LONG_NAME)), " ", row.label ? drawLabel(row) : null),
      el("td", { class: "number" }, arrow(ranked(row.old), ranked(row.new)))))));
  const side = (title, rows) => part(title, rows.length ? lines(rows) : el("p", { class: "soft" }, "none"));
  return [
    el("p", { class: "soft" }, words),
    el("div", { class: "tiles" }, ...tiles),
    ...remarks.map((remark) => el("p", { class: "remark" }, remark)),
    part("On labels that training has not seen", drawValidation(refit)),
    el("div", { class: "pair" }, side("Rose most (rank)", rose), side("Fell most (rank)", fell)),
    el("div", { class: "pair" }, side("Old top ten", top.old), side("New top ten", top.new)),
  ];
}

// The label of a row, and whether the row goes the way its label says: anomalies up, normal ones down.
function drawLabel({ label, old, new: now }) {
  const isRight = now === old || (label === "anomaly") === now < old;
  const way = now === old ? null : el("span", { class: isRight ? "way right" : "way wrong" }, isRight ? " ✓" : " ✗");
  return el("span", { class: `mark ${label}`, title: isRight ? "as its label says" : "against its label" }, label, way);
}

function drawValidation({ validated: found, reason, n_then, n_labelled }) {
  if (reason) return el("p", { class: "soft" }, reason);
  if (!found) return el("p", { class: "soft" }, "Cross-validating …");
  const value = (x) => (x === null ? "–" : x.toFixed(3));
  const line = (words, name) => el("tr", {}, el("td", {}, words), el("td", { class: "number" }, value(found.then[name])),
    el("td", { class: "number" }, value(found.now[name])));
  const head = el("tr", {}, el("th", { scope: "col" }, `AUC, ${found.n_folds} folds`), el("th", { class: "number", scope: "col" }, `with ${count(n_then, "label")}`),
    el("th", { class: "number", scope: "col" }, `with ${count(n_labelled, "label")}`));
  const lines = [line(`anomalies against all other ${noun}s`, "auc")];
  if (found.now.auc_normal !== null) lines.push(line(`anomalies against normal ${noun}s`, "auc_normal"));
  const table = el("table", {}, el("thead", {}, head), el("tbody", {}, ...lines));
  const caution = `Anomalies that were labelled because they ranked high are easy to find again: that favours the model with ${count(n_then, "label")}.`;
  return n_then < n_labelled ? el("div", {}, table, el("p", { class: "legend" }, caution)) : table;
}
