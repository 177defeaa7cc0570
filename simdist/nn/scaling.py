"""Scaling: the loss of a language model by its size and the tokens it is trained on, and the best of both.

    L  =  E + A / N^α + B / D^β          N  parameters      D  tokens      C  operations, 6 N D

E is the loss of the text itself, the others are what a finite model and finite training add. For C operations it is
least where α A / N^α = β B / D^β:

    N  =  G (C/6)^(β/(α+β))      D  =  (C/6)^(α/(α+β)) / G      G  =  (α A / β B)^(1/(α+β))

An earlier law has no floor: `kaplan_loss`.

Source: Hoffmann et al. 2022 (Chinchilla), arXiv 2203.15556, section 3.3, equations 4 and 10; Besiroglu et al. 2024,
arXiv 2404.10102.
"""

from dataclasses import dataclass
from math import inf, pow

from simdist.errors import as_declared, require_least, require_more

__all__ = ["LossLaw", "kaplan_loss"]


@dataclass(frozen=True, slots=True)
class LossLaw:
    """The law with these constants; the defaults are Chinchilla's as printed, which is rounded.

    The best model for Gopher's 5.76e23 operations is very different with others:

        LossLaw()                                               # 32 billion parameters, 93 tokens for each
        LossLaw(1.6934, 406.4, 410.7, 0.3392, 0.2849)           # 40, as the paper says: the same with two digits more
        LossLaw(1.8172, 482.01, 2085.43, 0.3478, 0.3658)        # 72, 18 tokens: fitted again (Besiroglu et al.)

    Args:
        floor, model, data: E, in nats a token, A and B.
        model_exponent, data_exponent: α and β.

    Raises:
        ArgumentError: E is below 0, or another not above 0.
    """

    floor: float = 1.69
    model: float = 406.4
    data: float = 410.7
    model_exponent: float = 0.34
    data_exponent: float = 0.28

    def __post_init__(self) -> None:
        require_least("floor", self.floor, 0)
        for name in ("model", "data", "model_exponent", "data_exponent"):
            require_more(name, getattr(self, name), 0)

    @as_declared
    def loss(self, parameters: float, tokens: float) -> float:
        """E + A / N^α + B / D^β, in nats a token.

        Raises:
            ArgumentError: there are no parameters or tokens.
        """
        require_more("parameters", parameters, 0)
        require_more("tokens", tokens, 0)
        finite = self.model / pow(parameters, self.model_exponent)
        return self.floor + finite + self.data / pow(tokens, self.data_exponent)

    @as_declared
    def best(self, flops: float) -> tuple[float, float]:
        """N and D of least loss for C operations, such as those of some devices in some days: see `training_flops`.

        Raises:
            ArgumentError: there are no operations.
        """
        require_more("flops", flops, 0)
        a, b = self.model_exponent, self.data_exponent
        parameters = pow(a * self.model / (b * self.data) * pow(flops / 6, b), 1 / (a + b))
        return parameters, flops / 6 / parameters


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
