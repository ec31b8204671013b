"""Host: the processes that train one model together, and are one peer of the run.

A peer may be one process, or a host of several processes with one model cut between them (FSDP2).
Then the outer state lies in memory that all of them map. One process, the *leader*, has the core
that decides, and alone communicates with the other hosts. It accesses the model by *orders*: each
process measures or loads its own shard, and answers when it is done. So every order is a barrier of
the host, and its work is complete before the next one:

    leader      measure ┐          ┌ all-reduce  outer step  load ┐
    others      measure ┴ answer ──┘                         load ┴ answer

All processes of the host make the same calls of the trainer. In each call, the leader acts like a
peer of one process, and the others carry out orders until the call ends (follower.py). The leader's
result or error is returned or raised in all processes.

DiLoCo alone uses this folder, and only with a `host_group`. Its `_together` then makes each call
through the `Leader` or the `Follower`, and the leader's `HostBuffers` give the orders.

If one process dies, the whole host leaves the run at once, even while the leader waits: a thread of
the leader watches the others. A barrier in the host's own group is no substitute: the wait for
other hosts may take minutes, and NCCL aborts a barrier after such a time.
"""
