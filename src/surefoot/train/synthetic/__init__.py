"""Make step labels without annotators: corrupt worked solutions, or compare real ones with the gold solution.

Invariant: the same seed gives the same examples, and a label is either exact by construction or soft.

Licences of the sources:
- GSM8K, questions, worked solutions and example model solutions (openai/grade-school-math): MIT.
- Best-of-N samples with PRM scores (StrictPRMBench): CC BY 4.0; credit the source in the model card.
"""

from surefoot.train.synthetic.compare import compare_with_gold, known_values
from surefoot.train.synthetic.corrupt import KINDS, corrupt
from surefoot.train.synthetic.style import Style, pick_style, write
from surefoot.train.synthetic.variants import make_variants
from surefoot.train.synthetic.worked import Calculation, Line, Worked, parse_worked

__all__ = [
    "KINDS",
    "Calculation",
    "Line",
    "Style",
    "Worked",
    "compare_with_gold",
    "corrupt",
    "known_values",
    "make_variants",
    "parse_worked",
    "pick_style",
    "write",
]
