"""Short programs for real ranks: `mpirun -n 4 python -m simdist.examples.ring_all_reduce`."""
