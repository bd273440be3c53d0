// Saves results to a file and opens them again, and takes JSONL that is pasted. Nothing leaves the browser.
(() => {
  "use strict";
  const { at, make } = pageElements;
  const FORMAT = "surefoot-results-1";
  const SPLITS = [...at("split").options].map((option) => option.value);
  const MAX_BYTES = 20_000_000;
  const pasted = { groups: [], from: "", split: "auto" };

  const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
  const isScore = (value) => value === null || (typeof value === "number" && Number.isFinite(value));
  const isText = (value) => typeof value === "string";
  const isTextOrNull = (value) => value === null || isText(value);
  const isCount = (value) => Number.isInteger(value) && value >= 0;
  const isScale = (value) => isText(value) && Object.hasOwn(MEANINGS, value);
  const listOf = (check) => (value) => Array.isArray(value) && value.every(check);
  const wrongField = (value, fields) => Object.keys(fields).find((name) => !isObject(value) || !fields[name](value[name]));
  const isSpan = (value) => listOf(isCount)(value) && value.length === 2;

  // What the page reads of a result.
  const MEMBER = { model: isText, score: isScore, reason: isTextOrNull };
  const STEP = { text: isText, score: isScore, status: isText, spread: isScore, members: listOf((member) => !wrongField(member, MEMBER)) };
  const RESULT = {
    steps: listOf((step) => !wrongField(step, STEP)), scale: isScale, status: isText, model: isText, split: isText, reason: isTextOrNull, answer: isTextOrNull,
    calibration: isTextOrNull, tokens: isCount, empty_steps: isCount, warnings: listOf(isText), outside: listOf(isSpan),
    ...Object.fromEntries(AGGREGATIONS.map(([name]) => [name, isScore])),
  };

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
    for (const item of items) if (wrongField(item, { question: isText, solution: isText })) throw wrong("an item has no question or no solution");
    if (items.some((item) => item.question !== items[0].question)) throw wrong("its items have different questions");
    for (const result of results) {
      const name = wrongField(result, RESULT);
      if (name) throw wrong(`a result has no ${name}, or a wrong one`);
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
      if (file.size > MAX_BYTES) throw new Error(`It is larger than ${MAX_BYTES / 1e6} MB. Use \`surefoot bulk\` to score large files.`);
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

  // The question and the solution on a line, or null. A blank line in a step would end it.
  function itemOf(line) {
    let data = null;
    try { data = JSON.parse(line); } catch { return null; }
    if (!isObject(data) || !isText(data.question)) return null;
    const { question, steps, solution } = data;
    if (listOf(isText)(steps) && steps.length) return { question, listed: true, text: steps.map((step) => step.replace(/[^\S\r\n]*[\r\n]\s*[\r\n]/g, "\n")).join("\n\n") };
    return isText(solution) ? { question, listed: false, text: solution } : null;
  }

  // The solutions of each question, or null if the text does not begin with one.
  function groupsOf(text) {
    const groups = new Map();
    for (const [index, line] of text.split("\n").entries()) {
      if (!line.trim()) continue;
      const item = itemOf(line);
      if (!item && groups.size === 0) return null;
      if (!item) throw new Error(`Line ${index + 1} is not JSON with \`question\` and \`solution\` or \`steps\`.`);
      const key = JSON.stringify([item.question, item.listed]); // lists of steps and texts are split differently
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(item);
    }
    // Questions with more solutions than the page compares are several entries.
    const entries = [];
    for (const all of groups.values()) {
      for (let start = 0; start < all.length; start += MOST) entries.push({ question: all[0].question, solutions: all.slice(start, start + MOST), start, total: all.length });
    }
    return entries.length ? entries : null;
  }

  function useGroups(entries, from) {
    Object.assign(pasted, { groups: entries, from, split: at("split").value });
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
    at("split").value = solutions[0].listed ? "paragraphs" : pasted.split;
    const count = solutions.length === 1 ? "1 solution" : `${solutions.length} solutions`;
    at("said").textContent = `Took ${count} from ${pasted.from}.`;
    score();
  }

  function paste(event) {
    let found = null;
    try { found = groupsOf(event.clipboardData?.getData("text/plain") ?? ""); } catch (error) { tell(new Error(`The lines were pasted as text. ${error.message}`)); }
    if (!found) return; // any other text is pasted as usual
    event.preventDefault();
    useGroups(found, "the pasted lines");
  }

  at("save").addEventListener("click", save);
  at("open").addEventListener("click", () => at("open-file").click());
  at("open-file").addEventListener("change", (event) => open(event.target.files[0]));
  at("editor").addEventListener("paste", paste);
  at("split").addEventListener("change", () => { pasted.split = at("split").value; });
  at("pasted").addEventListener("change", () => useGroup(Number(at("pasted").value)));
  at("pasted-previous").addEventListener("click", () => useGroup(Number(at("pasted").value) - 1));
  at("pasted-next").addEventListener("click", () => useGroup(Number(at("pasted").value) + 1));
})();
