"""How results look: terminal and HTML. No torch."""
