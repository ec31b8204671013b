"""What torch.distributed asks of pccl: registration, rendezvous, groups, and torch's own tables."""
