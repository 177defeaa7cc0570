"""Training runs whose ranks need not wait for each other: the same config, another loop."""
