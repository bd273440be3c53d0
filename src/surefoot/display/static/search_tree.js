// Shows the tree of a search: renderSearchTree(container, result), where `result` is a SearchResult.to_dict().
// Texts are inserted as text, never as markup. Children are rendered when their parent is first expanded.
// It needs elements.js.
const renderSearchTree = (() => {
  "use strict";
  const { make, number, formatted } = pageElements;
  const BUCKETS = 11;
  const SNIPPET = 160;
  const MOST_SIBLINGS = 40;
  const KINDS = {
    expanded: ["→", "continued"], finished: ["■", "finished"], pruned: ["×", "pruned"], open: ["○", "open"],
    failed: ["!", "failed"], cut_off: ["…", "cut off"], root: ["", "root"],
  };
  const ENDS = {
    step: "at the end of a step", answer: "at the end of the answer", cut_off: "cut off at the limit of tokens",
    error: "with an error",
  };
  const STOPS = {
    finished: "nothing was left to do", unfinished: "every path was cut off or failed", steps: "limit of steps",
    tokens: "limit of tokens", calls: "limit of calls", seconds: "limit of time", error: "the generator failed",
  };
  const SELECTIONS = { best: "the best path", weighted: "the highest sum of scores", majority: "the most votes" };
  const WHOLE_ANSWERS = ["best-of-n", "samples", "greedy"];
  const STEP_SETTINGS = ["branches", "max_steps", "step_end", "lookahead"];
  const BACKTRACKING_SETTINGS = ["threshold", "backtracks"];
  const SAID_ELSEWHERE = ["name", "label", "selection", "aggregation"];
  let trees = 0;

  const whole = (value) => Number(value ?? 0).toLocaleString("en");
  const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

  // As display/colour_scale.py does, with its rounding of halves to even.
  const bucket = (score, scale) => {
    let share = score;
    if (scale === "margin") share = (score + 1) / 2;
    else if (scale === "log_ratio") share = 1 / (1 + Math.exp(-Math.min(Math.max(score, -30), 30)));
    const place = Math.min(Math.max(share, 0), 1) * (BUCKETS - 1);
    const low = Math.floor(place);
    return place - low === 0.5 ? low + (low % 2) : Math.round(place);
  };
  const chip = (score, scale, missing = "no score") => isNumber(score)
    ? make("span", { class: `st-chip st-c${bucket(score, scale)}`, text: number(score) })
    : make("span", { class: "st-chip st-unscored", text: missing });

  // Node 0 is the root, and every parent comes before its children, so that there are no cycles.
  const check = (result) => {
    const wrong = (what) => new Error(`This is not the result of a search: ${what}.`);
    if (result === null || typeof result !== "object" || !Array.isArray(result.nodes)) throw wrong("it has no list of nodes");
    if (result.nodes.length === 0) throw wrong("it has no root");
    result.nodes.forEach((node, at) => {
      if (node === null || typeof node !== "object" || node.id !== at) throw wrong(`node ${at} has another id`);
      const known = at === 0 ? node.parent === null : Number.isInteger(node.parent) && node.parent >= 0 && node.parent < at;
      if (!known) throw wrong(`node ${at} has no parent before it`);
      if (typeof node.text !== "string") throw wrong(`node ${at} has no text`);
    });
    for (const each of result.answers ?? []) {
      if (!Array.isArray(each?.nodes) || !each.nodes.every((at) => at in result.nodes)) throw wrong("an answer names a node that does not exist");
    }
  };

  const kindOf = (node) => {
    if (node.fate === "failed" || node.end === "error") return "failed";
    if (node.end === "cut_off") return "cut_off";
    return node.fate in KINDS ? node.fate : "open";
  };
  // The disagreement of an ensemble: the largest of its steps, as SearchNode.spread.
  const spreadOf = (node) => (node.steps ?? []).map((step) => step.spread).filter(isNumber).reduce((most, each) => Math.max(most, each), -Infinity);
  const kindLabel = (node) => KINDS[kindOf(node)][1];
  // The start of a text as one line. A formula is never cut: it is left out if it ends later.
  const snippet = (text, most = SNIPPET) => {
    const line = String(text).trim().replace(/\s+/g, " ");
    if (line.length <= most) return line;
    let end = 0;
    for (const { source, formula } of typeof mathematics === "undefined" ? [] : mathematics.segments(line)) {
      if (formula === null && end + source.length >= most) break;
      if (formula !== null && end + source.length > most) return `${line.slice(0, end).trimEnd()}…`;
      end += source.length;
    }
    return `${line.slice(0, most).trimEnd()}…`;
  };
  // Which steps of the path a node has: most have one, whole answers have several.
  const stepsTitle = (level, count) => (count > 1 ? `Steps ${level}–${level + count - 1}` : `Step ${level}`);
  const order = (one, other) => (isNumber(other.value) ? other.value : -Infinity) - (isNumber(one.value) ? one.value : -Infinity) || one.id - other.id;

  // The best finished path with the answer that the search returned.
  const selectedPath = (result) => {
    const chosen = (result.answers ?? []).find((each) => each.answer === result.answer);
    if (result.answer === null || result.answer === undefined || !chosen) return [];
    const [end] = chosen.nodes.map((at) => result.nodes[at]).filter(Boolean).sort(order);
    const path = [];
    for (let node = end; node && node.parent !== null; node = result.nodes[node.parent]) path.unshift(node.id);
    return path;
  };

  // The settings that the strategy used, without those that say nothing: null, or no limit.
  const settings = (result) => {
    const { name = "", sampling, budget, ...rest } = result.strategy ?? {};
    const unused = [...SAID_ELSEWHERE, ...(WHOLE_ANSWERS.includes(name) ? STEP_SETTINGS : []), ...(name === "backtracking" ? [] : BACKTRACKING_SETTINGS)];
    const isSet = ([key, value]) => value !== null && value !== undefined && !unused.includes(key) && !(key === "lookahead" && value === 0);
    const { temperature, top_p, top_k, ...others } = sampling ?? {};
    const pairs = [
      ...Object.entries(rest), ["temperature", temperature], ["top_p", top_p === 1 ? null : top_p], ["top_k", top_k === 0 ? null : top_k], ...Object.entries(others),
      ...Object.entries(budget ?? {}).map(([key, value]) => [`budget of ${key}`, value]),
    ];
    const shown = (key, value) => key === "step_end" || typeof value === "object" ? JSON.stringify(value) : Number.isInteger(value) ? whole(value) : String(value);
    return pairs.filter(isSet).map(([key, value]) => `${key} ${shown(key, value)}`).join(", ");
  };

  const facts = (result) => {
    const spent = result.spent ?? {};
    const saved = spent.prm_tokens > 0 ? ` (${(spent.prm_tokens_rescored / spent.prm_tokens).toFixed(1)}× if rescored)` : "";
    const rows = [
      ["strategy", result.strategy?.name ?? "search"],
      ["ended by", STOPS[result.stop] ?? String(result.stop)],
      ["generated tokens", whole(spent.generated_tokens)],
      ["generator calls", whole(spent.generator_calls)],
      ["PRM tokens", whole(spent.prm_tokens) + saved],
      ["nodes", whole(result.nodes.length - 1)],
      ["settings", settings(result)],
    ];
    return make("dl", { class: "st-facts" }, ...rows.filter(([, text]) => text).map(([term, text]) =>
      make("div", { class: `st-fact-${term.replaceAll(" ", "-")}` }, make("dt", { text: term }), make("dd", { text }))));
  };

  const votes = (result) => {
    const answers = result.answers ?? [];
    if (answers.length === 0) return make("p", { class: "st-none", text: "No finished path states an answer." });
    const head = ["answer", "votes", "best score", "sum of scores"];
    const rows = answers.map((each) => {
      const nodes = each.nodes.map((at) => result.nodes[at]);
      const values = nodes.map((node) => node.value);
      const scored = values.filter(isNumber);
      // As SearchResult.weight does: unscored solutions are left out.
      const summable = scored.length > 0 && scored.every((value) => value >= 0);
      const sum = summable ? number(nodes.reduce((total, node) => total + (isNumber(node.value) ? node.value * (node.count ?? 1) : 0), 0)) : "–";
      const chosen = each.answer === result.answer;
      return make("tr", chosen ? { class: "st-chosen" } : {},
        make("th", { scope: "row" }, make("span", { class: "st-answer", text: each.answer }), ...(chosen ? [make("span", { class: "st-tag", text: "★ selected" })] : [])),
        make("td", { text: whole(each.votes) }), make("td", {}, chip(scored.length ? Math.max(...scored) : null, result.scale, "–")), make("td", { text: sum }));
    });
    return make("div", { class: "st-scroll", tabindex: "0", role: "group", "aria-label": "Votes per answer" }, make("table", { class: "st-votes" },
      make("caption", { text: "Votes per answer" }),
      make("thead", {}, make("tr", {}, ...head.map((text) => make("th", { scope: "col", text })))), make("tbody", {}, ...rows)));
  };

  class View {
    constructor(result) {
      this.result = result;
      this.id = `st${++trees}`;
      this.children = result.nodes.map(() => []);
      for (const node of result.nodes) if (node.parent !== null) this.children[node.parent].push(node);
      this.path = selectedPath(result);
      this.onPath = new Set(this.path);
      this.items = new Map();
      this.selected = null;
      this.tree = make("ul", { class: "st-tree", role: "tree", "aria-label": "Search tree", onkeydown: (event) => this.onKey(event), onclick: (event) => this.onClick(event) });
      this.detail = make("section", { class: "st-detail", "aria-label": "Selected node", tabindex: "0" });
      this.columns = make("div", { class: "st-columns" }, this.tree, this.detail);
      this.tree.append(...this.children[0].map((node, at, all) => this.item(node, 1, at, all)));
    }

    item(node, level, at, all) {
      const below = this.children[node.id].length > 0;
      const [symbol, word] = KINDS[kindOf(node)];
      const text = node.text.trim() ? snippet(node.text) : "(no text)";
      const tags = this.tags(node);
      const spread = isNumber(spreadOf(node)) ? number(spreadOf(node)) : null;
      const row = make("div", { class: "st-row" },
        make("span", { class: "st-unseen", text: `Step ${level}, ` }),
        make("span", { class: "st-twist", "aria-hidden": "true" }),
        make("span", { class: `st-kind st-${kindOf(node)}` }, make("b", { "aria-hidden": "true", text: symbol }), ` ${word}`),
        ...(isNumber(node.value) ? [make("span", { class: "st-unseen", text: " score " })] : []),
        chip(node.value, this.result.scale), make("span", { class: "st-text" }, ...formatted(text)),
        ...tags.map((tag) => make("span", { class: tag.startsWith("★") ? "st-tag st-star" : "st-tag", text: tag })),
        ...(spread === null ? [] : [make("span", { class: "st-unseen", text: " spread " }), make("span", { class: "st-deviation", title: "Largest spread of its steps: how much the scorers of the ensemble disagree", text: `±${spread}` })]));
      const item = make("li", {
        role: "treeitem", id: `${this.id}-${node.id}`, tabindex: "-1", "aria-selected": "false", "aria-level": String(level),
        "aria-setsize": String(all.length), "aria-posinset": String(at + 1),
        class: this.onPath.has(node.id) ? "st-path" : "",
      }, row);
      item.style.setProperty("--level", level);
      item.dataset.node = node.id;
      if (below) item.setAttribute("aria-expanded", "false");
      this.items.set(node.id, item);
      return item;
    }

    tags(node) {
      const tags = [];
      if (this.onPath.has(node.id)) tags.push(node.id === this.path.at(-1) ? "★ selected" : "★ path");
      if (node.answer !== null && node.answer !== undefined) tags.push(`answer ${snippet(node.answer)}`);
      if ((node.count ?? 1) > 1) tags.push(`${node.count} identical`);
      if (Number.isInteger(node.subtree) && node.parent === 0) tags.push(`subtree ${node.subtree}`);
      if (node.lookahead) tags.push("lookahead");
      return tags;
    }

    expand(id) {
      const item = this.items.get(id);
      if (!item.hasAttribute("aria-expanded") || item.getAttribute("aria-expanded") === "true") return;
      if (!item.lastElementChild.matches("[role=group]")) {
        const level = Number(item.getAttribute("aria-level")) + 1;
        item.append(make("ul", { role: "group" }, ...this.children[id].map((node, at, all) => this.item(node, level, at, all))));
      }
      item.setAttribute("aria-expanded", "true");
    }

    collapse(id) {
      const item = this.items.get(id);
      if (!item.hasAttribute("aria-expanded")) return;
      item.setAttribute("aria-expanded", "false");
      // A hidden item cannot keep the focus.
      if (this.selected !== id && item.contains(this.items.get(this.selected))) this.select(id, item.contains(document.activeElement));
    }

    toggle(id) {
      if (this.items.get(id).getAttribute("aria-expanded") === "true") this.collapse(id);
      else this.expand(id);
    }

    // Expands all ancestors, so that the node is rendered.
    reveal(id) {
      const above = [];
      for (let at = this.result.nodes[id].parent; at !== 0 && at !== null; at = this.result.nodes[at].parent) above.unshift(at);
      for (const at of above) this.expand(at);
    }

    select(id, focus) {
      const before = this.items.get(this.selected);
      if (before) { before.setAttribute("aria-selected", "false"); before.tabIndex = -1; }
      this.reveal(id);
      const item = this.items.get(id);
      item.setAttribute("aria-selected", "true");
      item.tabIndex = 0;
      if (this.selected !== id) { this.selected = id; this.show(this.result.nodes[id]); }
      if (!focus) return;
      // On narrow screens the detail then stays at the bottom of the screen; the margin of a row keeps it above that.
      this.columns.classList.add("st-picked");
      item.focus({ preventScroll: true });
      item.firstElementChild.scrollIntoView({ block: "nearest", behavior: "instant" });
    }

    visible() { return [...this.tree.querySelectorAll("[role=treeitem]")].filter((item) => !item.parentElement.closest('[aria-expanded="false"]')); }

    onClick(event) {
      const item = event.target.closest("[role=treeitem]");
      if (!item) return;
      const id = Number(item.dataset.node);
      if (event.target.closest(".st-twist")) this.toggle(id);
      else this.expand(id);
      this.select(id, true);
    }

    onKey(event) {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const item = event.target.closest("[role=treeitem]");
      if (!item) return;
      const id = Number(item.dataset.node);
      const go = (to) => { if (to) this.select(Number(to.dataset.node), true); };
      const near = (step) => { const all = this.visible(); go(all[all.indexOf(item) + step]); };
      const open = item.getAttribute("aria-expanded");
      const actions = {
        ArrowDown: () => near(1),
        ArrowUp: () => near(-1),
        ArrowRight: () => { if (open === "false") this.expand(id); else if (open === "true") go(this.items.get(this.children[id][0].id)); },
        ArrowLeft: () => { if (open === "true") this.collapse(id); else go(item.parentElement.closest("[role=treeitem]")); },
        Home: () => go(this.visible()[0]),
        End: () => go(this.visible().at(-1)),
        Enter: () => this.toggle(id),
        " ": () => this.toggle(id),
        "*": () => { for (const each of this.children[this.result.nodes[id].parent]) this.expand(each.id); },
      };
      if (!(event.key in actions)) return;
      event.preventDefault();
      event.stopPropagation();
      actions[event.key]();
    }

    expandAll() { for (const node of this.result.nodes) if (node.id && this.children[node.id].length) this.expand(node.id); }
    collapseAll() { for (const id of [...this.items.keys()].reverse()) this.collapse(id); }

    // --- the selected node ---------------------------------------------------------------------------------------

    show(node) {
      const [symbol, word] = KINDS[kindOf(node)];
      let level = 1;
      for (let each = this.result.nodes[node.parent]; each.parent !== null; each = this.result.nodes[each.parent]) level += Math.max(1, (each.steps ?? []).length);
      const parts = [make("h3", {}, make("span", { class: `st-kind st-${kindOf(node)}` }, make("b", { "aria-hidden": "true", text: symbol }), ` ${word}`), ` ${stepsTitle(level, (node.steps ?? []).length)}`)];
      if (node.reason) parts.push(make("p", { class: "st-why", text: `Why ${word}: ${node.reason}` }));
      parts.push(this.numbers(node), ...this.text(node), ...this.ahead(node), ...this.siblings(node), this.soFar(node));
      this.detail.replaceChildren(...parts);
      this.detail.scrollTop = 0;
    }

    numbers(node) {
      const rows = [["score of the path", chip(node.value, this.result.scale)], ["ended", ENDS[node.end] ?? "unknown"], ["tokens", whole(node.tokens)]];
      if ((node.count ?? 1) > 1) rows.push(["identical continuations", whole(node.count)]);
      if (Number.isInteger(node.subtree)) rows.push(["subtree", String(node.subtree)]);
      if (node.answer !== null && node.answer !== undefined) rows.push(["answer", node.answer]);
      return make("dl", { class: "st-facts" }, ...rows.map(([term, value]) => make("div", {}, make("dt", { text: term }), make("dd", {}, value))));
    }

    steps(steps) {
      return make("ol", { class: "st-steps" }, ...steps.map((step) => make("li", {}, chip(step.score, this.result.scale),
        make("span", { class: "st-full" }, ...formatted(step.text)), ...(step.reason ? [make("span", { class: "st-why", text: step.reason })] : []),
        ...(isNumber(step.spread) ? [make("span", { class: "st-why st-spread", text: `spread ${number(step.spread)}` })] : []))));
    }

    text(node) {
      const steps = node.steps ?? [];
      const bare = (text) => text.replace(/\s+/g, "");
      const covered = steps.length > 0 && bare(steps.map((step) => step.text).join("")) === bare(node.text);
      const exact = node.text ? make("p", { class: "st-full" }, ...formatted(node.text.trimEnd())) : make("p", { class: "st-none", text: "It has no text." });
      return [...(steps.length ? [this.steps(steps)] : []), ...(covered ? [] : [exact])];
    }

    ahead(node) {
      if (!node.lookahead) return [];
      const { text, steps = [], tokens } = node.lookahead;
      return [make("h4", { text: `Lookahead, not part of the path (${whole(tokens)} tokens)` }),
        steps.length ? this.steps(steps) : make("p", { class: "st-full" }, ...formatted(text))];
    }

    siblings(node) {
      // Subtrees do not compete: a node ranks among those of its own.
      const all = this.children[node.parent].filter((each) => (each.subtree ?? null) === (node.subtree ?? null)).sort(order);
      if (all.length < 2) return [];
      const rank = all.indexOf(node) + 1;
      const shown = all.slice(0, MOST_SIBLINGS).map((each) => {
        const label = [chip(each.value, this.result.scale), ` ${kindLabel(each)}: `, ...formatted(snippet(each.text, 80) || "(no text)")];
        return make("li", each === node ? { class: "st-here", "aria-current": "true" } : {}, each === node ? make("span", {}, ...label)
          : make("button", { type: "button", onclick: () => this.select(each.id, true) }, ...label));
      });
      if (all.length > shown.length) shown.push(make("li", { text: `and ${whole(all.length - shown.length)} more` }));
      const among = all.length < this.children[node.parent].length ? " in its subtree" : "";
      const title = `Siblings${among} by score: ` + (isNumber(node.value) ? `this is ${rank} of ${all.length}` : `${all.length}, this one is unscored`);
      return [make("h4", { text: title }), make("ol", { class: "st-siblings" }, ...shown)];
    }

    soFar(node) {
      const box = make("details", {}, make("summary", { text: "The whole solution up to here" }));
      box.addEventListener("toggle", () => {
        if (!box.open || box.children.length > 1) return;
        let text = "";
        for (let each = node; each.parent !== null; each = this.result.nodes[each.parent]) text = each.text + text;
        box.append(make("p", { class: "st-full" }, ...formatted(text)));
      });
      return box;
    }
  }

  const render = (container, result) => {
    check(result);
    const view = new View(result);
    const { answer } = result;
    const selection = `selected by ${SELECTIONS[result.selection] ?? result.selection}, aggregation: ${result.aggregation}`;
    const said = answer === null || answer === undefined ? "No answer was found." : `Answer: ${answer}`;
    const button = (text, onclick) => make("button", { type: "button", text, onclick });
    const tools = make("div", { class: "st-tools" },
      ...(view.path.length ? [button("Go to the selected path", () => view.select(view.path.at(-1), true))] : []),
      button("Expand all", () => view.expandAll()), button("Collapse all", () => view.collapseAll()));
    container.replaceChildren(make("div", { class: "st" },
      make("p", { class: "st-said" }, make("strong", { text: said }), ` · ${selection}`), facts(result),
      ...((result.warnings ?? []).length ? [make("ul", { class: "st-warnings" }, ...result.warnings.map((text) => make("li", { text })))] : []),
      votes(result),
      ...(result.nodes.length > 1 ? [tools, view.columns] : [make("p", { class: "st-none", text: "The tree is empty." })])));
    for (const id of view.path) view.expand(id);
    if (result.nodes.length > 1) view.select(view.path.at(-1) ?? view.children[0][0].id, false);
  };
  return render;
})();
