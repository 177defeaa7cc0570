"""Training job: a training run on one rank of its job; rank 0 prints and writes files."""

import json
import shlex
import signal
from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from simdist.cluster import Cluster, calibrated
from simdist.comm import Communicator
from simdist.comm.ping_pong import ping_pong
from simdist.environment import crowding
from simdist.launch import command_words
from simdist.parallel.precision import precision
from simdist.trace import Trace
from simdist.training import Config, Interrupts, Progress, Report, RunFolder, Trainer, history, report
from simdist.training.asynchronous.methods import asynchronous_methods
from simdist.training.asynchronous.report import report as asynchronous_report
from simdist.training.asynchronous.run import AsynchronousRun
from simdist.training.checkpoint.together import on_rank_0
from simdist.training.folder import CHECKPOINTS
from simdist.training.peak import matmul_flops_per_s
from simdist.training.pipeline_report import taken_by_all
from simdist.training.report import experts_words
from simdist.training.text import Text

__all__ = ["TrainingJob"]

_SHOWN_BYTES = 60  # of a prompt


@dataclass(frozen=True)
class TrainingJob:
    """What to train, and where to write; the same on all ranks.

    Args:
        config: of the run.
        out: the folder for its files; None for a new one.
        resume: the folder of the run to continue.
        text: the config's text, if it has already been read.
        cluster: for virtual ranks, the machine that they run on and that predictions are for; None to measure this
            machine.
    """

    config: Config
    out: str | None = None
    resume: str | None = None
    text: Text | None = None
    cluster: Cluster | None = None

    def train(self, comm: Communicator) -> int:
        """The whole run on one rank. Returns the exit code."""
        config = self.config

        def tell(step: int, loss: float) -> None:
            print(f"rank {comm.rank} comes to step {step} of {config.steps}, with a loss of {loss:.4f}", flush=True)

        phantom = config.device == "phantom"  # has no checkpoint to write, so a signal ends it at once
        with nullcontext() if phantom else Interrupts() as asked:
            run: Trainer | AsynchronousRun
            if config.method in asynchronous_methods():
                run = AsynchronousRun(comm, config, text=self.text, tell=tell)
            else:
                run = Trainer(comm, config, text=self.text)
            changes = run.resume(Path(self.resume) / CHECKPOINTS) if self.resume is not None else []
            begun = run.done
            folder, run.checkpoints = self._folder(comm, begun)
            notes = self._notes(begun, changes, folder, comm) if folder else []
            with closing(folder) if folder else nullcontext():
                self._train(run, asked, folder, notes)
                if isinstance(run, Trainer):
                    self._finish(run, folder)
                else:
                    self._finish_asynchronously(run, folder, begun)
        # Not 0 on rank 0 only, which is the last to exit: another rank would end the job while rank 0 is drawing.
        return 0 if run.stopped is None or run.comm.rank else 128 + run.stopped

    def _folder(self, comm: Communicator, done: int) -> tuple[RunFolder | None, Path]:
        """Rank 0's folder for this run's files, and the path of the checkpoints of all ranks."""
        made: list[RunFolder] = []

        def make() -> str:
            made.append(self._made(comm.size, done))
            if self.cluster:
                made[0].write_cluster(self.cluster)
            return str(made[0].path)

        path = Path(on_rank_0(comm, make))
        return (made[0] if made else None), path / CHECKPOINTS

    def _made(self, p: int, done: int) -> RunFolder:
        """The given folder, or else that of the run that this one continues, or a new one."""
        config = self.config
        if self.resume is not None:
            path = self.out or self.resume
            again = Path(path).resolve() == Path(self.resume).resolve()
            return RunFolder(path, config, *history(self.resume, done), again=again)
        method = f"-{config.method}" if config.method in asynchronous_methods() else ""
        name = f"{config.model}{method}-{p}rank{'s' if p > 1 else ''}"
        return RunFolder(self.out, config) if self.out else RunFolder.fresh(name, config)

    def _train(
        self, run: Trainer | AsynchronousRun, asked: Interrupts | None, folder: RunFolder | None, notes: Sequence[str]
    ) -> None:
        """Train; rank 0 prints these notes and the progress: without a common step whenever all ranks have stopped."""
        if folder is None:
            for _ in run.run(asked):
                pass
            return
        in_step, shown = isinstance(run, Trainer), _num_losses(run.config)
        with Progress(run.config.steps, run.done, folder.say, num_losses=shown, bar=in_step) as progress:
            for text in notes:
                progress.say(text)
            if in_step and run.comm.device.words:
                progress.say(f"on {run.comm.device.words}")
            if shown == 2:
                of_bytes, of_pairs = run.text.unigram_entropy, run.text.bigram_entropy
                told = f"entropy {of_bytes:.4f} nats, given the previous byte {of_pairs:.4f}"
                progress.say(f"bytes of the validation text: {told}")
            diverged = False
            for found in run.run(asked):
                for line in found if isinstance(found, list) else [found]:
                    progress.step(line)
                    if line:
                        folder.write_line(line)
                if run.diverged_at and not diverged:
                    progress.say(f"the loss of step {run.diverged_at} is not finite: the run has diverged")
                    diverged = True
            if run.stopped:
                progress.say(self._stopped(run.stopped, run.done, folder, run.comm))

    def _notes(self, begun: int, changes: Sequence[str], folder: RunFolder, comm: Communicator) -> list[str]:
        """What is said at the start: how a resumed run differs, and how to go on from the checkpoints on the way, as
        nobody may be left to say it later.
        """
        notes = []
        if begun:
            notes.append(f"goes on after step {begun}" + (f", with {'; '.join(changes)}" if changes else ""))
        if every := self.config.checkpoint_every:
            resume = self._resume_command(folder, comm)
            notes.append(f"checkpoints every {every} steps; from the last one go on with: {resume}")
        return notes

    def _stopped(self, by: signal.Signals, done: int, folder: RunFolder, comm: Communicator) -> str:
        more = f"; go on with: {self._resume_command(folder, comm)}" if done < self.config.steps else ", the last"
        return f"stopped by {by.name} after step {done}{more}"

    def _resume_command(self, folder: RunFolder, comm: Communicator) -> str:
        """The command that resumes the run, in the same world with the same number of ranks."""
        world = ["--world", "virtual"] if self.cluster else []
        ranks = ["--ranks", str(comm.size)] if self.cluster or comm.size > 1 else []
        return shlex.join([*command_words(), "train", *world, *ranks, "--resume", str(folder.path)])

    def _finish(self, trainer: Trainer, folder: RunFolder | None) -> None:
        """Write and print the results; without samples if the run was stopped, so that it ends soon."""
        comm, trace, took = trainer.comm, trainer.trace(), taken_by_all(trainer)
        peaks = [int(told) for told in comm.exchange(str(trainer.ledger.peak.total))]
        samples = _samples(trainer, folder)
        cluster, peak_flops_per_s = self._machine(trainer)
        if folder and trace is not None:
            from simdist.planning import fit_text

            lines, _ = history(folder.path, trainer.done)
            told = report(trainer, lines[-1], trace, cluster, peak_flops_per_s, took)
            self._add_circumstances(told, comm, trace)
            if self.cluster:
                most = max(peaks)
                told.summary.append(fit_text(most, self.cluster, f"rank {peaks.index(most)}, the fullest,"))
            # Here, because the other ranks need not load Matplotlib.
            from simdist.cli.pictures import draw

            figures = partial(draw, folder.path, lines, trace, trainer, cluster)
            _write_results(folder, told, trace, samples, figures)

    def _machine(self, trainer: Trainer) -> tuple[Cluster, float]:
        """The cluster that predictions are for, on rank 0, and the highest rate of a rank. All ranks must call."""
        comm, cluster = trainer.comm, trainer.comm.cluster
        if self.cluster:
            return cluster, cluster.device.flops_per_s
        # Predictions are for this machine as it is now: messages between all pairs of ranks at once.
        if comm.size > 1:
            measured = ping_pong(comm, _message_sizes(trainer), cold=True)
            if not comm.rank:
                cluster = calibrated(*measured).with_(devices_per_node=comm.nodes.most)
        kept = precision(trainer.config.precision)
        return cluster, matmul_flops_per_s(comm, comm.device.factor_dtype(kept.dtype, kept.master_dtype))

    def _add_circumstances(self, told: Report, comm: Communicator, trace: Trace) -> None:
        """Add notes on how to interpret the times."""
        streams = {span.stream for span in trace.spans if span.rank == comm.rank and span.seconds}
        if comm.device.words:
            told.summary.append(f"on {comm.device.words}")
        if self.cluster:
            told.summary.append(f"ranks are virtual, and times those of a model of {self.cluster.name}")
        elif crowded := crowding(len(comm.nodes.neighbours(comm.rank)), len(streams)):
            told.summary.append(crowded)

    def _finish_asynchronously(self, run: AsynchronousRun, folder: RunFolder | None, begun: int) -> None:
        """Write and print the results; see `_finish`."""
        results = run.results()
        samples = _samples(run, folder)
        if folder and results:
            lines, _ = history(folder.path, run.done)
            told = asynchronous_report(results, run.text)
            if run.config.experts and lines:
                told.summary.append(experts_words(lines[-1], results.trace))
            self._add_circumstances(told, run.comm, results.trace)
            from simdist.cli.pictures import draw_asynchronous

            figures = partial(draw_asynchronous, folder.path, lines, begun, results, run.text)
            _write_results(folder, told, results.trace, samples, figures)


def _samples(run: Trainer | AsynchronousRun, folder: RunFolder | None) -> list[tuple[bytes, bytes]]:
    """The texts that the model writes at the end, if configured and the run was not stopped; all ranks must call."""
    if not run.config.sample_bytes or run.stopped:
        return []
    if folder:
        print(f"sampling texts of {run.config.sample_bytes} bytes, one byte at a time", flush=True)
    return run.samples()


def _num_losses(config: Config) -> int:
    """How many losses a run has: one of phantoms none, another that of training and, if it validates, of that."""
    return 0 if config.device == "phantom" else 1 + (config.validation_windows > 0)


def _tell(folder: RunFolder, text: str) -> None:
    print(text, flush=True)
    folder.say(text)


def _write_results(
    folder: RunFolder, told: Report, trace: Trace, samples: Sequence[tuple[bytes, bytes]], draw: Callable[[], None]
) -> None:
    """Print the report and a sample, then write all: on a full disk, too, the user sees what came out."""
    _tell(folder, f"\n{told}\n")
    if samples:
        _tell(folder, f"after {_quoted(samples[0][0][-_SHOWN_BYTES:])} it writes {_quoted(samples[0][1])}\n")
        folder.write_samples(samples)
    folder.write_end(told, trace)
    with folder.writing():
        draw()
    _tell(folder, f"in {folder.path}: {', '.join(sorted(p.name for p in folder.path.iterdir()))}")


def _quoted(text: bytes) -> str:
    """The text as one line, without characters that would act on the terminal."""
    told = json.dumps(text.decode("utf-8", errors="replace"), ensure_ascii=False)
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in told)


def _message_sizes(trainer: Trainer) -> list[int]:
    """In bytes: tiny messages, for the latency, and those of the gradient's reduction, for the bandwidth; on the rank
    with the largest part of the model. All ranks must call.
    """
    size = max(map(int, trainer.comm.exchange(str(trainer.method.model.parameters.size))))
    n = size * precision(trainer.config.precision).dtype.itemsize
    return sorted({64, 1024, max(4096, n // trainer.comm.size), max(8192, n // 2)})
