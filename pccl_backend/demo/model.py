"""A character-level GPT small enough to learn something in a minute on half a processor core."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["CharGpt", "loss_of"]


class Block(nn.Module):
    """Causal attention, then a two-layer perceptron, each beside a residual path."""

    def __init__(self, *, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.queries_keys_values = nn.Linear(width, 3 * width, bias=False)
        self.attention_out = nn.Linear(width, width, bias=False)
        self.perceptron = nn.Sequential(
            nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, time, width = x.shape
        joined: Tensor = self.queries_keys_values(self.attention_norm(x))
        shape = (batch, time, 3, self.heads, width // self.heads)
        q, k, v = joined.view(shape).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attention_out(seen.transpose(1, 2).reshape(batch, time, width))
        out: Tensor = x + self.perceptron(x)
        return out


class CharGpt(nn.Module):
    """Predict the next symbol at every position of a context.

    Args:
        symbols: size of the alphabet.
        context: longest input, in symbols.
        layers, width, heads: the usual parameters of a GPT.
    """

    def __init__(self, *, symbols: int, context: int, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.symbol = nn.Embedding(symbols, width)
        self.place = nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width=width, heads=heads) for _ in range(layers)))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, symbols, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, (batch, time, symbols), for input (batch, time)."""
        places = torch.arange(x.shape[1], device=x.device)
        logits: Tensor = self.head(self.blocks(self.symbol(x) + self.place(places)))
        return logits


def loss_of(model: CharGpt, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Return the cross entropy in nats per character."""
    inputs, targets = batch
    return functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
