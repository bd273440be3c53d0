"""Tokenizers, chat templates and the settings in tokenizer files."""
