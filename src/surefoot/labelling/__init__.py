"""Step labels from rollouts: is the right answer still reached after a step? The package of `surefoot.label`."""
