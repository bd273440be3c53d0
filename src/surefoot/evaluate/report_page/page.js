// The list of solutions, whose entries are rendered already.
(() => {
  const rows = JSON.parse(document.getElementById("data").textContent);
  const [AT, KIND, GROUP, SPLIT, HTML] = [0, 1, 2, 3, 4];
  const by = (id) => document.getElementById(id);

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

  const find = (words, kind) => {
    const group = by("group")?.value ?? "", split = by("split")?.value ?? "";
    const shown = rows.filter((row) =>
      (!kind || row[KIND] === kind) && (!group || row[GROUP] === group) &&
      (!split || row[SPLIT] === split) && words.every((word) => text(row).includes(word)));
    return by("order").value === "file" ? shown.sort((a, b) => a[AT] - b[AT]) : shown;
  };

  const draw = (part) => {
    by("items").innerHTML = part.map((row) => `<article class="item" data-at="${row[AT]}">${row[HTML]}</article>`).join("");
    if (typeof mathematics !== "undefined") by("items").querySelectorAll(".problem, .text").forEach(mathematics.typeset);
  };

  pagedList({ find, draw, controls: ["group", "split", "order"], delay: 120, arrows: true });
})();
