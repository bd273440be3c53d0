"""The engine: weights, attention and forward passes. It handles token ids and positions; text never gets here."""
