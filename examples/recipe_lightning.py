"""DiLoCo around the Trainer of Lightning: no Strategy, the two lines of every loop.

    pip install lightning
    python examples/recipe_lightning.py

`DiLoCo` counts the steps of the optimizer, so it needs the one that Lightning will use: the module
makes it in `__init__`, and `configure_optimizers` returns it. The `with` block goes around `fit()`.
All peers take the same number of outer steps, so a callback ends the training by that number.
"""

import launch
import lightning
import torch

from pccl_backend.trainers import DiLoCo

INNER_STEPS, OUTER_STEPS = 10, 4
BATCH = 64


class Sine(lightning.LightningModule):
    """Learns the sine."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(1, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1)
        )
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-2)
        self.loss = float("nan")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return self.optimizer

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        (x,) = batch
        loss = (self.net(x) - torch.sin(x)).square().mean()
        self.loss = loss.item()
        self.log("loss", loss, sync_dist=True)  # with a DDPStrategy: the average of its ranks
        return loss


class StopAt(lightning.Callback):
    """Ends the training after an outer step."""

    def __init__(self, outer: DiLoCo) -> None:
        self._outer = outer

    def on_train_batch_end(self, trainer: lightning.Trainer, *_: object) -> None:
        trainer.should_stop = self._outer.revision >= OUTER_STEPS


def peer(url: str, number: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(number)
    module = Sine()
    data = torch.utils.data.TensorDataset(torch.rand(10_000, 1) * 6 - 3)  # each peer's own
    batches = torch.utils.data.DataLoader(data, batch_size=BATCH, shuffle=True)
    with DiLoCo(module, module.optimizer, every=INNER_STEPS, url=f"{url}?min_peers=2") as outer:
        trainer = lightning.Trainer(
            accelerator="cpu",
            max_epochs=1000,  # the callback ends it
            callbacks=[StopAt(outer)],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(module, batches)
    print(
        f"peer {number} ends at step {outer.revision} of {outer.last.inner_steps} inner steps, "
        f"loss {module.loss:.3f}, hash {outer.last.synced.hash}",
        flush=True,
    )


if __name__ == "__main__":
    import torch._dynamo  # torch.optim needs it; slow to import, so once before the peers fork

    with launch.master() as url:
        launch.run_peers(peer, url, starts_s=[0.0, 0.0])
