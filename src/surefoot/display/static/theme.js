// The button #theme, which chooses light or dark colors or those of the system, and remembers the choice.
"use strict";
const nextTheme = (() => {
  const THEMES = ["", "light", "dark"];
  const root = document.documentElement;
  const button = document.getElementById("theme");

  const saved = () => {
    try {
      const theme = localStorage.getItem("surefoot-theme") ?? "";
      return THEMES.includes(theme) ? theme : "";
    } catch { return root.dataset.theme ?? ""; } // private windows and local files may have no storage
  };
  const choose = (theme) => {
    if (theme) root.dataset.theme = theme;
    else delete root.dataset.theme;
    button.textContent = `Theme: ${theme || "auto"}`;
    try { localStorage.setItem("surefoot-theme", theme); } catch { /* as above */ }
  };
  const next = () => choose(THEMES[(THEMES.indexOf(saved()) + 1) % THEMES.length]);

  choose(saved());
  button.addEventListener("click", next);
  return next;
})();
