"""Papers: their formulas for a plan, with devices and links at peak rates and without interference."""

from dataclasses import replace
from typing import NamedTuple

from simdist.nn.formulas import megatron_flops, megatron_tensor_elements
from simdist.nn.memory import Cut, paper_activation_bytes
from simdist.parallel.pipeline import mean_memory, paper
from simdist.parallel.zero.formulas import paper_elements, paper_kept
from simdist.planning.job import Job
from simdist.planning.stages import num_passes, stage_times
from simdist.planning.step import Step
from simdist.training.models import shape

__all__ = ["PaperCosts", "papers"]


class PaperCosts(NamedTuple):
    """Seconds of a step, and bytes of the rank with the highest peak; None where the papers have no formula.

    Attributes:
        computing_s: a GPT's operations, divided evenly: Narayanan et al. 2021, arXiv 2104.04473, equation 3.
        sharing_s: of tensor parallelism, four all-reduces per block and micro-batch: Shoeybi et al. 2019, arXiv
            1909.08053, section 3.
        bubble_s: the idle time of the schedule: see `simdist.parallel.pipeline.formulas`.
        sending_s: gradients, and weights if ZeRO sends them, overlapped or not: Rajbhandari et al. 2020,
            arXiv 1910.02054, section 7.
        memory: by category; with activations of 2 bytes as in Korthikanti et al. 2022, arXiv 2205.05198, table 2, or of
            a pipeline as its schedule's paper counts micro-batches: see `simdist.parallel.pipeline.formulas`.
    """

    computing_s: float | None
    sharing_s: float | None
    bubble_s: float | None
    sending_s: float
    memory: dict[str, float]


def papers(job: Job, step: Step, rank: int) -> PaperCosts:
    """All formulas that apply to this job.

    Args:
        step: the predicted one; the bubble is a share of its passes.
        rank: the pipeline stage.
    """
    config, cluster, size = job.config, job.bench.machine(job.config), shape(job.config)
    computing_s = sharing_s = None
    if size is not None and size.in_papers:
        flops = megatron_flops(
            size.layers, size.width, size.vocabulary, size.context, config.global_batch_size, size.recompute
        )
        computing_s = flops / job.bench.ranks / cluster.device.flops_per_s
    plain = size is not None and not size.experts and size.kv_latent_width is None
    if plain and job.sizes["sp"] == 1:
        sharing_s = _sharing_s(job)
    sending_s = _sending_s(job, rank)
    return PaperCosts(computing_s, sharing_s, _bubble_s(job, step), sending_s, _memory(job, rank))


def _sending_s(job: Job, rank: int) -> float:
    """The traffic between the holders of a model, between its copies, and between ranks that share some weights."""
    part, zero, k = job.parts[rank], job.zero_stage, max(1, num_passes(job, rank))
    weights, holders, copies = part.size, len(job.holders.ranks), len(job.copies.ranks)
    between_holders = paper_elements(weights, holders, zero, micro_batches=k)
    between_copies = paper_elements(weights, holders * copies, zero, holders, k) - between_holders
    seconds = between_holders / job.holders.link.bytes_per_s + between_copies / job.copies.link.bytes_per_s
    sums_s = (paper_elements(n, len(group.ranks), 0) / group.link.bytes_per_s for group, n in job.summed(part))
    return seconds * job.itemsize + sum(sums_s)


def _sharing_s(job: Job) -> float:
    """What the ranks of tp send for the blocks of one stage and all micro-batches."""
    config, tp = job.config, job.group("tp")
    sequences = job.windows * config.micro_batches
    elements = megatron_tensor_elements(config.width, config.context_bytes, sequences, len(tp.ranks), config.recompute)
    seconds: float = elements * config.layers / job.sizes["pp"] * job.itemsize / tp.link.bytes_per_s
    return seconds


def _bubble_s(job: Job, step: Step) -> float | None:
    if not job.pipelined:
        return 0.0
    said = paper(job.schedule, replace(stage_times(job), communication=0.0))
    if said is None or said.makespan_rate is None or not said.filled:
        return None
    return step.passes_s * said.makespan_rate / (1 - said.makespan_rate)


def _memory(job: Job, rank: int) -> dict[str, float]:
    """Weights, gradients and optimizer state, as ZeRO's stages shard them; activations, in a pipeline of as many
    micro-batches as its schedule's paper says, each as much as a mean stage keeps.
    """
    size = shape(job.config)
    found = paper_kept(job.recipe, job.parts[rank].parameters, len(job.holders.ranks), job.zero_stage)
    if job.pipelined:
        said = paper(job.schedule, stage_times(job), mean_memory(job.stages, job.sizes["pp"]))
        return found | ({"activations": said.memory[rank]} if said else {})
    if size is None or not size.in_papers or job.sizes["sp"] > 1:
        return found
    cut = Cut(job.sizes["tp"], job.config.sequence_parallel)
    block, around = paper_activation_bytes(size, job.windows, job.itemsize, cut)
    return found | {"activations": float(size.layers * block + around)}
