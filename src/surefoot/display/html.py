"""Render scored steps as HTML, for notebooks and for the reports of an evaluation.

The HTML comes from Jinja2 templates with autoescaping, so text from data stays text. Every colour has its number next
to it, and no script is needed. Jinja2 is imported at the first rendering.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from surefoot.display.colour_scale import BUCKETS, bucket, colour, themed_colour
from surefoot.display.mathematics import Segment, segments
from surefoot.display.numbers import short_score
from surefoot.display.summary import notes, summary
from surefoot.display.views import SolutionView

if TYPE_CHECKING:
    from jinja2 import Environment

STYLES = {
    "steps": "list-style:none;margin:0;padding:0",
    "step": "display:flex;gap:.6em;align-items:baseline;padding:.28em 0 .28em .6em;border-left:.3em solid #8886;"
    "margin:.15em 0;text-align:left",
    "no": "flex:none;min-width:1.6em;text-align:right;opacity:.65;font-variant-numeric:tabular-nums",
    "chip": "flex:none;min-width:3.1em;text-align:center;padding:.05em .35em;border-radius:.3em;font-size:.9em;"
    "font-variant-numeric:tabular-nums",
    "none": "border:1px dashed currentColor;opacity:.75",
    "text": "flex:1;min-width:0;white-space:pre-wrap;overflow-wrap:anywhere",
    "box": "border:1px solid currentColor;padding:0 .3em",
    "flag": "display:inline-block;margin:0 0 0 .6em;padding:0 .45em;border-radius:.3em;border:1px solid currentColor;"
    "font-size:.8em;font-weight:600;white-space:nowrap",
    "after": "color:inherit;box-shadow:inset 0 0 0 1px #8888;opacity:.75",
    "truth": "background:#a8410a;color:#ffffff;border-color:#a8410a;-webkit-print-color-adjust:exact;"
    "print-color-adjust:exact",
}
"""CSS declarations by class name. Notebooks get them inline, reports as a style sheet."""

NOT_TYPESET = re.compile(
    r"\\(?:href|url|html|includegraphics|require|class|style|cssId|unicode|def|gdef|edef|xdef|let|newcommand|newenvironment"
    r"|renewcommand|providecommand|data|mmlToken|bbox|color|textcolor|colorbox|fcolorbox|definecolor|phantom)"
    r"|(?<!\\)(?:\\\\)*%"
)
"""What MathJax must not see: these commands, and percent signs, which would hide the rest of their line."""
PLAIN_BOX = re.compile(r"\\boxed\{([^\\{}^_$~&%#]*)\}")

for _number in range(BUCKETS):
    _background, _ink = colour(_number)
    STYLES[f"c{_number}"] = (
        f"background:{_background};color:{_ink};-webkit-print-color-adjust:exact;print-color-adjust:exact"
    )
    STYLES[f"e{_number}"] = f"border-left-color:{_background}"


@dataclass(frozen=True)
class StepItem:
    """One step to render."""

    text: str
    score: float | None
    raw: float | None = None
    placeholder: str = "no score"
    """Shown instead of a missing score."""
    label: str = ""
    """A filled flag: the error that the data set states."""
    prediction: str = ""
    """An outlined flag: the error that the model predicts."""
    after: bool = False
    """Whether the step comes after the first error. Its score is not judged, so it has no colour."""


def style_sheet() -> str:
    """Return the styles as CSS rules. The colours of scores follow the page's `color-scheme`."""
    rules = [f".{name}{{{declarations}}}" for name, declarations in STYLES.items()]
    for number in range(BUCKETS):
        background, ink = themed_colour(number)
        rules += [f".c{number}{{background:{background};color:{ink}}}", f".e{number}{{border-left-color:{background}}}"]
    return "\n".join(rules)


def inline_styles(*names: str) -> str:
    """Return a `style` attribute with these styles, for HTML without a style sheet."""
    return f'style="{";".join(STYLES[name] for name in names)}"'


def class_names(*names: str) -> str:
    """Return a `class` attribute, for a page with `style_sheet`."""
    return f'class="{" ".join(names)}"'


def solution_html(result: SolutionView) -> str:
    """Render a scored solution for a notebook, with inline styles."""
    error = result.first_error()
    steps = [
        StepItem(
            step.text,
            step.score,
            step.raw,
            placeholder=step.status.replace("_", " "),
            prediction="✗ first error" if at == error else "",
            after=error is not None and 0 <= error < at,
        )
        for at, step in enumerate(result.steps)
    ]
    return render(
        "surefoot.display",
        "solution.html.j2",
        inline_styles,
        summary=" · ".join(summary(result)),
        steps=steps,
        scale=result.scale,
        footer=[result.model, *notes(result)],
        text=notebook_text,
    )


def notebook_text(text: str) -> str:
    """Return a text as HTML in which a notebook renders the formulas.

    Notebooks typeset HTML with MathJax, which takes "$5 and $7" for a formula. Here it may read only what is one, and
    nothing that makes links or changes the page. Elsewhere the source is shown.
    """
    from markupsafe import Markup, escape

    parts = segments(text)
    allowed = [part.formula is not None and not NOT_TYPESET.search(part.formula) for part in parts]
    return Markup("").join(
        _box(part.formula) or Markup(f'<span class="tex2jax_process mathjax_process">{escape(_delimited(part))}</span>')
        if yes and part.formula is not None
        else part.source
        for part, yes in zip(parts, allowed, strict=True)
    )


def _delimited(part: Segment) -> str:
    """Return a formula with delimiters, without which MathJax does not see it."""
    return f"\\({part.source}\\)" if part.source == part.formula else part.source


def _box(formula: str) -> str | None:
    """Return a box around plain text as HTML, which needs no MathJax; None for other formulas."""
    from markupsafe import Markup, escape

    found = PLAIN_BOX.fullmatch(formula)
    return None if found is None else Markup(f"<span {inline_styles('box')}>{escape(found[1])}</span>")


def render(package: str, template: str, attributes: Callable[..., str], **context: Any) -> str:
    """Render a template of a package's folder `templates`, or of this package's.

    `attributes` turns style names into an HTML attribute: `inline_styles` or `class_names`. Unpaired surrogates, which
    UTF-8 cannot encode, become question marks.
    """
    from markupsafe import Markup

    text = (
        _environment(package)
        .get_template(template)
        .render(attributes=lambda *names: Markup(attributes(*names)), **context)
    )
    return text.encode("utf-8", "replace").decode("utf-8")


@cache
def _environment(package: str) -> Environment:
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("surefoot.display")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"bucket": bucket, "short_score": short_score}
    return environment
