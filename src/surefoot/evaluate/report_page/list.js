// The list of a report, which its page fills: pages, filters by kind, the search box and the keys.
// `find(words, kind)` returns the entries to show, and `draw(entries)` renders those of one page. `controls` are the ids
// of further filters, `delay` is the time in ms after which typing starts a search, and with `arrows` the arrow keys turn pages.
const pagedList = ({ find, draw, controls, delay, arrows }) => {
  const PER_PAGE = 20;
  const by = (id) => document.getElementById(id);
  const search = by("search"), count = by("count"), prev = by("prev"), next = by("next");
  const kinds = [...document.querySelectorAll("[data-kind]")];
  let kind = "", page = 0, shown = [], timer = 0;

  const show = () => {
    const pages = Math.max(1, Math.ceil(shown.length / PER_PAGE));
    const first = page * PER_PAGE;
    const part = shown.slice(first, first + PER_PAGE);
    draw(part);
    count.textContent = shown.length === 0 ? "No matches. Clear the search or choose another filter."
      : `${first + 1}–${first + part.length} of ${shown.length.toLocaleString("en")}` + (pages > 1 ? `, page ${page + 1} of ${pages}` : "");
    prev.disabled = page === 0;
    next.disabled = page >= pages - 1;
  };

  const select = () => {
    shown = find(search.value.toLowerCase().split(/\s+/).filter(Boolean), kind);
    page = 0;
    show();
  };

  const turn = (step) => {
    const to = page + step;
    if (to < 0 || to >= Math.ceil(shown.length / PER_PAGE)) return;
    page = to;
    show();
    by("list").scrollIntoView({ block: "start" });
  };

  search.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(select, delay); });
  for (const id of controls) by(id)?.addEventListener("change", select);
  for (const button of kinds) button.addEventListener("click", () => {
    kind = button.dataset.kind;
    for (const each of kinds) each.setAttribute("aria-pressed", String(each === button));
    select();
  });
  prev.addEventListener("click", () => turn(-1));
  next.addEventListener("click", () => turn(1));

  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target === search && event.key === "Escape") { search.value = ""; select(); search.blur(); return; }
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    if (event.key === "/") { event.preventDefault(); search.focus(); }
    else if (event.key === "n" || (arrows && event.key === "ArrowRight")) turn(1);
    else if (event.key === "p" || (arrows && event.key === "ArrowLeft")) turn(-1);
    else if (event.key === "t") nextTheme();
  });

  select();
};
