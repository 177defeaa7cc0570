"""The GPT of benchmarks.training in PyTorch: one rank of its DistributedDataParallel over gloo.

    python -m benchmarks.pytorch_ddp '{"rank": 0, "ranks": 2, "store": "/tmp/a-new-file", …}'

Prints the seconds of each step on this rank as a JSON list. benchmarks.training starts the ranks.
"""

import contextlib
import json
import sys
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["main"]

_TIMEOUT = timedelta(seconds=60)
_STD = 0.02


class Block(nn.Module):
    """Attention and an MLP, each with a residual connection."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.attended = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.hidden, self.thought = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(n, t, width) to the same."""
        n, t, width = x.shape
        parts = self.qkv(self.norm1(x)).split(width, dim=2)
        q, k, v = (part.view(n, t, self.heads, -1).transpose(1, 2) for part in parts)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(n, t, width)
        x = x + self.attended(y)
        hidden: Tensor = functional.gelu(self.hidden(self.norm2(x)), approximate="tanh")
        return x + self.thought(hidden)


class GPT(nn.Module):
    """The loss of a batch of windows, with tied logits."""

    def __init__(self, layers: int, width: int, heads: int, context: int, vocabulary: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=_STD)

    def forward(self, windows: Tensor) -> Tensor:
        """(n, context + 1) to the mean loss in nats."""
        x = self.tokens(windows[:, :-1]) + self.places.weight
        logits = self.norm(self.blocks(x)) @ self.tokens.weight.T
        return functional.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())


def _seconds(model: nn.Module, parameters: Any, settings: dict[str, Any]) -> list[float]:
    """The time of each step, after a warm-up step."""
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, weight_decay=0.1, fused=True)
    sizes, seconds = settings["shape"], []
    for _ in range(settings["steps"] + 1):
        windows = torch.randint(sizes["vocabulary"], (settings["batch"], sizes["context"] + 1))
        if settings["ranks"] > 1:
            dist.barrier()
        start_s = time.perf_counter()
        optimizer.zero_grad()
        model(windows).backward()
        optimizer.step()
        seconds.append(time.perf_counter() - start_s)
    return seconds[1:]


def main() -> None:
    """Take the settings from the command line, train, print."""
    settings = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    torch.manual_seed(settings["rank"])
    gpt = GPT(**settings["shape"])
    with contextlib.ExitStack() as stack:
        model: nn.Module = gpt
        if settings["ranks"] > 1:
            store = f"file://{settings['store']}"
            dist.init_process_group("gloo", store, _TIMEOUT, settings["ranks"], settings["rank"])
            stack.callback(dist.destroy_process_group)
            model = nn.parallel.DistributedDataParallel(gpt)
        print(json.dumps(_seconds(model, gpt.parameters(), settings)))


if __name__ == "__main__":
    main()
