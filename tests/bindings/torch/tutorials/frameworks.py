# SPDX-License-Identifier: Apache-2.0
"""Frameworks that start and use groups themselves: frameworks.py accelerate|lightning BACKEND RESULTS, on any number of
ranks. Each trains one model with Adam on the shares of one batch after the other, as train_alone() does by itself."""

import os
import sys
import warnings

import idioms
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

STEPS, BATCH = 6, 4  # a rank's


def model():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))


def loss_of(y, target):
    return (y - target).square().mean()


def dataset(world):
    numbers = torch.Generator().manual_seed(4)
    return TensorDataset(*(torch.randn(STEPS * BATCH * world, n, generator=numbers) for n in (8, 2)))


def optimizer_of(trained):
    return torch.optim.Adam(trained.parameters(), lr=1e-2)


def train_alone(world):
    """The frameworks deal samples out one by one: a batch of all ranks is the next `world` times BATCH."""
    trained = model()
    optimizer = optimizer_of(trained)
    for x, target in DataLoader(dataset(world), batch_size=BATCH * world):
        optimizer.zero_grad()
        loss_of(trained(x), target).backward()
        optimizer.step()
    return trained.state_dict()


def train_by_accelerate(backend):
    import accelerate

    how = accelerate.InitProcessGroupKwargs(backend=backend)
    accelerator = accelerate.Accelerator(cpu=True, kwargs_handlers=[how])
    trained = model()
    loader = DataLoader(dataset(accelerator.num_processes), batch_size=BATCH)
    wrapped, optimizer, loader = accelerator.prepare(trained, optimizer_of(trained), loader)
    for x, target in loader:
        optimizer.zero_grad()
        accelerator.backward(loss_of(wrapped(x), target))
        optimizer.step()
    ranks = accelerator.gather(torch.tensor([accelerator.process_index])).tolist()
    assert ranks == list(range(accelerator.num_processes)), ranks
    return accelerator.unwrap_model(wrapped).state_dict()


def train_by_lightning(backend):
    import pytorch_lightning as lightning
    from pytorch_lightning.strategies import DDPStrategy

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.trained = model()

        def training_step(self, batch, _):
            x, target = batch
            loss = loss_of(self.trained(x), target)
            self.log("loss", loss, sync_dist=True, on_epoch=True)
            return loss

        def configure_optimizers(self):
            return optimizer_of(self.trained)

    class Data(lightning.LightningDataModule):
        def train_dataloader(self):
            world, rank = self.trainer.world_size, self.trainer.global_rank
            data = dataset(world)
            return DataLoader(data, batch_size=BATCH, sampler=DistributedSampler(data, world, rank, shuffle=False))

    module = Module()
    trainer = lightning.Trainer(
        accelerator="cpu", devices=int(os.environ["WORLD_SIZE"]), strategy=DDPStrategy(process_group_backend=backend),
        max_epochs=1, use_distributed_sampler=False, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(module, datamodule=Data())
    return module.trained.state_dict()


def main():
    framework, backend, results = sys.argv[1:]
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    weights = {"accelerate": train_by_accelerate, "lightning": train_by_lightning}[framework](backend)
    idioms.check_backend()
    rank, world = dist.get_rank(), dist.get_world_size()
    for name, value in train_alone(world).items():
        torch.testing.assert_close(weights[name], value, rtol=1e-5, atol=1e-6, msg=lambda m: f"{framework}: {name}: {m}")
    torch.save({framework: weights}, os.path.join(results, f"{rank}.pt"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
