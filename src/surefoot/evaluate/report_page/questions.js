// The list of questions. Texts are inserted as text; a tree is parsed and rendered when it is opened.
(() => {
  const { labels, ends, fates, questions } = JSON.parse(document.getElementById("data").textContent);
  const { make, formatted } = pageElements;
  const by = (id) => document.getElementById(id);
  const kinds = [...document.querySelectorAll("[data-kind]")];
  const VERDICTS = new Map([[true, "correct"], [false, "incorrect"], [null, "undecided"]]);

  const rows = questions.map(([id, question, gold, outcomes, samples, greedy], at) => ({
    at, id, question, gold, samples, greedy,
    outcomes: Object.fromEntries(Object.entries(outcomes).map(([label, [answer, correct, majority, finished, taken, tokens]]) =>
      [label, { answer, correct, majority, finished, taken, tokens }])),
  }));

  // --- trees ------------------------------------------------------------------------------------------------------

  const step = ([text, score, reason, spread = null]) => ({ text, score, reason, spread });
  const unpackNode = ([parent, end, fate, tokens, value, parts, scores, more = {}], id) => {
    const { steps, reasons, spreads, lookahead, ...rest } = more;
    return {
      id, parent, tokens, value, ...rest,
      end: end < 0 ? null : ends[end],
      fate: fates[fate],
      text: parts.join(""),
      steps: steps ? steps.map(step) : scores.map((score, at) => ({ text: parts[2 * at + 1], score, reason: reasons ? reasons[at] : null, ...(spreads && { spread: spreads[at] }) })),
      ...(lookahead && { lookahead: { text: lookahead[0], tokens: lookahead[1], end: lookahead[2], steps: lookahead[3].map(step) } }),
    };
  };
  const unpack = (packed) => ({
    ...packed,
    nodes: packed.nodes.map(unpackNode),
    answers: packed.answers.map(([answer, nodes, votes]) => ({ answer, nodes, votes })),
  });
  const source = (row) => by(`tree-${row.at}`).textContent;

  const runsOf = (row) => [
    ...labels.filter((label) => label in row.outcomes).map((label) => {
      const { answer, correct, tokens } = row.outcomes[label];
      const verdict = row.gold === null ? "" : ` · ${VERDICTS.get(correct)}`;
      return [`search:${label}`, `${label} · ${answer ?? "no answer"}${verdict} · ${tokens.toLocaleString("en")} tokens`];
    }),
    ...(row.samples ? [["samples", "independent samples"]] : []),
    ...(row.greedy ? [["greedy", "greedy decoding"]] : []),
  ];

  const toggle = (row, key, button, box, buttons) => {
    const open = button.getAttribute("aria-expanded") === "true";
    for (const each of buttons) each.setAttribute("aria-expanded", "false");
    box.hidden = open;
    box.replaceChildren();
    if (open) return;
    button.setAttribute("aria-expanded", "true");
    renderSearchTree(box, unpack(JSON.parse(source(row))[key]));
  };

  // --- the list ---------------------------------------------------------------------------------------------------

  const label = () => labels[Number(by("label")?.value ?? 0)];
  const KINDS = {
    "": () => true,
    wrong: (found) => found?.correct === false,
    gained: (found) => found?.correct === true && found.majority === false,
    lost: (found) => found?.correct === false && found.majority === true,
    unfinished: (found) => found !== undefined && !found.finished,
  };

  const badge = (row) => {
    const found = row.outcomes[label()];
    if (!found) return ["unscored", `${label()}: not run`];
    const took = found.taken === null ? "" : `, majority of ${found.taken} ${VERDICTS.get(found.majority)}`;
    const kind = ["gained", "lost", "wrong"].find((each) => KINDS[each](found)) ?? (found.correct ? "right" : "unscored");
    if (row.gold === null) return [kind, `${label()}: no reference answer${found.finished ? "" : ", no finished path"}`];
    return [kind, `${label()}: ${found.finished ? VERDICTS.get(found.correct) : "no finished path"}${took}`];
  };

  const article = (row) => {
    const box = make("div", { class: "tree", id: `run-${row.at}` });
    box.hidden = true;
    const [kind, text] = badge(row);
    const buttons = runsOf(row).map(([key, name]) => {
      const button = make("button", { type: "button", "aria-expanded": "false", "aria-controls": box.id, text: name });
      button.addEventListener("click", () => toggle(row, key, button, box, buttons));
      return button;
    });
    return make("article", { class: "item", "data-at": String(row.at) },
      make("header", {}, make("span", { class: `badge k-${kind}`, text }), make("span", { class: "id", text: row.id ?? `question ${row.at + 1}` })),
      make("p", { class: "problem" }, ...formatted(row.question)),
      ...(row.gold === null ? [] : [make("p", { class: "gold", text: `Reference answer: ${row.gold}` })]),
      make("div", { class: "runs", role: "group", "aria-label": "Runs" }, ...buttons), box);
  };

  // Words are found in the packed trees as well, where they are escaped as JSON is.
  const escaped = (word) => JSON.stringify(word).slice(1, -1).replaceAll("<", "\\u003c").toLowerCase();
  const matches = (row, words) => {
    if (words.length === 0) return true;
    const text = [row.id ?? "", row.question, row.gold ?? ""].join("\n").toLowerCase();
    const rest = words.filter((word) => !text.includes(word));
    if (rest.length === 0) return true;
    const tree = source(row).toLowerCase();
    return rest.every((word) => tree.includes(escaped(word)));
  };

  const find = (words, kind) => {
    const found = rows.filter((row) => matches(row, words));
    for (const button of kinds) {
      const size = found.filter((row) => KINDS[button.dataset.kind](row.outcomes[label()])).length;
      button.querySelector("b").textContent = size.toLocaleString("en");
    }
    return found.filter((row) => KINDS[kind](row.outcomes[label()]));
  };

  // The arrow keys belong to the tree.
  pagedList({ find, draw: (part) => by("items").replaceChildren(...part.map(article)), controls: ["label"], delay: 150, arrows: false });
})();
