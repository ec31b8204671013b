"""DiLoCo around the Trainer of Hugging Face: its loop stays as it is.

    pip install transformers accelerate
    python examples/recipe_hf_trainer.py

`DiLoCo` counts the steps of the optimizer, so it needs the one that the Trainer will use: make it
yourself, and give it to both. The `with` block goes around `train()`. All peers take the same
number of outer steps, so a callback ends the training by that number, not by `max_steps`.

A model that is larger than a GPU: see 08_fsdp2.py, and give `host_group`.
"""

import tempfile

import launch
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

from pccl_backend.trainers import DiLoCo

INNER_STEPS, OUTER_STEPS = 5, 4
LENGTH, BATCH = 16, 4


class StopAt(TrainerCallback):
    """Ends the training after an outer step."""

    def __init__(self, outer: DiLoCo) -> None:
        self._outer = outer

    def on_step_end(self, args, state, control, **options) -> None:  # type: ignore[no-untyped-def]
        control.should_training_stop = self._outer.revision >= OUTER_STEPS


class Counting(torch.utils.data.Dataset):
    """Sequences that count up, from another number for each."""

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = (torch.arange(LENGTH) + index) % 32
        return {"input_ids": tokens, "labels": tokens}


def peer(url: str, number: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(number)
    sizes = {"n_layer": 1, "n_embd": 32, "n_head": 2, "vocab_size": 32, "n_positions": LENGTH}
    model = GPT2LMHeadModel(GPT2Config(bos_token_id=None, eos_token_id=None, **sizes))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            use_cpu=True,
            seed=number,  # each peer draws its own batches
            per_device_train_batch_size=BATCH,
            num_train_epochs=1000,  # the callback ends it
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        trainer = Trainer(
            model=model,
            args=arguments,
            train_dataset=Counting(),
            optimizers=(optimizer, scheduler),
        )
        with DiLoCo(model, optimizer, every=INNER_STEPS, url=f"{url}?min_peers=2") as outer:
            trainer.add_callback(StopAt(outer))
            result = trainer.train()
    print(
        f"peer {number} ends at step {outer.revision} of {outer.last.inner_steps} inner steps, "
        f"loss {result.training_loss:.3f}, hash {outer.last.synced.hash}",
        flush=True,
    )


if __name__ == "__main__":
    with launch.master() as url:
        launch.run_peers(peer, url, starts_s=[0.0, 0.0])
