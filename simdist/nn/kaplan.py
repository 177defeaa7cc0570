"""Kaplan: the first laws of the loss of a language model, by its size, its tokens, its steps and its operations.

They have no floor, and of more operations a larger model takes most. `simdist.nn.scaling` has later ones.

Source: Kaplan et al. 2020, arXiv 2001.08361.
"""

from math import inf, pow
from typing import NamedTuple

from simdist.errors import as_declared, require_more

__all__ = ["KaplanBest", "kaplan_best", "kaplan_loss", "kaplan_steps_loss"]

_PETAFLOP_DAY = 1e15 * 86400


@as_declared
def kaplan_loss(
    parameters: float = inf,
    tokens: float = inf,
    *,
    model: float = 8.8e13,
    data: float = 5.4e13,
    model_exponent: float = 0.076,
    data_exponent: float = 0.095,
) -> float:
    """((N_c/N)^(α/β) + D_c/D)^β, in nats a token; (N_c/N)^α with data enough, (D_c/D)^β of a model large enough.

        kaplan_loss(1.5e9)                              # 2.30; of a model twice as large 5% less
        kaplan_loss(tokens=22e9)                        # 2.10

    Args:
        parameters: N, without embeddings: see `simdist.nn.formulas.num_parameters`.
        tokens: D.
        model, data, model_exponent, data_exponent: N_c, D_c, α and β of one limit at a time; fitted together, where
            both count, 6.4e13, 1.8e13, 0.076 and 0.103.

    Raises:
        ArgumentError: a number is not above 0.

    Source: Kaplan et al. 2020, arXiv 2001.08361, equations 1.1, 1.2 and 1.5, table 2.
    """
    sizes = {"parameters": parameters, "tokens": tokens, "model": model, "data": data}
    for name, number in (sizes | {"model_exponent": model_exponent, "data_exponent": data_exponent}).items():
        require_more(name, number, 0)
    return pow(pow(model / parameters, model_exponent / data_exponent) + data / tokens, data_exponent)


@as_declared
def kaplan_steps_loss(
    parameters: float,
    steps: float,
    *,
    model: float = 6.5e13,
    least: float = 2.1e3,
    model_exponent: float = 0.077,
    steps_exponent: float = 0.76,
) -> float:
    """(N_c/N)^α + (S_c/S)^β, in nats a token, of a run that stops after some steps.

    It costs least to stop where the second term is α/β of the first, 10%: down to 2%, a model 2.7 times smaller takes
    7.7 times the steps, and 2.8 times the operations, to the same loss.

        steps = 1e5 / batch_trade(5e5, critical_tokens(2.6)).steps          # of 100,000 with half a million tokens
        kaplan_steps_loss(1.3e9, steps)                                     # 2.49

    Args:
        parameters: N, as of `kaplan_loss`.
        steps: S, with batches much larger than the critical one: of others divide them by
            `simdist.optim.batch_trade(batch, critical).steps`.
        model, least, model_exponent, steps_exponent: N_c, S_c, α and β.

    Raises:
        ArgumentError: a number is not above 0.

    Source: Kaplan et al. 2020, arXiv 2001.08361, equations 1.6 and 5.4, table 3, appendix B.
    """
    sizes = {"parameters": parameters, "steps": steps, "model": model, "least": least}
    for name, number in (sizes | {"model_exponent": model_exponent, "steps_exponent": steps_exponent}).items():
        require_more(name, number, 0)
    return pow(model / parameters, model_exponent) + pow(least / steps, steps_exponent)


class KaplanBest(NamedTuple):
    """What some operations are best spent on, by the law of Kaplan et al.

    Attributes:
        loss: in nats a token, with batches much smaller than batch_tokens; as large ones take twice the operations.
        parameters: without embeddings.
        tokens: read once each.
        batch_tokens: the critical batch size: see `simdist.optim.batch_trade`.
        steps: the least of them.
    """

    loss: float
    parameters: float
    tokens: float
    batch_tokens: float
    steps: float


@as_declared
def kaplan_best(flops: float) -> KaplanBest:
    """(3.1e8/C)^0.050 is the least loss for C petaflop-days, and so on: a larger model takes most of C, N ~ C^0.73.

        kaplan_best(8.64e19)                            # a petaflop-day: 2.66, for 1.3 billion parameters

    `simdist.nn.formulas.LossLaw` takes as many more tokens as parameters; one reason is that this one's runs had the
    same schedule of the learning rate, however many tokens they read.

    Args:
        flops: C, of the whole run.

    Raises:
        ArgumentError: there are no operations.

    Source: Kaplan et al. 2020, arXiv 2001.08361, equation 1.3 and appendix A, tables 5 and 6; Hoffmann et al. 2022,
    section 2 (the reason).
    """
    require_more("flops", flops, 0)
    c = flops / _PETAFLOP_DAY
    sizes = 1.3e9 * pow(c, 0.73), 2e10 * pow(c, 0.27), 2e6 * pow(c, 0.24), 5.4e3 * pow(c, 0.03)
    return KaplanBest(pow(3.1e8 / c, 0.05), *sizes)
