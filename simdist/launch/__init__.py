"""How a program is started on ranks: virtual ones in this process, or processes under mpirun."""

from simdist.comm.world import world
from simdist.launch.extensions import command_words, share_program
from simdist.launch.mpirun import in_job
from simdist.launch.run import Run, run
from simdist.launch.script import launch_script

__all__ = ["Run", "command_words", "in_job", "launch_script", "run", "share_program", "world"]
