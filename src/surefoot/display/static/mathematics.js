// Renders LaTeX in texts as MathML, with KaTeX. It needs elements.js and katex.min.js.
// mathematics.segments(text) finds formulas exactly as display/mathematics.py does.
// mathematics.nodes(text) returns the nodes of a text; mathematics.typeset(element) replaces the texts in an element.
const mathematics = (() => {
  "use strict";
  const MAX_CHARS = 5000;
  const MAX_DEPTH = 30; // of braces: browsers need seconds to lay out deeper ones
  const CLOSERS = { "\\(": "\\)", "\\[": "\\]", $$: "$$", $: "$" };
  const EDGE = /^[ \t\r\n]|[ \t\r\n]$|\n[ \t]*\n/;
  const WORDS = /\\(?:text|textbf|textit|textrm|mathrm|mbox|operatorname)\*?\s*\{[^{}]*\}|\\[A-Za-z]+/g;
  const PROSE = /[a-z]{3}[,;]?\s+[a-z]{2}/;
  const LATEX = /\\[^\s$]|[\^_]/;
  const SIMPLE = /^(?![*/=):,]|<<)[0-9A-Za-z.,;+\-*/=<>()|!:'[\] ]*[0-9A-Za-z)|!'\]]$/;

  const closer = (text, opener, at) => {
    const dollars = opener.startsWith("$");
    const tokens = dollars ? /\\[\s\S]|\$/g : /\\[\s\S]/g;
    tokens.lastIndex = at;
    for (let found = tokens.exec(text); found !== null && tokens.lastIndex <= at + MAX_CHARS + 2; found = tokens.exec(text)) {
      if (dollars && found[0] === "$") return text.startsWith(CLOSERS[opener], found.index) ? found.index : null;
      if (!dollars && found[0] === CLOSERS[opener]) return found.index;
      if (!dollars && found[0] === opener) return null;
    }
    return null;
  };

  const isFormula = (content, before, after) => {
    if (EDGE.test(content) || /[0-9]/.test(after)) return false;
    if (LATEX.test(content)) return true;
    if (/[0-9A-Za-z]/.test(before) || !SIMPLE.test(content)) return false;
    const longest = content.includes(" ") ? 1 : 3;
    return (content.match(/[A-Za-z]+/g) ?? []).every((word) => word.length <= (word === word.toUpperCase() ? 4 : longest));
  };

  const formulaAt = (text, opener, start, at) => {
    if (!(opener in CLOSERS)) return null; // an escaped dollar or backslash
    const end = closer(text, opener, at);
    if (end === null || end - at > MAX_CHARS) return null;
    const content = text.slice(at, end);
    if (!content.trim()) return null;
    if (opener.startsWith("$") && PROSE.test(content.replace(WORDS, " "))) return null;
    return opener !== "$" || isFormula(content, text.charAt(start - 1), text.charAt(end + 1)) ? content : null;
  };

  const segments = (text) => {
    const found = [];
    const openers = /\\[\\$]|\\[(\[]|\$\$?/g;
    let plain = 0;
    for (let opener = openers.exec(text); opener !== null; opener = openers.exec(text)) {
      const formula = formulaAt(text, opener[0], opener.index, openers.lastIndex);
      if (formula === null) continue;
      const end = openers.lastIndex + formula.length + opener[0].length;
      if (opener.index > plain) found.push({ source: text.slice(plain, opener.index), formula: null, display: false });
      found.push({ source: text.slice(opener.index, end), formula: formula.trim(), display: opener[0] === "\\[" || opener[0] === "$$" });
      plain = openers.lastIndex = end;
    }
    if (plain < text.length) found.push({ source: text.slice(plain), formula: null, display: false });
    return found;
  };

  // Colors would not suit both themes and could hide text. \pmb would need a style attribute.
  const dropping = (count, instead) => (context) => { context.consumeArgs(count); return instead; };
  const macros = () => ({
    "\\color": dropping(1, ""), "\\textcolor": dropping(1, ""), "\\colorbox": dropping(1, "\\text"), "\\fcolorbox": dropping(2, "\\fbox"), "\\pmb": "\\boldsymbol{#1}",
    ...Object.fromEntries(DEFINITIONS.map((name) => [`\\${name}`, () => refuse({ command: `\\${name}` })])),
  });
  const refuse = ({ command }) => { throw new Error(`${command} is not allowed.`); };
  // A short definition can expand to millions of characters, and can remove its arguments.
  const DEFINITIONS = ["def", "gdef", "edef", "xdef", "let", "futurelet", "newcommand", "renewcommand", "providecommand"];
  const options = (display) => ({
    output: "mathml", displayMode: display, throwOnError: true, strict: false, trust: refuse, macros: macros(), maxExpand: 1000, maxSize: 10,
  });

  // Browsers no longer apply these attributes: Unicode has the letters.
  const ALPHABETS = { bold: [0x1d400, 0x1d7ce], "bold-italic": [0x1d468], "double-struck": [0x1d538, 0x1d7d8], script: [0x1d49c], fraktur: [0x1d504], "sans-serif": [0x1d5a0, 0x1d7e2], monospace: [0x1d670, 0x1d7f6] };
  const OLDER = {
    "double-struck": { C: "ℂ", H: "ℍ", N: "ℕ", P: "ℙ", Q: "ℚ", R: "ℝ", Z: "ℤ" }, fraktur: { C: "ℭ", H: "ℌ", I: "ℑ", R: "ℜ", Z: "ℨ" },
    script: { B: "ℬ", E: "ℰ", F: "ℱ", H: "ℋ", I: "ℐ", L: "ℒ", M: "ℳ", R: "ℛ", e: "ℯ", g: "ℊ", o: "ℴ" },
  };
  const letter = (variant) => (char) => {
    const [letters, digits] = ALPHABETS[variant];
    const older = OLDER[variant]?.[char];
    if (older) return older;
    if (/[0-9]/.test(char)) return digits ? String.fromCodePoint(digits + Number(char)) : char;
    const code = char.charCodeAt(0);
    return String.fromCodePoint(letters + (code < 97 ? code - 65 : code - 97 + 26));
  };
  const setLetters = (box) => {
    for (const element of box.querySelectorAll("[mathvariant]")) {
      const variant = element.getAttribute("mathvariant");
      if (variant in ALPHABETS && element.children.length === 0) element.textContent = element.textContent.replace(/[0-9A-Za-z]/g, letter(variant));
    }
  };

  const isDeep = (formula) => {
    let depth = 0;
    return [...formula.matchAll(/\\[\s\S]|[{}]/g)].some(([token]) => (depth += { "{": 1, "}": -1 }[token] ?? 0) > MAX_DEPTH);
  };
  // A percent sign would hide the rest of its line as a comment.
  const withoutComments = (formula) => formula.replace(/\\[\s\S]|%/g, (token) => (token === "%" ? "\\%" : token));

  const rendered = new Map(); // by source; trees repeat the same formulas
  const render = ({ source, formula, display }) => {
    if (rendered.size > 5000) rendered.clear();
    if (!rendered.has(source)) {
      const box = pageElements.make("span", { class: display ? "mathematics display" : "mathematics", title: source });
      try {
        if (!isDeep(formula)) katex.render(withoutComments(formula), box, options(display));
        setLetters(box);
      } catch { box.replaceChildren(); }
      rendered.set(source, box.firstChild ? box : null);
    }
    return rendered.get(source)?.cloneNode(true) ?? source;
  };

  // A formula that cannot be rendered stays as it is written.
  const nodes = (text) => {
    let broken = false; // a displayed formula ends its line by itself
    return segments(text).map((part) => {
      const node = part.formula === null ? (broken ? part.source.replace(/^\r?\n/, "") : part.source) : render(part);
      broken = part.display && typeof node !== "string";
      return node;
    });
  };

  const typeset = (element) => {
    for (const child of [...element.childNodes]) {
      if (child.nodeType === Node.TEXT_NODE && /[\\$]/.test(child.data)) child.replaceWith(...nodes(child.data));
    }
  };

  return { segments, nodes, typeset };
})();
