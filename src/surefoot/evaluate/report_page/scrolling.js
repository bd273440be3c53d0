// Lets the keyboard reach tables that are too wide for the screen, and only those.
(() => {
  const watcher = new ResizeObserver((changes) => {
    for (const { target } of changes) {
      if (target.scrollWidth > target.clientWidth) target.tabIndex = 0;
      else target.removeAttribute("tabindex");
    }
  });
  for (const box of document.querySelectorAll(".scroll")) watcher.observe(box);
})();
