"""Hosts: several machines on one, each a set of Linux namespaces with a network, a name and memory of its own.

    h1 ---- bridge ---- h2        ranks reach each other through the bridge only, as over Ethernet

Needs root and the programs unshare, nsenter and ip; a container may forbid what they do.
"""

import os
import select
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from jobs import ROOT, Done

from simdist.launch.mpirun import find_mpirun

_SPACES = ("--net", "--uts", "--mount", "--ipc")  # with one IPC namespace for all, UCX would use shared memory


class Hosts:
    """Hosts h1, h2, … on a bridge, until `close`.

    Args:
        count: how many.
        folder: for their files.

    Raises:
        OSError, subprocess.SubprocessError: they cannot be made here.
    """

    def __init__(self, count: int, folder: Path) -> None:
        self.names = [f"h{i + 1}" for i in range(count)]
        self._folder = folder
        self._processes: dict[str, subprocess.Popen] = {}
        for program in ("unshare", "nsenter", "ip"):
            if shutil.which(program) is None:
                raise OSError(f"there is no {program}")
        addresses = "".join(f"10.77.0.{i + 1} {name}\n" for i, name in enumerate(self.names))
        (folder / "hosts").write_text(Path("/etc/hosts").read_text() + addresses)
        try:
            self._open("bridge", "ip link set lo up; ip link add br0 type bridge; ip link set br0 up")
            for i, name in enumerate(self.names):
                self._add(name, f"10.77.0.{i + 1}/24")
        except BaseException:
            self.close()
            raise
        self._agent = folder / "on"  # what an MPI calls for ssh: options, a host, and words for a shell
        pids = "".join(f"{name}) pid={self._processes[name].pid};;\n" for name in self.names)
        self._agent.write_text(
            '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\ncase $1 in\n' + pids + "esac\nshift\n"
            f'exec nsenter -t $pid {" ".join(_SPACES)} -- sh -c "$*"\n'
        )
        self._agent.chmod(0o700)

    def _open(self, name: str, script: str) -> None:
        """Make a set of namespaces, in which the script has run when this returns."""
        words = ["unshare", *_SPACES, "sh", "-ec", f"{script}; echo ready; exec sleep 1000"]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self._processes[name] = process
        said = process.stdout.readline() if select.select([process.stdout], [], [], 30.0)[0] else "no answer"
        if said != "ready\n":
            raise OSError(f"cannot make namespaces: {said.strip()}")

    def _add(self, name: str, address: str) -> None:
        mounts = f"mount --bind {self._folder}/hosts /etc/hosts; mount -t tmpfs shm /dev/shm"
        self._open(name, f"hostname {name}; {mounts}; ip link set lo up")
        host, bridge = (str(self._processes[each].pid) for each in (name, "bridge"))
        # UCX uses no interface of another name.
        _call("ip", "link", "add", name, "netns", bridge, "type", "veth", "peer", "name", "eth0", "netns", host)
        self.link(name, "master", "br0", "up")
        _call(*self._inside(name), "ip", "addr", "add", address, "dev", "eth0")
        _call(*self._inside(name), "ip", "link", "set", "eth0", "up")

    def link(self, name: str, *words: str) -> None:
        """Change the bridge's end of a host's cable: "up", or "down"."""
        _call(*self._inside("bridge"), "ip", "link", "set", name, *words)

    def processes(self, name: str) -> list[Path]:
        """All processes on a host, as folders of /proc, except for the one that holds its namespaces."""
        holder, found = Path("/proc", str(self._processes[name].pid)), []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if process != holder and (process / "ns/net").readlink() == (holder / "ns/net").readlink():
                    found.append(process)
        return found

    def ranks(self) -> list[str]:
        """The command lines of the ranks that are left on any host."""
        lines = []
        for process in (each for name in self.names for each in self.processes(name)):
            with suppress(OSError):
                lines.append((process / "cmdline").read_text().replace("\0", " "))
        return [line for line in lines if line.startswith(sys.executable)]

    def kill(self, name: str) -> None:
        """Kill all processes on a host."""
        for process in self.processes(name):
            with suppress(OSError):
                os.kill(int(process.name), signal.SIGKILL)

    def start(self, per_host: int, *command: str, **variables: str) -> subprocess.Popen:
        """Start so many ranks on each host, of a script or `-m` module, from the first host on."""
        mpirun, ranks = find_mpirun(), per_host * len(self.names)
        if mpirun.kind == "openmpi":
            agent = ["--bind-to", "none", "--mca", "plm", "ssh", "--mca", "plm_ssh_agent", str(self._agent)]
            places = ["--host", ",".join(f"{name}:{per_host}" for name in self.names)]
        else:
            agent = ["-launcher", "rsh", "-launcher-exec", str(self._agent)]
            places = ["-hosts", ",".join(self.names), "-ppn", str(per_host)]
        words = [str(mpirun.path), *agent, *places, "-n", str(ranks)]
        told = [f"{name}={value}" for name, value in {"OMP_NUM_THREADS": "1", **variables}.items()]
        return subprocess.Popen(
            [*self._inside(self.names[0]), *words, "env", *told, sys.executable, *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
            env=mpirun.variables(ranks, self._folder),
        )

    def end_of(self, job: subprocess.Popen, timeout_s: float = 60.0) -> Done:
        """How a job ended. It is killed if it does not, which is an error unless only Open MPI's mpirun has stayed: now
        and then it does, though all ranks have ended.
        """
        try:
            output, _ = job.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            ranks = self.ranks()
            for name in self.names:
                self.kill(name)
            output, _ = job.communicate()
            if ranks or find_mpirun().kind != "openmpi":
                raise AssertionError(f"the job did not end within {timeout_s} s:\n{output[-5000:]}") from None
        return Done(job.returncode, output)

    def _inside(self, name: str) -> list[str]:
        return ["nsenter", "-t", str(self._processes[name].pid), *_SPACES, "--"]

    def close(self) -> None:
        """End all processes on them, and so the hosts."""
        for name, process in self._processes.items():
            if name in self.names:
                self.kill(name)
            process.kill()
            process.communicate()


def _call(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, timeout=30)
