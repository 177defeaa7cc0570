"""Session: a training run on one rank of its job; rank 0 talks and writes."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from simdist.cluster import Cluster, calibrated
from simdist.comm import Communicator
from simdist.comm.ping_pong import ping_pong
from simdist.environment import num_cores
from simdist.parallel.precision import precision
from simdist.trace import Trace
from simdist.training import Config, Interrupts, Progress, Report, RunFolder, Trainer, history, report, table
from simdist.training.asynchronous.methods import ASYNCHRONOUS
from simdist.training.asynchronous.report import report as asynchronous_report
from simdist.training.asynchronous.run import AsynchronousRun
from simdist.training.folder import CHECKPOINTS
from simdist.training.peak import matmul_flops_per_s
from simdist.training.text import Text

__all__ = ["Session"]

_SHOWN_BYTES = 60  # of a prompt


@dataclass(frozen=True)
class Session:
    """What to train, and where to write; the same on all ranks.

    Args:
        config: of the run.
        out: the folder for it; a new one where not given.
        resume: the folder of the run that it goes on with.
        text: the config's, if it has been read already.
        cluster: the machine that times are of and are predicted for, where ranks are virtual; this machine's is
            measured otherwise.
    """

    config: Config
    out: str | None = None
    resume: str | None = None
    text: Text | None = None
    cluster: Cluster | None = None

    def train(self, comm: Communicator) -> int:
        """The whole run on one rank. Returns the exit code."""
        if self.config.method in ASYNCHRONOUS:
            return self._train_asynchronously(comm)
        with Interrupts() as asked:
            trainer = Trainer(comm, self.config, text=self.text)
            changes = trainer.resume(Path(self.resume) / CHECKPOINTS) if self.resume else []
            folder = self._folder(comm, trainer.done) if comm.rank == 0 else None
            trainer.checkpoints = Path(comm.exchange(str(folder.path) if folder else "")[0]) / CHECKPOINTS
            if folder:
                self._show(trainer, asked, folder, changes)
            else:
                for _ in trainer.run(asked):
                    pass
            self._finish(trainer, folder)
        return 128 + trainer.stopped if trainer.stopped else 0

    def _folder(self, comm: Communicator, done: int = 0) -> RunFolder:
        """Where this run's files go: into those of the run that it goes on with, unless told otherwise."""
        config, p = self.config, comm.size
        if self.resume:
            path = self.out or self.resume
            again = Path(path).resolve() == Path(self.resume).resolve()
            return RunFolder(path, config, *history(self.resume, done), again=again)
        method = f"-{config.method}" if config.method in ASYNCHRONOUS else ""
        name = f"{config.model}{method}-{p}rank{'s' if p > 1 else ''}"
        return RunFolder(self.out, config) if self.out else RunFolder.fresh(name, config)

    def _show(self, trainer: Trainer, asked: Interrupts, folder: RunFolder, changes: list[str]) -> None:
        """Train, and tell how it goes."""
        with Progress(trainer.config.steps, trainer.done, folder.say) as progress:
            if trainer.done:
                otherwise = f", with {'; '.join(changes)}" if changes else ""
                progress.say(f"goes on after step {trainer.done}{otherwise}")
            progress.say(_entropies(trainer.text))
            for line in trainer.run(asked):
                progress.step(line)
                if line:
                    folder.write_line(line)
            if trainer.stopped:
                how = f"go on with: simdist train --resume {folder.path}"
                progress.say(f"stopped by {trainer.stopped.name} after step {trainer.done}; {how}")

    def _finish(self, trainer: Trainer, folder: RunFolder | None) -> None:
        """Write and say what came of it; of a run that was stopped without samples, for somebody waits for its end."""
        comm, config = trainer.comm, trainer.config
        trace = trainer.trace()
        samples = trainer.samples() if config.sample_bytes and not trainer.stopped else []
        cluster = self.cluster
        if cluster:
            peak_flops_per_s = cluster.device.flops_per_s
        else:
            # Predictions are for this machine as it is now: messages between all pairs of ranks at once.
            measured = ping_pong(comm, _message_sizes(trainer))
            cluster = calibrated(*measured) if comm.size > 1 and not comm.rank else comm.cluster
            peak_flops_per_s = matmul_flops_per_s(comm, precision(config.precision).master_dtype)
        if folder:
            from simdist.cli.pictures import draw

            lines, _ = history(folder.path, trainer.done)
            told = report(trainer, lines[-1], trace or Trace([], 1), cluster, peak_flops_per_s)
            self._add_circumstances(told, comm)
            folder.write_end(told, trace or Trace([], 1))
            draw(folder.path, lines, trace or Trace([], 1), trainer)
            _say(folder, told, samples)

    def _add_circumstances(self, told: Report, comm: Communicator) -> None:
        """What times are to be read by."""
        ranks_here, cores = list(comm.nodes).count(comm.node), num_cores()
        if self.cluster:
            told.summary.append(f"ranks are virtual, and times those of a model of {self.cluster.name}")
        elif ranks_here > cores:
            told.summary.append(f"{ranks_here} ranks share {cores} cores, so measured times include waiting for a core")

    # -- without a common step ------------------------------------------------------------------------

    def _train_asynchronously(self, comm: Communicator) -> int:
        """The same for an asynchronous method, whose log is put together when all have ended."""
        config = self.config
        run = AsynchronousRun(comm, config, self.text)
        folder = self._folder(comm) if comm.rank == 0 else None
        if folder:
            _tell(folder, _entropies(run.text))

        def tell(step: int, loss: float) -> None:
            print(f"rank {comm.rank} comes to step {step} of {config.steps}, with a loss of {loss:.4f}", flush=True)

        story = run.run(tell)
        samples = run.samples() if config.sample_bytes else []
        if folder and story:
            from simdist.cli.pictures import draw_asynchronous

            lines = story.lines()
            for line in lines:
                folder.write_line(line)
            _tell(folder, table(lines))
            told = asynchronous_report(story, run.text)
            self._add_circumstances(told, comm)
            folder.write_end(told, story.trace)
            draw_asynchronous(folder.path, lines, story, run.text)
            _say(folder, told, samples)
        return 0


def _entropies(text: Text) -> str:
    return (
        f"bytes of the validation text: entropy {text.unigram_entropy:.4f} nats, "
        f"after the byte before {text.bigram_entropy:.4f}"
    )


def _tell(folder: RunFolder, text: str) -> None:
    folder.say(text)
    print(text, flush=True)


def _say(folder: RunFolder, told: Report, samples: Sequence[tuple[bytes, bytes]]) -> None:
    """The last words."""
    words = [f"\n{told}\n"]
    if samples:
        folder.write_samples(samples)
        words.append(f"after {_quoted(samples[0][0][-_SHOWN_BYTES:])} it writes {_quoted(samples[0][1])}\n")
    words.append(f"in {folder.path}: {', '.join(sorted(p.name for p in folder.path.iterdir()))}")
    _tell(folder, "\n".join(words))


def _quoted(text: bytes) -> str:
    """In one line."""
    return json.dumps(text.decode("utf-8", errors="replace"), ensure_ascii=False)


def _message_sizes(trainer: Trainer) -> list[int]:
    """In bytes: next to nothing, for the latency, and what the gradient's reduction sends, for the bandwidth."""
    n = trainer.method.model.parameters.size * precision(trainer.config.precision).dtype.itemsize
    return sorted({64, max(4096, n // trainer.comm.size), max(8192, n // 2)})
