// What every part of the page needs: elements, words, requests, a line that comes and goes.
// Data of the user becomes text nodes and nothing else; there is no innerHTML in any of these files.

export const $ = (id) => document.getElementById(id);
export const noun = document.body.dataset.noun; // "row" or "picture"

export function el(tag, properties = {}, ...children) {
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

export function svg(tag, attributes) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

export const part = (title, ...children) => el("section", { class: "part" }, el("h3", {}, title), ...children);

const grouped = new Intl.NumberFormat("en");
export const whole = (n) => grouped.format(n);
export const count = (n, word, plural) => `${whole(n)} ${n === 1 ? word : plural ?? word + "s"}`;
export const digits = (x, n = 4) => (x === null ? "–" : Number(x.toPrecision(n)).toString().replaceAll("-", "−"));
// For numbers below each other: zeros at the end are digits as well.
export const evenDigits = (x, n = 4) => (Math.abs(x) >= 0.001 && Math.abs(x) < 10 ** n ? x.toPrecision(n).replaceAll("-", "−") : digits(x, n));
// For a column of shares: as many decimals as give the largest of them three digits. What is nothing beside it is "0".
export const signedBeside = (largest) => (x) => {
  const decimals = Math.max(0, 2 - Math.floor(Math.log10(largest)));
  const size = decimals > 8 ? Math.abs(x).toExponential(1) : Math.abs(x).toFixed(decimals);
  return Number(size) === 0 ? "0" : (x < 0 ? "−" : "+") + (largest >= 1000 ? whole(Number(size)) : size.replace("-", "−"));
};
export const signed = (x, n = 3) => (x < 0 ? "−" : "+") + Math.abs(x).toFixed(n);

// Whose page this is and of which data, where that matters: somebody else may have logged in since in another tab, and
// another review may have begun at this address.
const { review, reviewer } = document.body.dataset;
const identity = reviewer === undefined ? {} : { "x-reviewer": encodeURIComponent(reviewer), "x-review": review };

const PATIENCE = 60_000; // milliseconds for an answer, after which the line is taken for dead

// An answer of the server; a refusal is an error with its status, a server that cannot be reached one without.
export async function ask(path, options = {}) {
  const headers = { ...options.headers, ...identity };
  const signal = options.method ? undefined : AbortSignal.timeout(PATIENCE); // what is sent may be large
  const response = await fetch(path, { credentials: "same-origin", signal, ...options, headers });
  const answer = await response.json();
  if (!response.ok) throw Object.assign(new Error(answer.error.message), { status: response.status });
  return answer;
}

export const post = (path, body = {}) =>
  ask(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });

export const pause = (milliseconds) => new Promise((wake) => setTimeout(wake, milliseconds));

export function toast(...words) {
  const line = $("toast");
  const show = (isShown) => {
    line.hidden = !isShown;
    line.togglePopover?.(false); // shown again, it is above a dialog that was opened since
    if (isShown) line.showPopover?.();
  };
  line.replaceChildren(...words);
  show(true);
  clearTimeout(Number(line.dataset.timer));
  line.dataset.timer = setTimeout(() => show(false), 5000);
}
