"""Formats of step labels: one module per format, and a registry."""

from surefoot.data.formats.base import Format
from surefoot.data.formats.registry import FORMATS, WRITTEN, detect, format_named

__all__ = ["FORMATS", "WRITTEN", "Format", "detect", "format_named"]
