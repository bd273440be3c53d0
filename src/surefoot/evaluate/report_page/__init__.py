"""The parts of a report page: content, figures and layout."""
