"""Reconfigurable groups: `init_process_group(..., enable_reconfigure=True)` and `_reconfigure`.

The ranks are threads of this process, each with a group of its own. So the groups share a master,
as those of torchft's local ranks do. test_reconfigure_processes.py has processes that are killed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from reconfigurable import LIMIT_S, make_group, needs_reconfigure
from torch._C._distributed_c10d import ErrorType, HashStore, PrefixStore

from pccl_backend import (
    AuthenticationError,
    InvalidStateError,
    KickedError,
    MembershipChangedError,
    PcclError,
    PeerLostError,
)
from pccl_backend.errors import CollectiveMismatchError, OperationTimeoutError

ReconfigureOptions = getattr(torch._C._distributed_c10d, "ReconfigureOptions", None)
pytestmark = needs_reconfigure


class Ranks:
    """Reconfigurable groups, one per rank, and a thread for each."""

    def __init__(self, count: int, *, keys: bool = False) -> None:
        self.groups = [make_group(rank, count, keys=keys) for rank in range(count)]
        self.pool = ThreadPoolExecutor(2 * count)

    def handle(self, rank: int) -> str:
        return str(self.groups[rank].get_reconfigure_handle())

    def handles(self, ranks: Iterable[int]) -> list[str]:
        return [self.handle(rank) for rank in ranks]

    def begin(
        self, rank: int, uuid: int, handles: Sequence[str] | set[str], timeout_s: float = LIMIT_S
    ) -> Future[None]:
        def call() -> None:
            options = ReconfigureOptions()
            options.uuid = uuid
            options.handles = handles
            options.timeout = timedelta(seconds=timeout_s)
            self.groups[rank].reconfigure(options).wait()

        return self.pool.submit(call)

    def reconfigure(self, uuid: int, ranks: Sequence[int]) -> None:
        """Let these ranks meet, in this order."""
        handles = self.handles(ranks)
        calls = [self.begin(rank, uuid, handles) for rank in ranks]
        for call in calls:
            call.result(LIMIT_S)
        assert [self.groups[rank].rank() for rank in ranks] == list(range(len(ranks)))
        assert {self.groups[rank].size() for rank in ranks} == {len(ranks)}

    def abort_until_over(self, rank: int, call: Future[None]) -> None:
        """End a reconfigure by abort(), which has no effect before it has begun."""
        over = threading.Event()
        call.add_done_callback(lambda _: over.set())
        while not over.wait(0.01):
            self.groups[rank].abort()
        with pytest.raises(InvalidStateError, match=r"abort\(\) has ended it"):
            call.result(LIMIT_S)

    def check_sum(self, ranks: Sequence[int]) -> None:
        tensors = [torch.full((1000,), 2.0**place) for place in range(len(ranks))]
        works = [
            self.groups[rank].allreduce([tensor])
            for rank, tensor in zip(ranks, tensors, strict=True)
        ]
        for work in works:
            work.wait(timedelta(seconds=LIMIT_S))
        for tensor in tensors:
            assert tensor.eq(2.0 ** len(ranks) - 1).all()

    def close(self) -> None:
        for group in self.groups:
            group.shutdown()
        self.pool.shutdown()


@pytest.fixture
def ranks() -> Iterator[Ranks]:
    made = Ranks(4)
    yield made
    made.close()


@pytest.fixture
def keyed() -> Iterator[Ranks]:
    """Groups whose handles have keys, as they have beyond one machine."""
    made = Ranks(3, keys=True)
    yield made
    made.close()


def test_a_group_has_no_members_until_its_first_reconfigure(ranks: Ranks) -> None:
    group = ranks.groups[2]
    assert (group.rank(), group.size()) == (2, 4)
    assert group.supports_reconfigure
    with pytest.raises(InvalidStateError, match="the group has no members: call reconfigure"):
        group.allreduce([torch.ones(1)])


def test_the_list_decides_the_ranks_in_any_order(ranks: Ranks) -> None:
    for uuid, order in enumerate([(0, 1, 2, 3), (3, 1, 0, 2), (2, 0), (1,), (1, 3, 0)]):
        ranks.reconfigure(uuid, order)
        ranks.check_sum(order)


def test_members_of_one_host_keep_their_run(ranks: Ranks) -> None:
    def runs(members: Sequence[int]) -> set[str]:
        return {str(ranks.groups[rank].run_info()["run"]) for rank in members}

    ranks.reconfigure(1, (0, 1, 2, 3))
    (first,) = runs((0, 1, 2, 3))
    for uuid, order in enumerate([(0, 3, 2, 1), (0, 1, 2, 3), (0, 2, 1), (0, 2), (0,)], 2):
        ranks.reconfigure(uuid, order)
        ranks.check_sum(order)
        assert runs(order) == {first}
    with pytest.raises(KickedError, match=r"reconfigure \(uuid 4\) has not listed it"):
        ranks.groups[3].allreduce([torch.ones(1)]).wait()
    ranks.reconfigure(7, (0, 1, 2, 3))
    ranks.check_sum((0, 1, 2, 3))
    assert first not in runs((0, 1, 2, 3)), "a process that is no member needs a new run"


def test_a_member_that_has_aborted_brings_the_others_to_a_new_run(ranks: Ranks) -> None:
    ranks.reconfigure(1, (0, 1, 2))
    before = ranks.groups[0].run_info()["run"]
    ranks.groups[1].abort()
    ranks.reconfigure(2, (0, 1, 2))
    ranks.check_sum((0, 1, 2))
    assert ranks.groups[0].run_info()["run"] != before


def test_members_that_keep_their_run_time_out_together(ranks: Ranks) -> None:
    ranks.reconfigure(1, (0, 1, 2))
    handles = ranks.handles((0, 1, 2))
    calls = [ranks.begin(rank, 2, handles, timeout_s=0.5) for rank in (0, 1)]
    for call in calls:
        with pytest.raises(OperationTimeoutError, match=r"it waited for rank 2 \(127\.0\.0\.1:"):
            call.result(LIMIT_S)
    ranks.check_sum((0, 1, 2))  # the group is as before
    ranks.reconfigure(3, (0, 2))


def test_abort_ends_a_reconfigure_of_members(ranks: Ranks) -> None:
    ranks.reconfigure(1, (0, 1))
    handles = ranks.handles((0, 1))
    ranks.abort_until_over(1, ranks.begin(1, 2, handles))
    with pytest.raises(PeerLostError, match="abort"):
        ranks.begin(0, 2, handles).result(LIMIT_S)
    ranks.reconfigure(3, (0, 1))
    ranks.check_sum((0, 1))


def test_what_all_members_have_called_has_one_outcome(ranks: Ranks) -> None:
    ranks.reconfigure(1, (0, 1, 2))
    tensors = [torch.full((4 << 20,), 2.0**rank) for rank in range(3)]
    works = [ranks.groups[rank].allreduce([tensors[rank]]) for rank in range(3)]
    ranks.reconfigure(2, (0, 2, 1))
    outcomes = set()
    for rank, (work, tensor) in enumerate(zip(works, tensors, strict=True)):
        try:
            work.wait(timedelta(seconds=LIMIT_S))
        except MembershipChangedError:
            outcomes.add("ended")
            assert tensor.eq(2.0**rank).all()
        else:
            outcomes.add("done")
            assert tensor.eq(7.0).all()
    assert len(outcomes) == 1
    ranks.check_sum((0, 2, 1))


def test_handles_in_a_set_are_sorted(ranks: Ranks) -> None:
    handles = set(ranks.handles([0, 1, 2]))
    calls = [ranks.begin(rank, 5, handles) for rank in (0, 1, 2)]
    for call in calls:
        call.result(LIMIT_S)
    places = [ranks.groups[rank].rank() for rank in (0, 1, 2)]
    assert sorted(places) == [0, 1, 2]


def test_groups_split_and_merge_with_others_that_never_met(ranks: Ranks) -> None:
    ranks.reconfigure(1, [0, 1])
    ranks.reconfigure(1, [2])  # the same uuid, by other groups
    ranks.check_sum([0, 1])
    ranks.reconfigure(2, [2, 1, 3, 0])
    ranks.check_sum([2, 1, 3, 0])
    for uuid, rank in enumerate((0, 1, 2, 3), 3):
        ranks.reconfigure(uuid, [rank])


def test_a_handle_is_the_same_until_it_was_used(ranks: Ranks) -> None:
    first = ranks.handle(0)
    assert {ranks.handle(0) for _ in range(100)} == {first}
    ranks.reconfigure(1, [0, 1])
    assert ranks.handle(0) != first
    with pytest.raises(InvalidStateError, match="a handle serves one reconfigure"):
        ranks.begin(0, 2, [first]).result(LIMIT_S)


def test_lists_that_differ_fail_on_all_ranks_with_the_difference(ranks: Ranks) -> None:
    three, two = ranks.handles([0, 1, 2]), ranks.handles([0, 1])
    calls = [ranks.begin(0, 1, three), ranks.begin(1, 1, two), ranks.begin(2, 1, three)]
    for call in calls:
        with pytest.raises(
            CollectiveMismatchError, match=r"the lists of the handles differ: .*lacks 127\.0\.0\.1"
        ):
            call.result(LIMIT_S)


def test_another_order_fails_on_all_ranks_though_they_go_to_different_hosts(ranks: Ranks) -> None:
    handles = ranks.handles([0, 1, 2])
    calls = [
        ranks.begin(0, 1, handles),
        ranks.begin(1, 1, [handles[1], handles[0], handles[2]]),
        ranks.begin(2, 1, handles),
    ]
    for call in calls:
        with pytest.raises(CollectiveMismatchError, match="its list has another order"):
            call.result(LIMIT_S)
    ranks.reconfigure(2, [0, 1, 2])


@pytest.mark.parametrize("ended", [0, 1])
def test_the_others_get_the_reason_why_a_call_has_ended(keyed: Ranks, ended: int) -> None:
    handles = keyed.handles([0, 1, 2])
    calls = [keyed.begin(rank, 1, handles) for rank in (0, 1)]
    keyed.abort_until_over(ended, calls[ended])
    for call in (calls[1 - ended], keyed.begin(2, 1, handles)):
        with pytest.raises(
            PeerLostError, match=rf"rank {ended}, .* has ended its call: abort\(\) has"
        ):
            call.result(LIMIT_S)
    keyed.reconfigure(2, [0, 1, 2])


def test_a_process_that_is_not_listed_ends_no_call(keyed: Ranks) -> None:
    handles = keyed.handles([0, 1, 2])
    first = keyed.begin(0, 1, handles[:2])
    with pytest.raises(PcclError, match=r"rank 0, .* has called another reconfigure"):
        keyed.begin(2, 1, [handles[0], handles[2]]).result(LIMIT_S)
    second = keyed.begin(1, 1, handles[:2])
    for call in (first, second):
        call.result(LIMIT_S)
    keyed.check_sum([0, 1])


def test_a_used_uuid_is_refused_on_all_ranks(ranks: Ranks) -> None:
    ranks.reconfigure(7, [0, 1])
    handles = ranks.handles([0, 1])
    for rank in (0, 1):
        with pytest.raises(RuntimeError, match=r"\(uuid 7\): the uuid was already used"):
            ranks.begin(rank, 7, handles).result(LIMIT_S)
    ranks.check_sum([0, 1])  # the group is as it was
    ranks.reconfigure(8, [0, 1])


def test_a_failed_uuid_is_refused_on_all_ranks_also_on_one_that_did_not_call(ranks: Ranks) -> None:
    handles = ranks.handles([0, 1, 2])
    for call in [ranks.begin(rank, 7, handles, timeout_s=0.3) for rank in (1, 2)]:
        assert isinstance(call.exception(LIMIT_S), OperationTimeoutError)
    handles = ranks.handles([0, 1, 2])
    for call in [ranks.begin(rank, 7, handles) for rank in (0, 1, 2)]:
        assert "the uuid was already used" in str(call.exception(LIMIT_S))
    ranks.reconfigure(8, [0, 1, 2])


def test_the_end_of_the_time_names_who_has_not_called(ranks: Ranks) -> None:
    ranks.reconfigure(1, [0, 1])
    handles = ranks.handles([0, 1, 2])
    calls = [ranks.begin(rank, 2, handles, timeout_s=0.5) for rank in (0, 1)]
    for call in calls:
        with pytest.raises(
            OperationTimeoutError, match=r"timed out: it waited for rank 2 \(127\.0\.0\.1:"
        ):
            call.result(LIMIT_S)
    ranks.check_sum([0, 1])  # the group is as it was
    ranks.reconfigure(3, [0, 1, 2])


def test_the_end_of_the_time_names_a_host_that_has_not_called(ranks: Ranks) -> None:
    call = ranks.begin(1, 2, ranks.handles([0, 1]), timeout_s=0.5)
    with pytest.raises(OperationTimeoutError, match=r"it waited for rank 0, 127\.0\.0\.1:"):
        call.result(LIMIT_S)


def test_abort_ends_a_reconfigure_that_waits(ranks: Ranks) -> None:
    ranks.abort_until_over(1, ranks.begin(1, 2, ranks.handles([0, 1])))
    ranks.reconfigure(3, [0, 1])


def test_a_reconfigure_works_again_after_an_abort(ranks: Ranks) -> None:
    ranks.reconfigure(1, [0, 1])
    for rank in (0, 1):
        ranks.groups[rank].abort()
        assert ranks.groups[rank].backend.get_error() == ErrorType.SUCCESS
    ranks.reconfigure(2, [1, 0])
    ranks.check_sum([1, 0])


def test_what_is_under_way_fails_and_leaves_its_tensors(ranks: Ranks) -> None:
    ranks.reconfigure(1, [0, 1, 2])
    tensors = [torch.full((4 << 20,), float(rank)) for rank in (0, 1)]
    works = [
        ranks.groups[rank].allreduce([tensor]) for rank, tensor in zip((0, 1), tensors, strict=True)
    ]
    ranks.reconfigure(2, [0, 1])
    for rank, work in enumerate(works):
        with pytest.raises(MembershipChangedError, match=r"was ended by reconfigure \(uuid 2\)"):
            work.wait(timedelta(seconds=LIMIT_S))
        assert tensors[rank].eq(float(rank)).all()
        assert ranks.groups[rank].backend.get_error() == ErrorType.SUCCESS
    ranks.check_sum([0, 1])


def test_get_error_names_the_kind_of_the_latest_failure(ranks: Ranks) -> None:
    ranks.reconfigure(1, [0, 1])
    assert ranks.groups[0].backend.get_error() == ErrorType.SUCCESS
    ranks.groups[0].set_timeout(timedelta(milliseconds=50))
    with pytest.raises(OperationTimeoutError, match="timed out after 50 ms"):
        ranks.groups[0].allreduce([torch.ones(4)]).wait()
    assert ranks.groups[0].backend.get_error() == ErrorType.TIMEOUT
    ranks.reconfigure(2, [0, 1])
    assert ranks.groups[0].backend.get_error() == ErrorType.SUCCESS


def test_a_list_that_makes_no_sense_is_refused(ranks: Ranks) -> None:
    own, other = ranks.handles([0, 1])
    for handles, error, match in [
        ([], ValueError, "at least one handle"),
        ([own, "gloo:0"], ValueError, '"gloo:0" is no handle of pccl'),
        ([own, other, own], ValueError, "is twice in its handles"),
        ([other], InvalidStateError, "the handle of this process is not in the list"),
    ]:
        with pytest.raises(error, match=match):
            ranks.begin(0, 1, handles).result(LIMIT_S)
    ranks.reconfigure(1, [0, 1])  # the uuid is still fresh


def test_a_second_call_of_one_group_is_refused(ranks: Ranks) -> None:
    handles = ranks.handles([0, 1])
    first = ranks.begin(1, 1, handles)
    refused = None
    while not isinstance(refused, InvalidStateError):  # until the first call is under way
        refused = ranks.begin(1, 2, handles, timeout_s=0.05).exception(LIMIT_S)
        assert not first.done()
    assert "another reconfigure of this group is under way" in str(refused)
    ranks.begin(0, 1, handles).result(LIMIT_S)
    first.result(LIMIT_S)


def test_a_handle_of_a_group_that_is_gone_is_stale(ranks: Ranks) -> None:
    gone = make_group()
    handles = [str(gone.get_reconfigure_handle()), ranks.handle(0)]
    keeper = make_group()  # so that the master of this process stays
    del gone
    with pytest.raises(PeerLostError, match="is stale: its process was restarted"):
        ranks.begin(0, 1, handles).result(LIMIT_S)
    keeper.shutdown()


def test_a_peer_that_calls_another_uuid_ends_the_call_of_its_peers(ranks: Ranks) -> None:
    handles = ranks.handles([0, 1])
    calls = [ranks.begin(0, 1, handles), ranks.begin(1, 2, handles)]
    with pytest.raises(CollectiveMismatchError, match="has called reconfigure with uuid 2"):
        calls[0].result(LIMIT_S)
    with pytest.raises(RuntimeError, match="was used before"):
        calls[1].result(LIMIT_S)


def test_handles_with_keys_need_no_token(keyed: Ranks) -> None:
    first = keyed.handles([0, 1, 2])
    for uuid, order in enumerate([(0, 1, 2), (2, 0), (1,), (1, 2, 0)]):
        keyed.reconfigure(uuid, order)
        keyed.check_sum(order)
    keys = {handle.rpartition("/")[2] for handle in [*first, *keyed.handles([0, 1, 2])]}
    assert len(keys) == 6, "each handle has a key of its own"


def test_a_handle_with_another_key_leads_to_nobody(keyed: Ranks) -> None:
    handles = keyed.handles([0, 1])
    stem, _, key = handles[0].rpartition("/")
    forged = f"{stem}/{key[::-1]}"
    with pytest.raises(AuthenticationError, match="does not prove that it has made its handle"):
        keyed.begin(1, 1, [forged, handles[1]]).result(LIMIT_S)
    stem, _, key = handles[1].rpartition("/")
    with pytest.raises(PeerLostError, match=r"rank 1, .* does not prove that it has made its"):
        keyed.begin(0, 2, [handles[0], f"{stem}/{key[::-1]}"]).result(LIMIT_S)
    keyed.reconfigure(3, [0, 1])


def test_handles_with_and_without_keys_do_not_meet(ranks: Ranks, keyed: Ranks) -> None:
    handles = [ranks.handle(0), keyed.handle(1)]
    for call in (ranks.begin(0, 1, handles), keyed.begin(1, 1, handles)):
        with pytest.raises(ValueError, match=r"has a key, and that of .* has none"):
            call.result(LIMIT_S)


def test_init_process_group_makes_such_a_group() -> None:
    store = HashStore()
    dist.init_process_group(
        "pccl", store=PrefixStore("a", store), rank=0, world_size=1, enable_reconfigure=True
    )
    try:
        assert dist._supports_reconfigure()
        handle = dist._get_reconfigure_handle()
        assert handle.startswith("pccl1/127.0.0.1/")
        dist._reconfigure(1, [handle], timeout=timedelta(seconds=LIMIT_S)).wait()
        tensor = torch.ones(3)
        dist.all_reduce(tensor)
        assert tensor.tolist() == [1.0] * 3
    finally:
        dist.destroy_process_group()
