"""The virtual world: ranks as greenlets of one process, in the order of a modelled time."""
