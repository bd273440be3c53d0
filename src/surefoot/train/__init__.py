"""Making a process reward model: data, batches, the loop, and the export that `surefoot.load` reads."""
