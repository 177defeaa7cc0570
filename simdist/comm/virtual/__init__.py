"""The virtual world: ranks as greenlets of one process, run in the order of virtual time."""
