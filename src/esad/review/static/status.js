// How far the review is, asked for again and again: the line at the top, what was judged last, the refit button.

import { $, ask, count, el, noun, signed, whole } from "./basics.js";

const SOON = { training: 400, estimating: 1500, idle: 4000 }; // milliseconds until the next question

export class Status {
  state = null; // the server's last word
  #asked = 0; // counts questions
  #told = 0; // the question that the last word answers
  #timer = 0;
  #drawnRecent = "";
  #changed;

  // `changed` is called with the new state.
  constructor(changed) {
    this.#changed = changed;
  }

  soon(delay) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.update(), delay);
  }

  async update() {
    clearTimeout(this.#timer);
    const asked = ++this.#asked;
    let state = null;
    try {
      state = await ask("/api/state");
    } catch (error) {
      $("progress").textContent = error.status ? error.message : "The server cannot be reached. It may have ended.";
    }
    $("progress").classList.toggle("lost", state === null);
    const isNews = state !== null && asked > this.#told;
    if (isNews) {
      this.#told = asked;
      this.state = state;
    }
    this.soon(SOON[this.#pace()]);
    if (!isNews) return;
    this.#draw();
    await this.#changed(state);
  }

  #pace() {
    const { refit, estimating } = this.state ?? { refit: {} };
    if (refit.status === "training" || (refit.status === "ready" && !refit.validated && !refit.reason)) return "training";
    return estimating ? "estimating" : "idle";
  }

  #draw() {
    const { refit, recent, n_new } = this.state;
    $("progress").textContent = progressLine(this.state);
    const { model, n_alarms_judged, n_labelled, n_rows } = this.state;
    Object.assign($("judged-bar"), model.n_alarms ? { max: model.n_alarms, value: n_alarms_judged } : { max: n_rows, value: n_labelled });
    $("recent-section").hidden = !recent.length;
    this.#drawRecent(recent);
    const button = $("refit-button");
    const idle = n_new ? `Refit · ${whole(n_new)} new` : "Refit";
    button.textContent = refit.status === "training" ? `Refit ${Math.round(100 * refit.progress)} %` : refit.status === "ready" ? "Compare" : idle;
    button.classList.toggle("ready", refit.status === "ready");
  }

  #drawRecent(recent) {
    const shown = JSON.stringify(recent);
    if (shown === this.#drawnRecent) return; // a click on it may be under way
    this.#drawnRecent = shown;
    $("recent").replaceChildren(...recent.map(({ row, name, verdict }) =>
      el("li", {}, el("button", { type: "button", "data-row": row }, el("span", {}, name), el("span", { class: `mark ${verdict}` }, verdict)))));
  }
}

function progressLine({ n_labelled, n_anomaly, n_rows, n_alarms_judged, model, n_disagreements, gain, estimating, estimated }) {
  let line = `${whole(n_labelled)} of ${count(n_rows, noun)} labelled, ${count(n_anomaly, "anomaly", "anomalies")}`;
  if (model.n_alarms) line += ` · ${whole(n_alarms_judged)} of ${count(model.n_alarms, "alarm")} judged`;
  if (n_disagreements) line += `, ${count(n_disagreements, "disagreement")}`;
  if (gain) line += ` · expected gain of the next ten: AUC ${signed(gain.auc)} (${signed(gain.low)} to ${signed(gain.high)})`;
  if (estimating && (!gain || estimated !== null))
    line += ` · estimating ${gain ? "anew" : "what the next ten bring"} … ${estimated === null ? "" : Math.round(100 * estimated) + " %"}`;
  return line;
}
