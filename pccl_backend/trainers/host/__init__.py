"""Host: the processes that train one model together, and are one peer of the run.

A peer need not be a process: it may be a host of several, whose model is cut between them (FSDP2).
Then the outer state lies in memory that all of them map. One process, the *leader*, has the core
that decides, and alone talks to the other hosts. For what concerns the model, it gives *orders*:
each process measures or loads the part that it has, and answers when it is done. So every order is
a barrier of the host, and the next one finds its work complete:

    leader      measure ┐          ┌ all-reduce  outer step  load ┐
    others      measure ┴ answer ──┘                         load ┴ answer

All processes of the host make the same calls of the trainer. In each of them, the leader does what
a peer of one process does, and the others carry out orders until it ends (follower.py). Its result
or error is that of all.

DiLoCo alone uses this folder, and only if it was given a `host_group`. Its `_together` then makes
each call through the `Leader` or the `Follower`, and the leader's `HostBuffers` give the orders.

If one process dies, the whole host leaves the run at once, whatever the leader does at the moment:
a thread of it watches the others. A collective of the host's own group would not do for this: the
wait for other hosts may take minutes, and NCCL ends a barrier that takes so long.
"""
