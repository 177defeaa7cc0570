"""Schedule: the learning rate at each step of a run."""

import math

__all__ = ["warmup_cosine"]


def warmup_cosine(step: int, steps: int, peak: float, warmup_steps: int, floor: float = 0.0) -> float:
    """The learning rate of step 0 … steps-1: it climbs to `peak` in a line, then falls to `floor` * peak in
    half a cosine wave.

        peak            .--.
                      /      `.
                    /           `.
        floor     /                `--
                  | warmup |

    Source: Goyal et al. 2017, arXiv 1706.02677, section 2.2 (warm-up); Loshchilov and Hutter 2017,
    arXiv 1608.03983, equation 5 (cosine).
    """
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    done = (step - warmup_steps) / max(1, steps - warmup_steps)
    return peak * (floor + (1 - floor) * (1 + math.cos(math.pi * min(1.0, done))) / 2)
