"""What the collectives cost, measured and verified: `simdist verify` and `simdist bench`."""
