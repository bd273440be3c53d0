"""Search strategies: each decides which nodes of a tree to expand and which to prune."""
