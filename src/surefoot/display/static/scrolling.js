// Shows where a box has more than is visible, and lets the keyboard reach it. `data-more` names the sides; scrolling.css draws them.
// Scroll bars do not say it: many systems hide them, and a formula that is cut between two terms looks complete.
(() => {
  "use strict";
  const BOXES = ".scroll, .st-scroll, .mathematics.display, .text, .problem, .asked, .search-text, .question, .st-full, .st-detail";

  const mark = (box) => {
    const { scrollLeft, clientWidth, scrollWidth, scrollTop, clientHeight, scrollHeight } = box;
    const wide = scrollWidth > clientWidth + 1 && clientWidth > 0;
    const high = box.matches(".st-detail") && scrollHeight > clientHeight + 1;
    const sides = [
      ...(wide && scrollLeft > 1 ? ["left"] : []), ...(wide && scrollLeft + clientWidth < scrollWidth - 1 ? ["right"] : []),
      ...(high && scrollTop > 1 ? ["top"] : []), ...(high && scrollTop + clientHeight < scrollHeight - 1 ? ["bottom"] : []),
    ];
    if (sides.length) box.dataset.more = sides.join(" ");
    else delete box.dataset.more;
    if (wide && !box.hasAttribute("tabindex")) { box.tabIndex = 0; box.dataset.reachable = ""; }
    else if (!wide && "reachable" in box.dataset) { box.removeAttribute("tabindex"); delete box.dataset.reachable; }
  };

  const sizes = new ResizeObserver((changes) => changes.forEach(({ target }) => mark(target)));
  const known = new WeakSet();
  let waiting = false;
  const find = () => {
    waiting = false;
    for (const box of document.querySelectorAll(BOXES)) {
      if (known.has(box)) { mark(box); continue; }
      known.add(box);
      sizes.observe(box); // it reports the first size, too
      box.addEventListener("scroll", () => mark(box), { passive: true });
    }
  };
  // Content that changes may leave the size of its box as it is.
  const changes = new MutationObserver(() => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(find);
  });
  changes.observe(document.documentElement, { childList: true, subtree: true });
  find();
})();
