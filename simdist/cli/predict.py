"""The verb `predict`."""

import argparse

from simdist.cli.plan_options import add_where, command, given_of, left_out
from simdist.cli.settings import add_options
from simdist.planning import Workbench, details, fit_text, fitted_efficiency, headline, planned, run_text, table
from simdist.planning import execute as carried_out
from simdist.planning.fitting import check_measured
from simdist.planning.scope import check_known
from simdist.training import Config

__all__ = ["add_arguments", "execute"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The cluster, and the run."""
    parser.usage = "simdist predict --cluster NAME --ranks N [OPTION …]"
    parser.epilog = (
        "For example: simdist predict --cluster h100 --ranks 8 --model gpt2-xl --flash-attention --precision bf16 "
        "--batch 16 --zero 3. "
        "Options that you leave out have the defaults of `simdist train` (`simdist plan` searches them); the model is "
        "a GPT unless --model says mlp. The time of a step is composed of the times of its parts on the modelled "
        "cluster, each beside the papers' formula, and with --execute beside the executed time. The last line is the "
        "command that executes the run on that cluster, without data."
    )
    where = add_where(parser)
    told = "of a step of this run on your cluster: also print the flops_efficiency with which it is predicted"
    where.add_argument("--measured", type=float, metavar="SECONDS", help=told)
    add_options(parser)


def execute(args: argparse.Namespace) -> int:
    """Predict, and print the details."""
    if args.measured is not None:
        check_measured("--measured", args.measured)
    given, bench = given_of(args), Workbench(args.cluster, args.ranks)
    check_known(given)
    config = Config(**given | {"device": "phantom"})
    plan = planned(config, bench)
    print(headline(config, bench), *left_out(given, config, bench), "", *table([plan], bench), "", sep="\n")
    print(*details(plan, bench, carried_out(config, bench) if args.execute else None), sep="\n")
    fits = plan.num_bytes <= bench.cluster.device.memory_bytes
    print(fit_text(plan.num_bytes, bench.cluster), *([] if fits else ["simdist plan searches ways that fit"]), sep="; ")
    if "steps" in given:
        print(run_text(plan, bench))
    if args.measured is not None:
        share = fitted_efficiency(config, bench.cluster, args.ranks, args.measured)
        print(f"a step of {args.measured:g} s is predicted with flops_efficiency = {share:.3g}, of [device] in a file")
    print()
    print(command(args, given, config))
    return 0
