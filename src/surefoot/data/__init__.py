"""Data in and out: items to score, records of data sets and output files. No torch."""
