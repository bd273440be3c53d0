"""Large scoring jobs: read a file, score every row, write the results."""
