"use strict";
// Switches between light and dark, and remembers the choice.
const flipTheme = (() => {
  const root = document.documentElement;
  const saveTheme = (theme) => { try { localStorage.setItem("surefoot-theme", theme); } catch { /* local files may have no storage */ } };
  try { const saved = localStorage.getItem("surefoot-theme"); if (saved) root.dataset.theme = saved; } catch { /* as above */ }
  return () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    saveTheme(root.dataset.theme);
  };
})();
document.getElementById("theme").addEventListener("click", flipTheme);
