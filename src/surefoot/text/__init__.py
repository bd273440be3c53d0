"""Reading text: splitting into steps, final answers, equality of answers and arithmetic. No torch."""
