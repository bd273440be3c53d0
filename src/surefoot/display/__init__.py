"""Rendering of results for terminals, notebooks and tables. Knows results only through the protocols in `views`."""
