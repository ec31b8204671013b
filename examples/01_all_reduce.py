"""Three peers average a tensor.

    python examples/01_all_reduce.py

A peer needs one thing: the address of a master together with the name of a run. The master assigns
the peer's rank and the world size. `min_peers=3` makes the run wait until three peers are there.

torch.distributed's own calls then work as usual. `pccl.all_reduce` is the same operation with more
options, above all a *tag*. Operations are matched by tag, so the peers may issue operations with
different tags in any order. In this example every peer starts with a different one of three.
"""

import launch
import torch
import torch.distributed as dist

import pccl_backend as pccl

PEERS = 3


def peer(url: str, number: int) -> None:
    dist.init_process_group("pccl", init_method=f"{url}?min_peers={PEERS}")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    # The standard call.
    tensor = torch.full((4,), float(rank))
    dist.all_reduce(tensor)
    assert torch.equal(tensor, torch.full((4,), 0.0 + 1.0 + 2.0))

    # pccl's call: three layers at once, in a different order on each peer.
    layers = {f"layer.{i}": torch.full((1000,), float(rank * 10 + i)) for i in range(3)}
    names = list(layers)
    works = [
        pccl.all_reduce(layers[name], op="avg", tag=name, async_op=True)
        for name in names[rank:] + names[:rank]
    ]
    for work in works:
        work.wait()
    for i, tensor in enumerate(layers.values()):
        assert torch.equal(tensor, torch.full((1000,), 10.0 + i))

    # A quarter of the bytes: 8 bits an element. All peers hold the same rounded average.
    large = torch.linspace(0, 1, 100_000)
    pccl.all_reduce(large, op="avg", quantize=pccl.quantization.MinMax(bits=8))
    assert torch.allclose(large, torch.linspace(0, 1, 100_000), atol=0.005)

    print(f"rank {rank} of {world_size}: all averages are right", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with launch.master() as url:
        launch.run_peers(peer, url, starts_s=[0.0] * PEERS)
