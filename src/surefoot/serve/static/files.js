// Saves results to a file and opens them again, and takes JSONL that is pasted. Nothing leaves the browser.
(() => {
  "use strict";
  const { at, make } = pageElements;
  const FORMAT = "surefoot-results-1";
  const SPLITS = [...at("split").options].map((option) => option.value);
  const pasted = { groups: [], from: "" };

  const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
  const isScore = (value) => value === null || (typeof value === "number" && Number.isFinite(value));
  const shorten = (text) => { const line = text.replace(/\s+/g, " ").trim(); return line.length > 60 ? `${line.slice(0, 60)}…` : line; };

  // --- results ----------------------------------------------------------------------------------------------------

  function save() {
    const content = { format: FORMAT, saved: new Date().toISOString(), threshold: threshold(), request: state.body, response: state.data };
    const url = URL.createObjectURL(new Blob([`${JSON.stringify(content, null, 2)}\n`], { type: "application/json" }));
    make("a", { href: url, download: "surefoot-results.json" }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
    at("said").textContent = "Saved.";
  }

  // What the page reads from a file, which may come from anywhere.
  function checked(content) {
    const wrong = (what) => new Error(`It is not a file of results: ${what}.`);
    if (content.format !== FORMAT) throw wrong(`its format is not ${FORMAT}`);
    const items = content.request?.items, results = content.response?.results;
    if (!Array.isArray(items) || !Array.isArray(results) || items.length !== results.length) throw wrong("items and results do not match");
    if (items.length === 0 || items.length > MOST) throw wrong(`it has ${items.length} solutions`);
    for (const item of items) if (typeof item?.question !== "string" || typeof item.solution !== "string") throw wrong("an item has no question or no solution");
    for (const result of results) {
      if (!isObject(result) || !Array.isArray(result.steps) || !(result.scale in MEANINGS)) throw wrong("a result has no steps or no scale");
      for (const name of ["warnings", "outside"]) if (!Array.isArray(result[name])) throw wrong(`a result has no ${name}`);
      for (const [name] of AGGREGATIONS) if (!isScore(result[name])) throw wrong(`a result has no ${name}`);
      for (const step of result.steps) if (typeof step?.text !== "string" || !isScore(step.score)) throw wrong("a step has no text or no score");
    }
    if (results.some((result) => result.scale !== results[0].scale)) throw wrong("its results have different scales");
    return content;
  }

  function showResults(content, name) {
    const { request, response } = checked(content);
    cancel();
    at("question").value = request.items[0].question;
    setSolutions(request.items.map((item) => item.solution));
    if (SPLITS.includes(request.split)) at("split").value = request.split;
    showScored(request, response, name);
    if (isScore(content.threshold) && content.threshold !== null) at("threshold").value = content.threshold;
    at("threshold").dispatchEvent(new Event("input"));
    reveal("results");
  }

  async function open(file) {
    if (!file) return;
    show("problem", "");
    try {
      const text = await file.text();
      let content = null;
      try { content = JSON.parse(text); } catch { /* may be JSONL */ }
      const found = isObject(content) && "format" in content ? null : groupsOf(text);
      if (found) useGroups(found, file.name);
      else if (isObject(content)) showResults(content, file.name);
      else throw new Error("It has neither results nor lines with `question` and `solution` or `steps`.");
    } catch (error) { tell(new Error(`${file.name} cannot be opened. ${error.message}`)); }
    at("open-file").value = ""; // the same file can be opened again
  }

  // --- JSONL ------------------------------------------------------------------------------------------------------

  // The solutions of each question, or null if a line is anything else.
  function groupsOf(text) {
    const groups = new Map();
    for (const line of text.split("\n")) {
      if (!line.trim()) continue;
      let data = null;
      try { data = JSON.parse(line); } catch { return null; }
      if (!isObject(data) || typeof data.question !== "string") return null;
      const steps = Array.isArray(data.steps) && data.steps.every((step) => typeof step === "string") ? data.steps : null;
      if (steps === null && typeof data.solution !== "string") return null;
      const found = groups.get(data.question) ?? [];
      found.push({ text: steps ? steps.join("\n\n") : data.solution, listed: steps !== null });
      groups.set(data.question, found);
    }
    // Questions with more solutions than the page compares are several entries.
    const entries = [];
    for (const [question, all] of groups) {
      for (let start = 0; start < all.length; start += MOST) entries.push({ question, solutions: all.slice(start, start + MOST), start, total: all.length });
    }
    return entries.length ? entries : null;
  }

  function useGroups(entries, from) {
    Object.assign(pasted, { groups: entries, from });
    at("pasted").replaceChildren(...entries.map(({ question, solutions, start, total }, index) => {
      const which = total === 1 ? "1 solution" : `solutions ${start + 1} to ${start + solutions.length} of ${total}`;
      return make("option", { value: index, text: `${index + 1}. ${shorten(question) || "no question"} (${which})` });
    }));
    at("pasted-row").hidden = entries.length < 2;
    useGroup(0);
  }

  function useGroup(index) {
    const { question, solutions } = pasted.groups[index];
    at("pasted").value = index;
    at("pasted-previous").disabled = index === 0;
    at("pasted-next").disabled = index === pasted.groups.length - 1;
    at("question").value = question;
    setSolutions(solutions.map((each) => each.text));
    if (solutions.some((each) => each.listed)) at("split").value = "paragraphs";
    const count = solutions.length === 1 ? "1 solution" : `${solutions.length} solutions`;
    at("said").textContent = `Took ${count} from ${pasted.from}.`;
    score();
  }

  function paste(event) {
    const found = groupsOf(event.clipboardData?.getData("text/plain") ?? "");
    if (!found) return; // any other text is pasted as usual
    event.preventDefault();
    useGroups(found, "the pasted lines");
  }

  at("save").addEventListener("click", save);
  at("open").addEventListener("click", () => at("open-file").click());
  at("open-file").addEventListener("change", (event) => open(event.target.files[0]));
  at("editor").addEventListener("paste", paste);
  at("pasted").addEventListener("change", () => useGroup(Number(at("pasted").value)));
  at("pasted-previous").addEventListener("click", () => useGroup(Number(at("pasted").value) - 1));
  at("pasted-next").addEventListener("click", () => useGroup(Number(at("pasted").value) + 1));
})();
