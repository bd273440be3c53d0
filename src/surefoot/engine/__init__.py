"""The engine: weights, attention and forward passes. It knows token ids and positions, no text and no markers."""
