(() => {
  const PER_PAGE = 20;
  const rows = JSON.parse(document.getElementById("data").textContent);
  const [AT, KIND, GROUP, SPLIT, HTML] = [0, 1, 2, 3, 4];
  const by = (id) => document.getElementById(id);
  const items = by("items"), search = by("search"), count = by("count"), prev = by("prev"), next = by("next");
  const kinds = [...document.querySelectorAll("[data-kind]")];
  const state = { kind: "", page: 0 };
  let shown = rows;

  // The text of an entry, extracted from its HTML at the first search.
  const ENTITIES = { "&amp;": "&", "&lt;": "<", "&gt;": ">", "&#34;": '"', "&#39;": "'" };
  const texts = new Map();
  const text = (row) => {
    if (!texts.has(row)) {
      const bare = row[HTML].replace(/<[^>]*>/g, " ").replace(/&(?:amp|lt|gt|#34|#39);/g, (name) => ENTITIES[name]);
      texts.set(row, bare.toLowerCase());
    }
    return texts.get(row);
  };

  const select = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const group = by("group")?.value ?? "", split = by("split")?.value ?? "";
    shown = rows.filter((row) =>
      (!state.kind || row[KIND] === state.kind) && (!group || row[GROUP] === group) &&
      (!split || row[SPLIT] === split) && words.every((word) => text(row).includes(word)));
    if (by("order").value === "file") shown = [...shown].sort((a, b) => a[AT] - b[AT]);
    state.page = 0;
    draw();
  };

  const draw = () => {
    const pages = Math.max(1, Math.ceil(shown.length / PER_PAGE));
    const first = state.page * PER_PAGE;
    const part = shown.slice(first, first + PER_PAGE);
    items.innerHTML = part.map((row) => `<article class="item" data-at="${row[AT]}">${row[HTML]}</article>`).join("");
    count.textContent = shown.length === 0 ? "No matches. Clear the search or choose another filter."
      : `${first + 1}–${first + part.length} of ${shown.length.toLocaleString("en")}` + (pages > 1 ? `, page ${state.page + 1} of ${pages}` : "");
    prev.disabled = state.page === 0;
    next.disabled = state.page >= pages - 1;
  };

  const turn = (step) => {
    const pages = Math.ceil(shown.length / PER_PAGE);
    const to = state.page + step;
    if (to < 0 || to >= pages) return;
    state.page = to;
    draw();
    by("list").scrollIntoView({ block: "start" });
  };

  let timer = 0;
  search.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(select, 120); });
  for (const id of ["group", "split", "order"]) by(id)?.addEventListener("change", select);
  for (const button of kinds) button.addEventListener("click", () => {
    state.kind = button.dataset.kind;
    for (const each of kinds) each.setAttribute("aria-pressed", String(each === button));
    select();
  });
  prev.addEventListener("click", () => turn(-1));
  next.addEventListener("click", () => turn(1));

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target === search && event.key === "Escape") { search.value = ""; select(); search.blur(); return; }
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    if (event.key === "/") { event.preventDefault(); search.focus(); }
    else if (event.key === "ArrowRight" || event.key === "n") turn(1);
    else if (event.key === "ArrowLeft" || event.key === "p") turn(-1);
    else if (event.key === "t") flipTheme();
  });

  draw();
})();
