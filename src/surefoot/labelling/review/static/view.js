// Draws the review page. All texts are inserted as text, never as markup.

const { at, make, number, formatted } = pageElements;
export const PAGE = 100; // entries of the list at a time
const MARKS = { right: "✓", wrong: "✗", unsure: "?", none: "–" };
const PROGRESS = { open: ["○", "not reviewed"], started: ["◐", "partly reviewed"], reviewed: ["●", "reviewed"] };
const SOURCES = { rollouts: "from rollouts", answer: "from the answer", implied: "a later step is right", screen: "from the screening model" };
const UNKNOWN = { cut_off: "cut off", unanswered: "without an answer", undecided: "not comparable", failed: "failed" };
const OUTCOMES = { right: "right", wrong: "wrong", cut_off: "cut off", unanswered: "no answer", undecided: "cannot be compared", failed: "failed" };

export const FILTERS = {
  all: ["All", () => true],
  open: ["Not reviewed", (entry) => entry.progress !== "reviewed"],
  disagrees: ["Disagreement", (entry) => entry.disagrees],
  unknown: ["Unknown", (entry) => entry.unknown],
};
const FILTER_TITLES = {
  all: "All solutions",
  open: "Solutions with a step without a verdict, up to the first wrong one",
  disagrees: "Labels and judge, screening model or scorer name different first errors",
  unknown: "The labels do not say where the first error is",
};

const word = (hard) => (hard === null ? "none" : hard ? "right" : "wrong");
const percent = (share) => `${Math.round(100 * share)}\u00a0%`;

export function errorText(first) {
  if (first === null) return "first error unknown";
  return first < 0 ? "no error" : `first error at step ${first + 1}`;
}
const errorKind = (first) => (first === null ? "none" : first < 0 ? "right" : "wrong");

export function drawFilters(entries, chosen, choose) {
  at("filters").replaceChildren(...Object.entries(FILTERS).map(([name, [text, matches]]) =>
    make("button", { type: "button", class: "chip", "data-filter": name, title: FILTER_TITLES[name], "aria-pressed": String(name === chosen), onclick: () => choose(name) },
      `${text} `, make("span", { class: "soft", text: entries.filter(matches).length.toLocaleString("en") }))));
}

export function drawList(entries, start, current, open) {
  at("list").start = start + 1;
  at("list").replaceChildren(...entries.slice(start, start + PAGE).map((entry) => {
    const [mark, meaning] = PROGRESS[entry.progress];
    const kind = errorKind(entry.first_error);
    return make("li", {}, make("button", { type: "button", class: "entry", "data-position": entry.position, "aria-current": entry.position === current ? "true" : null, onclick: () => open(entry.position) },
      make("span", { class: `progress-mark ${entry.progress}`, role: "img", "aria-label": meaning, title: meaning, text: mark }),
      make("span", { class: "excerpt", text: entry.question }),
      make("span", { class: `badge ${kind}`, text: kind === "wrong" ? `✗ ${entry.first_error + 1}` : kind === "right" ? "✓" : "–", title: errorText(entry.first_error) })));
  }));
  at("pager").hidden = entries.length <= PAGE;
  at("range").textContent = `${start + 1}–${Math.min(entries.length, start + PAGE)} of ${entries.length.toLocaleString("en")}`;
  at("back").disabled = start === 0;
  at("more").disabled = start + PAGE >= entries.length;
}

export function drawProgress(summary) {
  const { reviewed, solutions, confirmed, changed, added, unsure, not_applied: old } = summary;
  const parts = [`${reviewed} of ${solutions} reviewed`, `${confirmed} confirmed`, `${changed} changed`];
  if (added) parts.push(`${added} added`);
  if (unsure) parts.push(`${unsure} unsure`);
  if (old) parts.push(`${old} for other texts`);
  at("progress").textContent = parts.join(" · ");
}

export function drawSolution(solution, scores, selected, saving, select) {
  at("title").textContent = `Question ${solution.index + 1}, solution ${solution.number + 1}${solution.id === null ? "" : ` (${solution.id})`}`;
  const { labels, now } = solution.first_error;
  const said = [["labels", labels], ...(now === labels ? [] : [["corrected", now]])];
  for (const name of ["judge", "screen"]) if (solution[name]) said.push([`${name} ${solution[name].model}`, solution[name].first_error]);
  if (scores?.scores) said.push([`scorer ${scores.model}`, scores.first_error]);
  at("errors").replaceChildren(...said.map(([who, first]) =>
    make("span", { class: `verdict ${errorKind(first)}`, text: `${who}: ${errorText(first)}` })));
  at("question").replaceChildren(...formatted(solution.question));
  at("about").replaceChildren(...facts(solution).flatMap(([name, value]) => [make("dt", { text: name }), make("dd", { text: value })]));
  at("steps").replaceChildren(...solution.steps.map((step, index) => stepRow(solution, scores, step, index, index === selected, saving.has(index), select)));
}

function facts(solution) {
  const found = [["Reference answer", solution.gold]];
  const outcome = solution.outcome === null ? "" : ` (${OUTCOMES[solution.outcome]})`;
  found.push(["Answer of the solution", solution.answer === null ? `none${outcome}` : solution.answer + outcome]);
  const rate = solution.pass_rate;
  if (rate && rate.value !== null) found.push(["Pass rate", `${percent(rate.value)} (${rate.right} of ${rate.right + rate.wrong} whole answers)`]);
  return found;
}

function stepRow(solution, scores, step, index, selected, saving, select) {
  const { labels, now } = solution.first_error;
  const kind = step.opinion ?? word(step.now.hard);
  const tags = [`Step ${index + 1}`];
  if (index === now) tags.push("first error");
  else if (index === labels) tags.push("first error by the labels");
  const row = make("li", {
    class: `step is-${kind}${index === now ? " first" : ""}${selected ? " selected" : ""}`, "data-step": index,
    tabindex: selected ? "0" : "-1", "aria-current": selected ? "step" : null, onclick: () => select(index),
  });
  row.append(
    make("span", { class: "tag", text: tags.join(" · ") }),
    person(step.opinion, saving),
    make("p", { class: "text" }, ...formatted(step.text)),
    make("dl", { class: "facts" }, ...stepFacts(solution, scores, step, index).flatMap(([name, ...value]) => [make("dt", { text: name }), make("dd", {}, ...value)])));
  return row;
}

function person(opinion, saving) {
  if (saving) return make("span", { class: "person none", text: "saving…" });
  if (!opinion) return make("span", { class: "person open", text: "no verdict" });
  return make("span", { class: `person ${opinion === "unsure" ? "doubt" : opinion}`, text: `${MARKS[opinion]} ${opinion}` });
}

function stepFacts(solution, scores, step, index) {
  const kind = word(step.label.hard);
  const why = step.label.hard === null ? step.label.reason : SOURCES[step.label.source];
  const found = [["Label", make("span", { class: `label ${kind}`, text: `${MARKS[kind]} ${kind === "none" ? "unknown" : kind}` }), why ? ` ${why}` : ""]];
  if (step.rollouts) found.push(["Rollouts", ...rollouts(step)]);
  for (const [name, judge] of [["Judge", solution.judge], ["Screen", solution.screen]]) {
    if (judge) found.push([name, score(judge.scores[index], "no score")]);
  }
  if (scores) found.push(["Score", scores.scores ? score(scores.scores[index], scores.reasons[index]) : scores.text]);
  return found;
}

function score(value, reason) {
  return typeof value === "number" ? number(value) : reason;
}

// The share of right rollouts with its interval, as text and as a bar.
function rollouts(step) {
  const { right, wrong, unknown } = step.rollouts;
  const parts = [`${right} of ${right + wrong} right`];
  const drawn = [];
  if (step.interval) {
    const [low, high] = step.interval;
    parts.push(`${percent(right / (right + wrong))}, 95\u00a0% interval ${percent(low)} to ${percent(high)}`);
    const bar = make("span", { class: "interval", "aria-hidden": "true" });
    Object.entries({ "--low": low, "--high": high, "--value": right / (right + wrong) }).forEach(([name, value]) => bar.style.setProperty(name, value));
    drawn.push(bar);
  }
  if (unknown) {
    const kinds = Object.entries(UNKNOWN).filter(([name]) => step.rollouts[name]).map(([name, text]) => `${step.rollouts[name]} ${text}`);
    parts.push(`not counted: ${kinds.join(", ")}`);
  }
  if (step.adaptive) parts.push("the rollouts decided how many there are, so the share is biased");
  return [...drawn, parts.join(" · ")];
}
