"""A recurrent network for text."""

from __future__ import annotations

from torch import Tensor, nn


class Lstm(nn.Module):
    """Scores for the next token, from an LSTM of ``layers`` layers of ``width`` units over embedded tokens."""

    def __init__(self, tokens: int, embedding: int = 64, width: int = 128, layers: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, embedding)
        self.recurrent = nn.LSTM(embedding, width, layers, batch_first=True)
        self.scores = nn.Linear(width, tokens)

    def forward(self, inputs: Tensor) -> Tensor:
        """``(batch, time)``, int64, to scores of shape ``(batch, time, tokens)``."""
        outputs, _ = self.recurrent(self.embedding(inputs))
        scores: Tensor = self.scores(outputs)
        return scores


def lstm(sample: tuple[int, ...], classes: int) -> nn.Module:
    """Two layers of 128 units: 280,832 parameters for bytes."""
    return Lstm(classes)
