"""Training runs whose ranks need not wait for each other: told by the same config, with a loop of their own."""
