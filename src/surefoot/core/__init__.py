"""Data types shared by every package: solutions, prompts, results, aggregations and calibrations. No torch."""
