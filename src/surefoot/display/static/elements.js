// What the scripts of all pages share. Texts are inserted as text, never as markup.
"use strict";
const pageElements = (() => {
  const at = (id) => document.getElementById(id);

  // An element with a class, a text, listeners (`onclick`) and attributes; null is no attribute.
  const make = (tag, options = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(options)) {
      if (name === "class") element.className = value;
      else if (name === "text") element.textContent = value;
      else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (value !== null) element.setAttribute(name, value);
    }
    element.append(...children);
    return element;
  };

  // A score: small ones keep their first digits.
  const number = (value) => {
    if (value === null) return "none";
    return value !== 0 && Math.abs(value) < 0.0005 ? value.toExponential(1) : value.toFixed(3);
  };

  // The nodes of a text, with rendered formulas if the page has mathematics.js.
  const formatted = (text) => (typeof mathematics === "undefined" ? [text] : mathematics.nodes(text));

  return { at, make, number, formatted };
})();
