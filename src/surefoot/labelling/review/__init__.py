"""Review of labels: people correct them on a page, and the corrected labels become training data."""

from surefoot.labelling.review.corrected import Corrected, ReviewSummary, corrected

__all__ = ["Corrected", "ReviewSummary", "corrected"]
