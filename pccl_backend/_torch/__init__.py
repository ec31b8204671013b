"""The side towards torch.distributed: registration, rendezvous, groups, and torch's own tables."""
