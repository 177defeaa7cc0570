"""What the collectives cost, measured and verified: `simdist verify` and `simdist bench`.

`simdist.bench.measure.bus_bytes_per_s` is the bus bandwidth of nccl-tests.
"""
