"""Train process reward models: data, batches, the training loop, and the export that `surefoot.load` reads."""
