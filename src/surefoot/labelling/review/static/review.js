// The review page: one queue of actions, so that keys take effect in the order in which they were pressed.
import { drawFilters, drawList, drawProgress, drawSolution, FILTERS, PAGE } from "/static/view.js";

const { at, make } = pageElements;

const KEYS = {
  ArrowDown: "down", j: "down", ArrowUp: "up", k: "up", r: "right", w: "wrong", u: "unsure", a: "accept",
  x: "clear", z: "undo", n: "next", p: "previous", "?": "help",
};
const MEANINGS = [
  ["j k ↓ ↑", "next or previous step"], ["r w u", "the step is right, wrong, or you are unsure"], ["a", "accept the labels of all steps without a verdict"],
  ["x", "remove the verdict on the step"], ["z", "undo the last change on this page"], ["n p", "next or previous solution"], ["?", "this list"],
];
const REPEATABLE = ["up", "down"]; // a key that is held down must not judge all steps
const PAUSE = 150; // milliseconds

const state = { entries: [], filter: "all", start: 0, solution: null, selected: 0, saving: new Set(), scores: new Map(), undo: [], model: null };

// --- requests -----------------------------------------------------------------------------------------------------

async function ask(path, body) {
  const options = body === undefined ? {} : { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  let reply;
  try { reply = await fetch(path, options); } catch { throw new Error("the review server does not answer. Is `surefoot label --review` still running?"); }
  let data = null;
  try { data = await reply.json(); } catch { /* reported below */ }
  if (!reply.ok || data === null) throw Object.assign(new Error(data?.error ?? `the server replied with status ${reply.status}.`), { status: reply.status });
  return data;
}

// --- the queue ----------------------------------------------------------------------------------------------------

let queue = Promise.resolve();
let generation = 0; // a failure drops what was queued before it was seen
let waiting = 0;

function enqueue(action) {
  const own = generation;
  waiting += 1;
  queue = queue.then(async () => {
    waiting -= 1;
    if (own !== generation) return;
    try { await action(); } catch (error) { fail(error); }
  });
}

function fail(error) {
  generation += 1;
  const dropped = waiting ? ` ${waiting} later ${waiting === 1 ? "action was" : "actions were"} ignored.` : "";
  const text = error.message.charAt(0).toUpperCase() + error.message.slice(1);
  at("problem").textContent = `${text}${dropped}`;
  at("problem").hidden = false;
  state.saving.clear();
  if (state.solution) draw();
  at("problem").scrollIntoView({ block: "nearest" });
}

function say(text) { at("said").textContent = text; }

// --- the list and the shown solution ------------------------------------------------------------------------------

// The current solution stays in the list, even if it no longer matches the filter.
function listed() {
  const matches = FILTERS[state.filter][1];
  return state.entries.filter((entry) => matches(entry) || entry.position === state.solution?.position);
}

function draw() {
  const shown = listed();
  drawFilters(state.entries, state.filter, (name) => enqueue(() => filter(name)));
  drawList(shown, state.start, state.solution?.position, (position) => enqueue(() => open(position)));
  at("count").textContent = state.solution ? `${shown.findIndex((entry) => entry.position === state.solution.position) + 1} of ${shown.length}` : "";
  at("solution").hidden = !state.solution;
  at("empty").hidden = Boolean(state.solution);
  if (!state.solution) return;
  const held = at("steps").contains(document.activeElement);
  drawSolution(state.solution, state.scores.get(state.solution.position), state.selected, state.saving, (step) => enqueue(() => select(step)));
  const opinion = state.solution.steps[state.selected].opinion;
  for (const button of document.querySelectorAll(".verdicts button")) button.setAttribute("aria-pressed", String(button.dataset.do === opinion));
  document.querySelector("[data-do=undo]").disabled = state.undo.length === 0;
  if (held) focusStep();
}

function focusStep() {
  const row = at("steps").children[state.selected];
  row.focus({ preventScroll: true });
  row.scrollIntoView({ block: "nearest" });
}

function select(step) {
  state.selected = Math.max(0, Math.min(state.solution.steps.length - 1, step));
  draw();
  focusStep();
}

async function open(position, step) {
  const solution = await ask(`/api/solutions/${position}`);
  at("problem").hidden = true;
  const open = solution.steps.findIndex((each) => each.opinion === null);
  show(solution);
  state.selected = step ?? Math.max(0, open);
  const place = listed().findIndex((entry) => entry.position === position);
  state.start = Math.floor(place / PAGE) * PAGE;
  draw();
  focusStep();
  if (step === undefined) scrollTo({ top: 0 });
  document.querySelector(".entry[aria-current]")?.scrollIntoView({ block: "nearest" });
  history.replaceState(null, "", `#${solution.index}.${solution.number}`);
  score(position);
}

function show(solution) {
  state.solution = solution;
  state.entries[solution.position] = solution.entry;
}

// Scores may take a while, so they are not in the queue. Solutions that are skipped fast are not scored.
async function score(position) {
  await new Promise((resolve) => setTimeout(resolve, PAUSE));
  const known = state.scores.get(position);
  if (state.model === null || state.solution?.position !== position || known?.running || known?.scores) return;
  state.scores.set(position, { running: true, text: "computing…" });
  draw();
  try {
    const found = await ask(`/api/solutions/${position}/scores`);
    state.scores.set(position, found);
    state.entries[position] = { ...state.entries[position], disagrees: found.entry.disagrees };
  } catch (error) { state.scores.set(position, { text: `none: ${error.message}` }); }
  draw();
}

async function filter(name) {
  state.filter = name;
  state.start = 0;
  const matches = state.entries.filter(FILTERS[name][1]);
  const current = state.solution?.position;
  if (matches.some((entry) => entry.position === current)) return open(current);
  state.solution = null;
  if (matches.length) await open(matches[0].position);
  else draw();
}

async function go(direction) {
  const shown = listed();
  const place = shown.findIndex((entry) => entry.position === state.solution?.position);
  const target = shown[place + direction];
  if (target) await open(target.position);
  else say(direction > 0 ? "This is the last solution of the list." : "This is the first solution of the list.");
}

// --- verdicts -----------------------------------------------------------------------------------------------------

// Shows the changes as saved only after the server has confirmed them.
async function save(changes) {
  const { position, hash } = state.solution;
  changes.forEach((change) => state.saving.add(change.step));
  draw();
  try {
    const reply = await ask(`/api/solutions/${position}`, { hash, changes });
    at("problem").hidden = true;
    show(reply.solution);
    drawProgress(reply.summary);
  } catch (error) {
    const steps = changes.map((change) => change.step + 1).join(", ");
    if (error.status === 409) show(await ask(`/api/solutions/${position}`));
    state.selected = changes[0].step;
    throw Object.assign(new Error(`Not saved (step ${steps}): ${error.message}`), { status: error.status });
  } finally { state.saving.clear(); }
}

async function judge(verdict) {
  const step = state.selected;
  const before = state.solution.steps[step].opinion;
  if (before !== verdict) {
    const { position } = state.solution;
    await save([{ step, verdict, before }]);
    state.undo.push({ position, changes: [{ step, verdict: before, before: verdict }] });
  }
  say(`Step ${step + 1}: ${verdict ?? "no verdict"}. Saved.`);
  select(verdict === null ? step : step + 1);
}

async function accept() {
  const { position, steps } = state.solution;
  const changes = steps.flatMap(({ opinion, now }, step) => (opinion === null && now.hard !== null ? [{ step, verdict: now.hard ? "right" : "wrong", before: null }] : []));
  if (!changes.length) return say("Every step with a label has a verdict.");
  await save(changes);
  state.undo.push({ position, changes: changes.map(({ step, verdict }) => ({ step, verdict: null, before: verdict })) });
  say(`${changes.length} labels accepted. Saved.`);
  select(changes.at(-1).step);
}

async function undo() {
  const last = state.undo.at(-1);
  if (!last) return say("There is nothing to undo.");
  if (state.solution?.position !== last.position) await open(last.position, last.changes[0].step);
  try { await save(last.changes); } catch (error) {
    if (error.status === 409) state.undo.pop(); // another page has replaced what would be undone
    throw error;
  }
  state.undo.pop();
  say("Undone. Saved.");
  select(last.changes[0].step);
}

const ACTIONS = {
  up: () => select(state.selected - 1), down: () => select(state.selected + 1), right: () => judge("right"), wrong: () => judge("wrong"),
  unsure: () => judge("unsure"), clear: () => judge(null), accept, undo, next: () => go(1), previous: () => go(-1),
};

// --- page ---------------------------------------------------------------------------------------------------------

function perform(name) {
  if (name === "help") return at("help").showModal();
  enqueue(() => { if (state.solution || name === "undo") return ACTIONS[name](); });
}

function press(event) {
  const name = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!name || event.ctrlKey || event.metaKey || event.altKey || at("help").open || !at("shortcuts").checked) return;
  if (event.target.closest("input, select, textarea")) return;
  event.preventDefault();
  if (!event.repeat || REPEATABLE.includes(name)) perform(name);
}

async function load() {
  const found = await ask("/api/review");
  state.entries = found.entries;
  state.model = found.model;
  document.title = `Surefoot: review of ${found.folder}`;
  drawProgress(found.summary);
}

// Another page may have changed verdicts.
async function refresh() {
  if (document.visibilityState !== "visible" || !state.solution) return;
  await load();
  show(await ask(`/api/solutions/${state.solution.position}`));
  draw();
}

async function start() {
  await load();
  const wanted = state.entries.find((entry) => `#${entry.index}.${entry.number}` === location.hash);
  await open((wanted ?? state.entries[0]).position);
}

at("browse").open = !matchMedia("(max-width: 980px)").matches;
at("help-keys").append(...MEANINGS.flatMap(([keys, text]) => [make("dt", {}, ...keys.split(" ").map((key) => make("kbd", { text: key }))), make("dd", { text })]));
document.addEventListener("keydown", press);
document.addEventListener("visibilitychange", () => enqueue(refresh));
document.querySelectorAll("[data-do]").forEach((button) => button.addEventListener("click", () => perform(button.dataset.do)));
at("keys").addEventListener("click", () => perform("help"));
at("back").addEventListener("click", () => { state.start -= PAGE; draw(); });
at("more").addEventListener("click", () => { state.start += PAGE; draw(); });
enqueue(start);
