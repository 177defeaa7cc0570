"""Decoding: how much faster a model writes if a smaller one guesses what it will say."""

from simdist.errors import as_declared, require_least, require_share, require_whole

__all__ = ["speculative_speedup"]


@as_declared
def speculative_speedup(acceptance: float, guesses: int, cost: float = 0.0) -> float:
    """(1 - α^(γ+1)) / ((1-α)(γc + 1)): how many times as fast tokens are written by speculative decoding.

    The model checks γ guesses in one pass. It keeps those before the first that it rejects, and adds a token of its
    own: 1 + α + α² + … + α^γ tokens a pass, which is the speedup if guessing costs nothing. It then computes
    (γ+1) / speedup times as much as for one token after another.

        speculative_speedup(0.8, 5)             # 3.69 tokens a pass
        speculative_speedup(0.85, 1, 1 / 61)    # 1.82, of DeepSeek-V3 with one more layer that guesses

    Args:
        acceptance: α, the share of guesses that are accepted, each independently of those before it.
        guesses: γ, for one pass.
        cost: c, the time of a guess as a share of a pass.

    Raises:
        ArgumentError: acceptance is below 0 or not below 1, guesses is no whole number of at least 0, or cost below 0.

    Source: Leviathan, Kalman, Matias 2023, ICML, arXiv 2211.17192, equation 1 and theorems 3.8 and 3.11.
    """
    require_share("acceptance", acceptance)
    require_whole("guesses", guesses, 0)
    require_least("cost", cost, 0)
    return (1 - acceptance ** (guesses + 1)) / ((1 - acceptance) * (guesses * cost + 1))
