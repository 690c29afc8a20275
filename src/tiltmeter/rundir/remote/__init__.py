"""Run directories on object storage: written locally as ever, mirrored off the training path, copied for readers."""
