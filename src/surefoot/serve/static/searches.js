// Opens the result of a search, or records of searches, from a file. Nothing leaves the browser.
(() => {
  "use strict";
  const { at: find, make, formatted } = pageElements;
  const state = { entries: [], opened: 0 };

  const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
  const shorten = (text) => { const line = text.replace(/\s+/g, " ").trim(); return line.length > 90 ? `${line.slice(0, 90)}…` : line; };

  // The runs of a record by name, or the only one of a result.
  function runsOf(data, place) {
    if (isObject(data) && Array.isArray(data.nodes)) return { search: data };
    if (!isObject(data) || !isObject(data.searches)) throw new Error(`${place} is neither the result of a search nor a record of searches.`);
    const runs = { ...data.searches };
    for (const [name, key] of [["independent samples", "samples"], ["greedy decoding", "greedy"]]) if (isObject(data[key])) runs[name] = data[key];
    return runs;
  }

  function entry(data, place, read) {
    runsOf(data, place);
    return { title: shorten(typeof data.question === "string" ? data.question : "no question"), place, read };
  }

  function parsed(text) {
    try { return { data: JSON.parse(text) }; } catch (error) { return { error }; }
  }

  // JSON, or JSONL. Lines are parsed again when they are shown: parsed trees take several times their memory.
  function entriesOf(text) {
    const whole = parsed(text);
    if (!whole.error) {
      const list = Array.isArray(whole.data) ? whole.data : [whole.data];
      return list.map((data, index) => entry(data, list.length > 1 ? `Item ${index + 1}` : "The file", () => data));
    }
    const entries = [];
    text.split("\n").forEach((line, index) => {
      if (!line.trim()) return;
      const { data, error } = parsed(line);
      if (error) throw new Error(`Line ${index + 1} is not JSON: ${error.message}`);
      entries.push(entry(data, `Line ${index + 1}`, () => JSON.parse(line)));
    });
    return entries;
  }

  const option = (value, text) => make("option", { value, text });

  function say(id, text) {
    find(id).hidden = !text;
    find(id).replaceChildren(...formatted(text));
  }

  function clear() {
    for (const id of ["search-problem", "search-status", "search-text", "search-gold"]) say(id, "");
    find("search-choice").hidden = true;
    find("search-tree").replaceChildren();
  }

  async function open(file) {
    const opened = ++state.opened;
    clear();
    if (!file) return;
    try {
      const entries = entriesOf(await file.text());
      if (opened !== state.opened) return; // another file was chosen meanwhile
      if (entries.length === 0) throw new Error("The file is empty.");
      state.entries = entries;
      find("search-question").replaceChildren(...entries.map((each, index) => option(index, `${index + 1}. ${each.title}`)));
      find("search-choice").hidden = false;
      say("search-status", `${entries.length.toLocaleString("en")} ${entries.length === 1 ? "question" : "questions"} in ${file.name}`);
      showQuestion();
    } catch (error) {
      clear();
      say("search-problem", `${file.name} cannot be shown. ${error.message}`);
    }
  }

  function showQuestion() {
    const index = Number(find("search-question").value);
    const { read, place } = state.entries[index];
    const data = read();
    const runs = runsOf(data, place);
    state.runs = runs;
    const names = Object.keys(runs);
    const before = find("search-run").value;
    find("search-run").replaceChildren(...names.map((name) => option(name, name)));
    if (names.includes(before)) find("search-run").value = before;
    find("search-previous").disabled = index === 0;
    find("search-next").disabled = index === state.entries.length - 1;
    say("search-text", typeof data.question === "string" ? data.question : "");
    say("search-gold", typeof data.gold === "string" ? `Reference answer: ${data.gold}` : "");
    showRun();
  }

  function showRun() {
    say("search-problem", "");
    find("search-tree").replaceChildren();
    const run = state.runs[find("search-run").value];
    try {
      if (!run) throw new Error("This question has no search.");
      renderSearchTree(find("search-tree"), run);
    } catch (error) { say("search-problem", error.message); }
  }

  function move(step) {
    find("search-question").value = Number(find("search-question").value) + step;
    showQuestion();
  }

  find("search-file").addEventListener("change", (event) => open(event.target.files[0]));
  find("search-question").addEventListener("change", showQuestion);
  find("search-run").addEventListener("change", showRun);
  find("search-previous").addEventListener("click", () => move(-1));
  find("search-next").addEventListener("click", () => move(1));
})();
