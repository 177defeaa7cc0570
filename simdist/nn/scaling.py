"""Scaling: the loss of a language model by its size and the tokens it is trained on, and the best of both.

    L  =  E + A / N^α + B / D^β          N  parameters      D  tokens      C  operations, 6 N D

E is the loss of the text itself, the others are what a finite model and finite training add. For C operations it is
least where α A / N^α = β B / D^β:

    N  =  G (C/6)^(β/(α+β))      D  =  (C/6)^(α/(α+β)) / G      G  =  (α A / β B)^(1/(α+β))

An earlier law has no floor: `simdist.nn.kaplan`; a later one, `deepseek_best`, says batch and rate, too, as does
`step_law` for any model and tokens. Of tokens that are read several times all take `repeated_tokens`.

Source: Hoffmann et al. 2022 (Chinchilla), arXiv 2203.15556, section 3.3, equations 4 and 10; Besiroglu et al. 2024,
arXiv 2404.10102.
"""

from dataclasses import dataclass
from math import expm1, pow
from typing import NamedTuple

from simdist.errors import as_declared, require_least, require_more

__all__ = [
    "DeepSeekBest",
    "LossLaw",
    "StepLaw",
    "deepseek_best",
    "repeated_tokens",
    "step_law",
]


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

    @as_declared
    def best_tokens(self, parameters: float) -> float:
        """D at which N is the best size for the operations that its training takes: (β B N^α / α A)^(1/β).

        Of the refitted constants 1.3 trillion for 70 billion parameters, nearly Chinchilla's own 1.4. With many more
        tokens a larger model would have less loss for as many operations, with fewer a smaller one.

        Raises:
            ArgumentError: there are no parameters.
        """
        require_more("parameters", parameters, 0)
        a, b = self.model_exponent, self.data_exponent
        return pow(b * self.data * pow(parameters, a) / (a * self.model), 1 / b)

    @as_declared
    def needed_tokens(self, parameters: float, loss: float) -> float:
        """D with which N parameters reach this loss: (B / (L - E - A/N^α))^(1/β).

        Training takes 6 N D operations, and using the model 2 N a token: the more it is used, the smaller the model
        that takes the fewest of both, and the more tokens it is trained on.

        Raises:
            ArgumentError: there are no parameters, or so few do not reach such a loss, however long they are trained.

        Source: Sardana, Portes, Doubov, Frankle 2024, arXiv 2401.00448, section 2.
        """
        require_more("parameters", parameters, 0)
        least = self.floor + self.model / pow(parameters, self.model_exponent)
        require_more("loss", loss, least)
        return pow(self.data / (loss - least), 1 / self.data_exponent)


class DeepSeekBest(NamedTuple):
    """What some operations are best spent on, and how, by the laws of DeepSeek LLM.

    Attributes:
        flops_per_token: M, the size of the model: 72 l h² + 12 l h s, with attention and without the vocabulary, which
            `megatron_flops(l, h, 0, s, 1 / s, "none")` is.
        tokens: D, so that C = M D.
        batch_tokens: of a step.
        learning_rate: of AdamW, at its highest.
    """

    flops_per_token: float
    tokens: float
    batch_tokens: float
    learning_rate: float


@as_declared
def deepseek_best(flops: float) -> DeepSeekBest:
    """M = 0.1715 C^0.5243, D = 5.8316 C^0.4757, B = 0.2920 C^0.3271 and η = 0.3118 C^-0.1250 for C operations.

        deepseek_best(2e12 * 4.23e10)                   # DeepSeek 7B's: batches of 9.2 million tokens, a rate of 4.2e-4

    Batch and rate belong to C, whatever it is spent on.

    Args:
        flops: C, of the whole run.

    Raises:
        ArgumentError: there are no operations.

    Source: DeepSeek-AI 2024, arXiv 2401.02954, section 3, equations 1 and 4.
    """
    require_more("flops", flops, 0)
    return DeepSeekBest(
        0.1715 * pow(flops, 0.5243),
        5.8316 * pow(flops, 0.4757),
        0.2920 * pow(flops, 0.3271),
        0.3118 * pow(flops, -0.1250),
    )


class StepLaw(NamedTuple):
    """How a model is best trained: the tokens of a step, and AdamW's learning rate at its highest."""

    batch_tokens: float
    learning_rate: float


@as_declared
def step_law(parameters: float, tokens: float) -> StepLaw:
    """B = 0.58 D^0.571 and η = 1.79 N^-0.713 D^0.307: the more tokens, the larger the batch, whatever the model.

        step_law(1e9, 100e9)                            # batches of 1.1 million tokens, a rate of 1.6e-3

    Args:
        parameters: N, without embeddings.
        tokens: D, of the whole run.

    Raises:
        ArgumentError: there are no parameters or tokens.

    Source: Li et al. 2025, arXiv 2503.04715.
    """
    require_more("parameters", parameters, 0)
    require_more("tokens", tokens, 0)
    return StepLaw(0.58 * pow(tokens, 0.571), 1.79 * pow(parameters, -0.713) * pow(tokens, 0.307))


@as_declared
def repeated_tokens(unique: float, epochs: float, decay: float = 15.39) -> float:
    """U + U R* (1 - exp(-R/R*)): how many new tokens U tokens are worth that are read 1 + R times.

    Four epochs are worth nearly as much as new tokens, 3.7 times U; beyond forty there is little left to gain, and no
    number of them is worth more than 1 + R* times U.

        LossLaw().loss(7e9, repeated_tokens(100e9, epochs=4))

    Args:
        unique: U.
        epochs: 1 + R.
        decay: R*; so many repetitions are worth 1 - 1/e of as many times U, and each further one less.

    Raises:
        ArgumentError: unique or decay is not above 0, or epochs less than 1.

    Source: Muennighoff et al. 2023, arXiv 2305.16264, section 3.
    """
    require_more("unique", unique, 0)
    require_more("decay", decay, 0)
    require_least("epochs", epochs, 1)
    return unique * (1 - decay * expm1((1 - epochs) / decay))
