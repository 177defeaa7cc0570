"""Scaling: the loss of a language model by its size and the tokens it is trained on, and the best of both.

    L  =  E + A / N^α + B / D^β          N  parameters      D  tokens      C  operations, 6 N D

E is the loss of the text itself, the others are what a finite model and finite training add. For C operations it is
least where α A / N^α = β B / D^β:

    N  =  G (C/6)^(β/(α+β))      D  =  (C/6)^(α/(α+β)) / G      G  =  (α A / β B)^(1/(α+β))

Source: Hoffmann et al. 2022 (Chinchilla), arXiv 2203.15556, section 3.3, equations 4 and 10; Besiroglu et al. 2024,
arXiv 2404.10102.
"""

from dataclasses import dataclass
from math import pow

from simdist.errors import as_declared, require_least, require_more

__all__ = ["LossLaw"]


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
