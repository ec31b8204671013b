"""A training loop like any other; test_trainers.py compares it with loop_diloco.py."""

import torch


def train(url: str) -> float:
    """Learn the sine; return the last loss."""
    model = torch.nn.Sequential(torch.nn.Linear(1, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(100):
        x = torch.rand(64, 1) * 6 - 3
        loss = (model(x) - torch.sin(x)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


def train_there() -> float:
    """Train in the run of a test."""
    import world

    return train(world.current.init_method)
