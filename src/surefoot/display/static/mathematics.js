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

  const BOX = "\\boxed";
  const AFTER = /^[.,;:!?)\]%'"’”]+/;
  const BEFORE = /[([“‘]+$/;
  const RELATIONS = new Set("=≠≈≡≤≥<>→⇒⟹⟺≅∼".split(""));
  const LONG = 20; // characters of a formula that may need more than one line

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

  // The argument of a box, with its braces.
  const argument = (text, at) => {
    const tokens = /\\boxed|\\[\s\S]|[{}]/g;
    tokens.lastIndex = at;
    let depth = 0;
    for (let found = tokens.exec(text); found !== null && tokens.lastIndex <= at + MAX_CHARS; found = tokens.exec(text)) {
      if (found[0] === BOX) return null;
      depth += { "{": 1, "}": -1 }[found[0]] ?? 0;
      if (depth > 0) continue;
      const inside = text.slice(at + 1, found.index);
      return inside.trim() && !PROSE.test(inside.replace(WORDS, " ")) ? text.slice(at, tokens.lastIndex) : null;
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
    if (opener === BOX) return argument(text, at);
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
    const openers = /\\[\\$]|\\[(\[]|\$\$?|\\boxed(?=\{)/g;
    let plain = 0;
    for (let opener = openers.exec(text); opener !== null; opener = openers.exec(text)) {
      const formula = formulaAt(text, opener[0], opener.index, openers.lastIndex);
      if (formula === null) continue;
      const boxed = opener[0] === BOX;
      const end = openers.lastIndex + formula.length + (boxed ? 0 : opener[0].length);
      if (opener.index > plain) found.push({ source: text.slice(plain, opener.index), formula: null, display: false });
      const source = text.slice(opener.index, end);
      found.push({ source, formula: boxed ? source : formula.trim(), display: opener[0] === "\\[" || opener[0] === "$$" });
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

  // Browsers do not break the lines of MathML: a long formula in a text becomes several, each of which ends with a relation.
  const inPieces = (box) => {
    const row = box.querySelector("semantics > mrow");
    const ends = row ? [...row.children].filter((each) => each.localName === "mo" && RELATIONS.has(each.textContent) && each.nextElementSibling && each.previousElementSibling) : [];
    const pieces = ends.map((end) => {
      end.setAttribute("form", "infix"); // its place in the row no longer says so
      const piece = box.cloneNode(false);
      const [math, first] = [box.querySelector("math").cloneNode(false), row.cloneNode(false)];
      while (first.lastElementChild !== end) first.append(row.firstElementChild);
      math.append(first);
      piece.append(math);
      return piece;
    });
    return [...pieces, box];
  };

  const rendered = new Map(); // by source; trees repeat the same formulas
  const render = ({ source, formula, display }) => {
    if (rendered.size > 5000) rendered.clear();
    if (!rendered.has(source)) {
      const box = pageElements.make("span", { class: display ? "mathematics display" : "mathematics", title: source });
      try {
        if (!isDeep(formula)) katex.render(withoutComments(formula), box, options(display));
        setLetters(box);
      } catch { box.replaceChildren(); }
      const long = !display && formula.length > LONG;
      rendered.set(source, box.firstChild ? (long ? inPieces(box) : [box]) : null);
    }
    return rendered.get(source)?.map((piece) => piece.cloneNode(true)) ?? [source];
  };

  // A formula that cannot be rendered stays as it is written.
  const nodes = (text) => {
    const found = [];
    let broken = false; // a displayed formula ends its line by itself
    let last = null; // the last piece of the formula before this text
    const unbroken = (...parts) => pageElements.make("span", { class: "unbroken" }, ...parts); // punctuation stays with its formula
    for (const part of segments(text)) {
      if (part.formula === null) {
        const source = broken ? part.source.replace(/^\r?\n/, "") : part.source;
        const [mark] = (last && AFTER.exec(source)) ?? [""];
        if (mark) found.push(unbroken(found.pop(), mark));
        if (source.length > mark.length) found.push(source.slice(mark.length));
        [broken, last] = [false, null];
        continue;
      }
      const pieces = render(part);
      broken = part.display && typeof pieces[0] !== "string";
      last = part.display || typeof pieces[0] === "string" ? null : pieces.at(-1);
      const [mark] = (last && typeof found.at(-1) === "string" && BEFORE.exec(found.at(-1))) || [""];
      if (mark) {
        const before = found.pop();
        if (before.length > mark.length) found.push(before.slice(0, -mark.length));
        pieces[0] = unbroken(mark, pieces[0]);
      }
      found.push(...pieces);
    }
    return found;
  };

  const typeset = (element) => {
    for (const child of [...element.childNodes]) {
      if (child.nodeType === Node.TEXT_NODE && /[\\$]/.test(child.data)) child.replaceWith(...nodes(child.data));
    }
  };

  return { segments, nodes, typeset };
})();
