"""Critics: generative PRMs and chat models that write an analysis before they judge. One module per critic."""
